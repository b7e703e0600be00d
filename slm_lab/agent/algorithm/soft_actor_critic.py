"""Soft actor-critic (Haarnoja et al. 2018), for continuous and discrete actions (Christodoulou 2019)."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from slm_lab.agent.algorithm.base import Algorithm, Key, NetPlan, Workload
from slm_lab.agent.algorithm.soft import SoftSpec
from slm_lab.agent.algorithm.soft_learning import SEPARATE, SoftLearner, settled, workload
from slm_lab.agent.net.target import Target, polyak_note
from slm_lab.lib.noise import Noise
from slm_lab.types import Batch, Cadence, Lessons, Metrics, Spaces


class SoftActorCritic(Algorithm):
    """The values of what follows come from target critics."""

    Spec = SoftSpec
    memory_kind = "replay"
    actions = ("discrete", "continuous")
    has_critic = True
    takes_critic_net = True
    unused_net_keys = SEPARATE
    logs = ("alpha", "entropy")

    def __init__(self, spec: SoftSpec, plan: NetPlan, spaces: Spaces, key: Key) -> None:
        super().__init__(key)
        self.spec = spec
        self.learner = SoftLearner(spec, plan, spaces, key, self.rng, self.values)
        self.actor, self.optim, self.programs = self.learner.actor, self.learner.optim, self.learner.programs
        self.target = Target(self.learner.critics, plan.critic or plan.actor)
        self.nets = nn.ModuleDict({"soft": self.learner, "target": self.target})
        self.notes = [*self.learner.notes, *polyak_note(plan.critic or plan.actor)]

    @classmethod
    def settle(cls, spec: Any, num_envs: int, unit: str, batch_size: int | None) -> Any:
        return settled(spec, num_envs, batch_size)

    def cadence(self, unit: Literal["step", "frame", "episode"]) -> Cadence:
        return Cadence(self.spec.training_frequency, unit, self.spec.training_start_step or 0)

    def workload(self, num_envs: int, batch_size: int) -> Workload:
        return workload(self.spec, num_envs, batch_size)

    def update(self, memory: Lessons, frame: int) -> Metrics:
        return self.learner.update(self.target, memory, frame)

    def values(self, batch: Batch, alpha: float | Tensor, noise: Noise) -> tuple[Tensor, Tensor, Tensor]:
        """(q1, q2, target) of a batch, [B] each; the target without gradient."""
        learner, critics = self.learner, self.learner.critics
        with torch.no_grad():
            choice = learner.policy(batch.next_obs, noise)
            next_q = critics.agreed(*self.target.net(batch.next_obs, choice.action))
            target = learner.target(batch, choice, next_q, alpha)
        with learner.critic_mode.training():
            q1, q2 = critics(batch.obs, batch.action)
        return critics.of(q1, batch.action), critics.of(q2, batch.action), target
