"""Deep Q-network (Mnih et al. 2015)."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor, nn

from slm_lab.agent.algorithm.base import Algorithm, Key, NetPlan, Workload
from slm_lab.agent.algorithm.q_learning import QLearningSpec, learn, q_step, settled, workload
from slm_lab.agent.algorithm.value import ValueLearner
from slm_lab.agent.net.target import Target, polyak_note
from slm_lab.types import Cadence, Lessons, Metrics, Spaces


class DQN(Algorithm):
    """V(s') = max_a Q'(s', a), all by the target net."""

    Spec = QLearningSpec
    memory_kind = "replay"
    actions = ("discrete",)
    logs = ("explore_var",)

    def __init__(self, spec: QLearningSpec, plan: NetPlan, spaces: Spaces, key: Key) -> None:
        super().__init__(key)
        self.spec = spec
        self.learner = ValueLearner(spec, plan.actor, spaces, key)
        self.actor, self.optim = self.learner.actor, self.learner.optim
        self.target = Target(self.learner.net, plan.actor)
        self.nets = nn.ModuleDict({"net": self.learner.net, "target": self.target})
        self.step = q_step("dqn", spec, self.learner, self.next_value)
        self.programs = (self.step, self.actor)
        self.notes = [*self.learner.notes, *polyak_note(plan.actor)]

    @classmethod
    def settle(cls, spec: Any, num_envs: int, unit: str, batch_size: int | None) -> Any:
        return settled(spec, batch_size)

    def cadence(self, unit: Literal["step", "frame", "episode"]) -> Cadence:
        return Cadence(self.spec.training_frequency, unit, self.spec.training_start_step or 0)

    def next_value(self, next_obs: Any) -> Tensor:
        """What the states that followed are worth, [B]."""
        q: Tensor = self.target.net(next_obs)[0]
        return q.amax(-1)

    def workload(self, num_envs: int, batch_size: int) -> Workload:
        return workload(self.spec, num_envs, batch_size)

    def update(self, memory: Lessons, frame: int) -> Metrics:
        return learn(self.spec, self.learner, self.step, self.target, memory, frame, self.rng.noise)
