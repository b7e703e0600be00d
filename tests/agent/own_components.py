"""Components as a user's own package would hold them, named in specs as `own_components:Name`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from slm_lab.agent.algorithm.actor import ActorCriticLearner
from slm_lab.agent.algorithm.base import Algorithm, Key, NetPlan, PolicyGradientSpec
from slm_lab.agent.algorithm.losses import policy_gradient
from slm_lab.agent.memory.base import MemoryBase, MemorySpec
from slm_lab.agent.memory.onpolicy import OnPolicyBatchReplay
from slm_lab.agent.net.base import Head, Net, NetSpec
from slm_lab.lib.rng import Rng
from slm_lab.spec.parse import Int
from slm_lab.types import Act, Cadence, Lessons, Metrics, Obs, Shape, Spaces, Step


class GreedySpec(PolicyGradientSpec):
    """Every action is weighed by its next reward alone."""

    patience: Int = Field(ge=1, description="vector steps between updates")


class Greedy(Algorithm):
    """A policy gradient on immediate rewards."""

    Spec = GreedySpec

    def __init__(self, spec: GreedySpec, plan: NetPlan, spaces: Spaces, key: Key) -> None:
        super().__init__(key)
        self.spec = spec
        self.learner = ActorCriticLearner(spec, plan, spaces, key)
        self.actor, self.optim = self.learner.actor, self.learner.optim
        self.nets = nn.ModuleDict({"net": self.learner.net})

    def cadence(self, unit: Literal["step", "frame", "episode"]) -> Cadence:
        return Cadence(self.spec.patience, unit)

    def update(self, memory: Lessons, frame: int) -> Metrics:
        batch = memory.sample().flat()
        dist = self.learner.dist(self.learner.net.policy(batch.obs))
        loss = policy_gradient(dist.log_prob(batch.action), batch.reward)
        return {"loss": self.learner.optim.step({"policy": loss}), "opt_steps": 1}


class LinearNetSpec(NetSpec):
    """One matrix."""

    scale: float = Field(1.0, description="factor on the input")


class LinearNet(Net):
    """Heads right on the input."""

    Spec = LinearNetSpec

    def __init__(self, spec: LinearNetSpec, in_shape: Shape, heads: Sequence[Head]) -> None:
        super().__init__(spec, nn.Identity(), in_shape[0], heads)
        self.scale = spec.scale

    def encode(self, x: Tensor) -> Tensor:
        return self.scale * x.float()


class CountingSpec(MemorySpec):
    """A rollout that counts."""


class Counting(OnPolicyBatchReplay):
    """Knows how many vector steps it was ever given."""

    Spec: ClassVar[type[MemorySpec]] = CountingSpec

    def __init__(self, spec: MemorySpec, spaces: Spaces, cadence: Cadence, extra: dict[str, Shape], rng: Rng) -> None:
        super().__init__(spec, spaces, cadence, extra, rng)
        self.count = 0

    def add(self, obs: Obs, act: Act, step: Step) -> None:
        super().add(obs, act, step)
        self.count += 1


class OffPolicy(MemoryBase):
    """Says of itself that it keeps old experience."""

    Spec: ClassVar[type[MemorySpec]] = MemorySpec
    kind: ClassVar = "replay"
    unit: ClassVar = "step"


def not_a_class() -> None:
    """A name that is no component."""
