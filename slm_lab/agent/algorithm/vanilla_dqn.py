"""DQN without a target net: the net bootstraps from itself."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor, nn

from slm_lab.agent.algorithm.base import TARGET_KEYS, Algorithm, Key, NetPlan, Workload
from slm_lab.agent.algorithm.q_learning import QLearningSpec, learn, q_step, settled, workload
from slm_lab.agent.algorithm.value import ValueLearner
from slm_lab.types import Cadence, Lessons, Metrics, Spaces


class VanillaDQN(Algorithm):
    """V(s') = max_a Q(s', a)."""

    Spec = QLearningSpec
    memory_kind = "replay"
    actions = ("discrete",)
    unused_net_keys = TARGET_KEYS
    logs = ("explore_var",)

    def __init__(self, spec: QLearningSpec, plan: NetPlan, spaces: Spaces, key: Key) -> None:
        super().__init__(key)
        self.spec = spec
        self.learner = ValueLearner(spec, plan.actor, spaces, key)
        self.actor, self.optim = self.learner.actor, self.learner.optim
        self.nets = nn.ModuleDict({"net": self.learner.net})
        self.step = q_step("vanilla-dqn", spec, self.learner, self.next_value)
        self.programs = (self.step, self.actor)
        self.notes = self.learner.notes

    @classmethod
    def settle(cls, spec: Any, num_envs: int, unit: str, batch_size: int | None) -> Any:
        return settled(spec, batch_size)

    def cadence(self, unit: Literal["step", "frame", "episode"]) -> Cadence:
        return Cadence(self.spec.training_frequency, unit, self.spec.training_start_step or 0)

    def next_value(self, next_obs: Any) -> Tensor:
        """What the states that followed are worth, [B]."""
        q: Tensor = self.learner.net(next_obs)[0]
        return q.amax(-1)

    def workload(self, num_envs: int, batch_size: int) -> Workload:
        return workload(self.spec, num_envs, batch_size)

    def update(self, memory: Lessons, frame: int) -> Metrics:
        return learn(self.spec, self.learner, self.step, None, memory, frame, self.rng.noise)
