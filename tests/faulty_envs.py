"""CartPole with a fault that comes at a chosen step of a chosen session; importable as `faulty_envs:Faulty`."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from slm_lab.lib.rng import Consumer, seed_of


class Faulty(CartPoleEnv):
    """Fails from its step `at` on, in the way that `faults` gives for the seed it was first reset with, or for any.

    With `once`, a file, it fails only while that file is there, and takes it away when it does.
    """

    def __init__(self, faults: dict[str, str] | None = None, at: int = 20, once: str | None = None) -> None:
        super().__init__()
        self.faults, self.at, self.once = faults or {}, at, once
        self.fault = self.faults.get("any", "")
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.fault = self.faults.get(str(seed), self.fault)
        if self.fault == "raise in reset":
            raise ValueError("no reset today")
        obs, info = super().reset(seed=seed, options=options)
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(action)  # type: ignore[no-untyped-call]
        self.steps += 1
        if self.steps < self.at or not self.fault or not self._wanted():
            return obs, reward, terminated, truncated, info
        if self.fault == "raise":
            raise ValueError(f"broken at step {self.steps}")
        if self.fault.startswith("exit"):
            os._exit(int(self.fault.removeprefix("exit ")))
        if self.fault == "nan reward":
            reward = math.nan
        if self.fault == "nan obs":
            obs = np.full_like(obs, math.nan)
        return obs, reward, terminated, truncated, info

    def _wanted(self) -> bool:
        if self.once is None:
            return True
        there = Path(self.once).exists()
        Path(self.once).unlink(missing_ok=True)
        return there


def seed_in(session: int, base: int = 3, env: int = 0) -> str:
    """The seed of an env of a session's training, as a key of `faults`."""
    return str(seed_of(base, 0, session, Consumer.ENV, env))
