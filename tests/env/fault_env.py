"""An env with a fault at a chosen step; importable by worker processes as `fault_env:Fault`."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from tiny_envs import Countdown, Result


class Fault(Countdown):
    """Counts its steps and fails at its step `at_step`, or in its reset number `at_reset`, over all its episodes.

    With `who` only the env whose first reset had this seed fails; `others` fail in ways of their own, by seed. With
    `flag`, a file, there are faults only while that file is there.
    """

    def __init__(
        self,
        fault: str,
        at_step: int = 0,
        at_reset: int = 0,
        who: int | None = None,
        others: dict[str, str] | None = None,
        flag: str | None = None,
        length: int = 5,
        seconds: float = 60.0,
    ) -> None:
        super().__init__(length)
        self.fault, self.at_step, self.at_reset, self.seconds = fault, at_step, at_reset, seconds
        self.others = others or {}
        self.who, self.flag = who, None if flag is None else Path(flag)
        self.seed: int | None = None
        self.steps = self.resets = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self.seed, self.fault = seed, self.others.get(str(seed), self.fault)
        self.resets += 1
        obs, info = super().reset(seed=seed)
        if self.resets == self.at_reset:
            obs[0] += self._fail()
        return obs, info

    def step(self, action: Any) -> Result:
        self.steps += 1
        obs, reward, *rest = super().step(action)
        if self.steps == self.at_step:
            added = self._fail()
            obs, reward = (obs, reward + added) if "reward" in self.fault else (obs + added, reward)
        return obs, reward, *rest

    def _fail(self) -> float:
        """Do what the fault is, in time; what to add to an observation or a reward."""
        wanted = self.who in (None, self.seed) or str(self.seed) in self.others
        if not wanted or (self.flag is not None and not self.flag.exists()):
            return 0.0
        if self.fault == "raise":
            raise ZeroDivisionError("the rod broke")
        if self.fault == "exit":
            os._exit(7)
        if self.fault == "sys.exit":
            sys.exit(0)
        if self.fault == "sleep":
            time.sleep(self.seconds)
            return 0.0
        return float(np.float64(self.fault.split()[0]))
