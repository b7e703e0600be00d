"""CartPole that waits or fails in chosen trials of a search; importable as `staged_envs:Staged`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from faulty_envs import Faulty

from slm_lab.lib.rng import Consumer, seed_of


class Staged(Faulty):
    """Faulty, whose exits alone happen only `once`; from step `at` on it waits for the file that `gates` names."""

    def __init__(
        self,
        faults: dict[str, str] | None = None,
        at: int = 20,
        once: str | None = None,
        gates: dict[str, str] | None = None,
    ) -> None:
        super().__init__(faults, at, once)
        self.gates, self.gate = gates or {}, ""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.gate = self.gates.get(str(seed), self.gate)
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        while self.gate and self.steps >= self.at and not Path(self.gate).exists():
            time.sleep(0.02)
        return super().step(action)

    def _wanted(self) -> bool:
        return super()._wanted() if self.fault.startswith("exit") else True


def seed_of_trial(trial: int, base: int = 3) -> str:
    """The seed of the first env of a trial's first session, as a key of `faults` and `gates`."""
    return str(seed_of(base, trial, 0, Consumer.ENV, 0))
