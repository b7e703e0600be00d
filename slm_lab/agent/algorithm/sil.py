"""Self-imitation around A2C."""

from __future__ import annotations

from typing import Any, Literal

from slm_lab.agent.algorithm.actor_critic import ActorCritic, ActorCriticSpec
from slm_lab.agent.algorithm.base import TARGET_KEYS, Algorithm, Key, NetPlan, Workload
from slm_lab.agent.algorithm.self_imitation import SelfImitationSpec, imitation_step, learn, workload
from slm_lab.types import Cadence, Lessons, Metrics, Spaces, State


class SILSpec(SelfImitationSpec, ActorCriticSpec):
    """A2C that imitates its own good episodes; `agent.memory` names a replay memory too, by `sil_replay_name`."""


class SIL(Algorithm):
    """All that ActorCritic is, and imitation steps after each of its updates."""

    Spec = SILSpec
    imitates = True
    has_critic = True
    unused_net_keys = TARGET_KEYS
    logs = ActorCritic.logs
    remembers = False

    def __init__(self, spec: SILSpec, plan: NetPlan, spaces: Spaces, key: Key) -> None:
        super().__init__(key)
        self.spec = spec
        self.inner = ActorCritic(spec, plan, spaces, key)
        self.learner, self.actor, self.nets = self.inner.learner, self.inner.actor, self.inner.nets
        self.optim, self.notes, self.rng = self.inner.optim, self.inner.notes, self.inner.rng
        self.step = imitation_step(spec, self.learner)
        self.programs = (*self.inner.programs, self.step)

    @classmethod
    def settle(cls, spec: Any, num_envs: int, unit: str, batch_size: int | None) -> Any:
        return ActorCritic.settle(spec, num_envs, unit, batch_size)

    def cadence(self, unit: Literal["step", "frame", "episode"]) -> Cadence:
        return self.inner.cadence(unit)

    def workload(self, num_envs: int, batch_size: int) -> Workload:
        return workload(self.spec, self.inner, num_envs)

    def update(self, memory: Lessons, frame: int) -> Metrics:
        return learn(self.spec, self.inner, self.step, memory, frame)

    def state_dict(self) -> State:
        return self.inner.state_dict()

    def load_state_dict(self, state: State) -> None:
        self.inner.load_state_dict(state)
