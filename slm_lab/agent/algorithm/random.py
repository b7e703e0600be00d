"""Random actions: the baseline every learner must beat."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import nn

from slm_lab.agent.algorithm.base import Algorithm, AlgorithmSpec, Key, NetPlan
from slm_lab.agent.algorithm.policy import mask_of, random_actions
from slm_lab.lib.rng import Rng
from slm_lab.spec.parse import Float, Int
from slm_lab.types import Act, Cadence, Lessons, Metrics, Spaces, rows_in


class RandomSpec(AlgorithmSpec):
    """Uniform actions, no learning."""

    inert: ClassVar = {}

    gamma: Float = Field(0.99, ge=0, le=1, description="discount, for reward normalisation only")
    training_frequency: Int = Field(1, ge=1, description="accepted, nothing is trained")


class RandomActor:
    """Samples the action space, one action for each env that asks: evaluation may have fewer than training."""

    def __init__(self, spaces: Spaces, rng: Rng) -> None:
        self.spaces, self.rng = spaces, rng
        self.hidden: Mapping[str, int] = {}

    def act(self, obs: Any, frame: int, rng: Rng) -> Act:
        action = random_actions(self.spaces, rows_in(obs), rng.noise, mask_of(obs)).numpy()
        return Act(action, action, {})

    def best(self, obs: Any) -> Act:
        return self.act(obs, 0, self.rng)


class Random(Algorithm):
    """Has no nets and stores nothing."""

    Spec = RandomSpec
    memory_kind = None

    def __init__(self, spec: RandomSpec, plan: NetPlan | None, spaces: Spaces, key: Key) -> None:
        super().__init__(key)
        self.spec = spec
        self.actor = RandomActor(spaces, self.rng)
        self.nets = nn.ModuleDict()

    def cadence(self, unit: Literal["step", "frame", "episode"]) -> Cadence:
        return Cadence(1, unit)

    def update(self, memory: Lessons, frame: int) -> Metrics:
        return {"loss": math.nan, "opt_steps": 0}
