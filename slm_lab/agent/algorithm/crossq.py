"""CrossQ (Bhatt et al. 2024): soft actor-critic without target nets; batch renormalisation takes their place."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from slm_lab.agent.algorithm.base import TARGET_KEYS, Algorithm, Key, NetPlan, Workload
from slm_lab.agent.algorithm.joined import joined_obs
from slm_lab.agent.algorithm.soft import SoftSpec
from slm_lab.agent.algorithm.soft_learning import SEPARATE, SoftLearner, settled, workload
from slm_lab.agent.net.batch_renorm import BatchRenorm1d
from slm_lab.lib.noise import Noise
from slm_lab.types import Batch, Cadence, Lessons, Metrics, Spaces

NO_NORM = "agent.critic_net: without batch_renorm nothing takes the place of target nets; expect it to diverge."


class CrossQ(Algorithm):
    """States and what follows them pass the critics as one batch, so that norms see both alike."""

    Spec = SoftSpec
    memory_kind = "replay"
    actions = ("discrete", "continuous")
    has_critic = True
    takes_critic_net = True
    unused_net_keys = SEPARATE | TARGET_KEYS
    logs = ("alpha", "entropy")
    remembers = False

    def __init__(self, spec: SoftSpec, plan: NetPlan, spaces: Spaces, key: Key) -> None:
        super().__init__(key)
        self.spec = spec
        self.learner = SoftLearner(spec, plan, spaces, key, self.rng, self.values)
        self.actor, self.optim, self.programs = self.learner.actor, self.learner.optim, self.learner.programs
        self.nets = nn.ModuleDict({"soft": self.learner})
        renorm = any(isinstance(module, BatchRenorm1d) for module in self.learner.critics.modules())
        self.notes = [*self.learner.notes, *([] if renorm else [NO_NORM])]

    @classmethod
    def settle(cls, spec: Any, num_envs: int, unit: str, batch_size: int | None) -> Any:
        return settled(spec, num_envs, batch_size)

    def cadence(self, unit: Literal["step", "frame", "episode"]) -> Cadence:
        return Cadence(self.spec.training_frequency, unit, self.spec.training_start_step or 0)

    def workload(self, num_envs: int, batch_size: int) -> Workload:
        return workload(self.spec, num_envs, batch_size)

    def update(self, memory: Lessons, frame: int) -> Metrics:
        return self.learner.update(None, memory, frame)

    def values(self, batch: Batch, alpha: float | Tensor, noise: Noise) -> tuple[Tensor, Tensor, Tensor]:
        """(q1, q2, target) of a batch, [B] each; the target without gradient."""
        learner, critics = self.learner, self.learner.critics
        with torch.no_grad():
            choice = learner.policy(batch.next_obs, noise)
        action = None if choice.action is None else torch.cat([batch.action, choice.action])
        with learner.critic_mode.training():
            both = critics(joined_obs(batch.obs, batch.next_obs), action)
        (q1, next_q1), (q2, next_q2) = (q.chunk(2) for q in both)
        target = learner.target(batch, choice, critics.agreed(next_q1.detach(), next_q2.detach()), alpha)
        return critics.of(q1, batch.action), critics.of(q2, batch.action), target
