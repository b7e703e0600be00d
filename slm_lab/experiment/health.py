"""Checks for the moment something goes wrong: gradients that vanish or explode, numbers that are not finite."""

from __future__ import annotations

import numpy as np
import torch
from loguru import logger

from slm_lab.agent import Agent
from slm_lab.types import Step

EXPLODED = 1e5


class Health:
    """Watches an agent's gradients and parameters after each update, and warns once of each trouble."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.warned = set[str]()
        self.sums = self._sums()

    def _sums(self) -> dict[str, float]:
        optim = self.agent.algorithm.optim
        params = {} if optim is None else optim.params
        return {name: sum(float(p.detach().double().abs().sum()) for p in part) for name, part in params.items()}

    def check(self) -> None:
        optim, sums = self.agent.algorithm.optim, self._sums()
        for name, norm in ({} if optim is None else optim.norms).items():
            if not 0 < norm < EXPLODED:
                self._warn(f"the gradient norm of {name} is {norm:g}, outside (0, {EXPLODED:g})")
            if sums[name] == self.sums[name]:
                self._warn(f"the parameters of {name} did not change in an update")
        self.sums = sums

    def _warn(self, trouble: str) -> None:
        if trouble.split(" is ")[0] not in self.warned:
            self.warned.add(trouble.split(" is ")[0])
            logger.warning(trouble)


def what_is_not_finite(agent: Agent, step: Step | None = None) -> str:
    """Names of what holds NaN or infinity: observations, rewards, parameters, statistics."""
    bad = list[str]()
    if step is not None:
        entries = step.next_obs if isinstance(step.next_obs, dict) else {"": step.next_obs}
        bad += [f"observation {key}".strip() for key, entry in entries.items() if not np.isfinite(entry).all()]
        bad += [] if np.isfinite(step.reward).all() else ["reward"]
    bad += [
        f"parameter {name}"
        for name, tensor in agent.algorithm.nets.state_dict().items()
        if tensor.is_floating_point() and not torch.isfinite(tensor).all()
    ]
    if agent.normalizer is not None:
        bad += [
            f"statistics of observation {key}".strip()
            for key, moments in agent.normalizer.moments.items()
            if not (np.isfinite(moments.mean).all() and np.isfinite(moments.var).all())
        ]
    return ", ".join(bad) or "the loss alone"
