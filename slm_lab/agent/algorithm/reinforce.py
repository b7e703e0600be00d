"""REINFORCE (Williams 1992) on whole episodes."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn

from slm_lab.agent.algorithm.actor import ActorCriticLearner
from slm_lab.agent.algorithm.base import TARGET_KEYS, Algorithm, Key, NetPlan, PolicyGradientSpec
from slm_lab.agent.algorithm.losses import policy_gradient, standardize
from slm_lab.agent.algorithm.returns import episode_returns
from slm_lab.agent.net.gradient_step import GradientStep, Losses
from slm_lab.lib.noise import Noise
from slm_lab.spec.parse import Int
from slm_lab.types import Batch, Cadence, Lessons, Metrics, Spaces


class ReinforceSpec(PolicyGradientSpec):
    """Policy gradient with Monte-Carlo returns, standardised over the batch."""

    inert: ClassVar = {}

    training_frequency: Int = Field(
        ge=1, description="episodes (OnPolicyReplay) or vector steps (OnPolicyBatchReplay) between updates"
    )
    center_return: bool = Field(
        False, description="subtract the batch mean first; standardising does the same, kept for its meaning"
    )


class Reinforce(Algorithm):
    """One gradient step on the finished episodes of a batch; unfinished ones wait for the next."""

    Spec = ReinforceSpec
    whole_episodes = True
    unused_net_keys = TARGET_KEYS | dict.fromkeys(
        ("shared", "use_same_optim", "loss_spec", "critic_init_std"), "there is no critic"
    )
    logs = ("entropy_coef", "entropy")

    def __init__(self, spec: ReinforceSpec, plan: NetPlan, spaces: Spaces, key: Key) -> None:
        super().__init__(key)
        self.spec = spec
        self.learner = ActorCriticLearner(spec, plan, spaces, key)
        self.actor = self.learner.actor
        self.notes, self.optim = self.learner.notes, self.learner.optim
        self.nets = nn.ModuleDict({"net": self.learner.net})
        self.step = GradientStep("reinforce", self.loss, self.learner.optim)
        self.programs = (self.step, self.actor)

    def cadence(self, unit: Literal["step", "frame", "episode"]) -> Cadence:
        return Cadence(self.spec.training_frequency, unit)

    def update(self, memory: Lessons, frame: int) -> Metrics:
        spec, learner = self.spec, self.learner
        rollout = memory.sample().to(learner.device)
        returns = episode_returns(rollout.reward.cpu().numpy(), rollout.ended.cpu().numpy(), spec.gamma)
        adv = torch.from_numpy(returns.astype(np.float32)).flatten().to(learner.device)
        if spec.center_return:
            adv = adv - adv.mean()
        batch = learner.whole(rollout.flat().with_extra(adv=standardize(adv)), rollout.ended)
        entropy_coef = spec.entropy_coef_spec(frame) if spec.entropy_coef_spec else 0.0
        learner.optim.set_lr(frame)
        with learner.training():
            found = self.step(batch, self.rng.noise, entropy_coef=entropy_coef)
        return {
            "loss": self.step.losses()[0],
            "opt_steps": 1,
            "entropy": found["entropy"].item(),
            "entropy_coef": entropy_coef,
        }

    def loss(self, batch: Batch, noise: Noise, entropy_coef: float) -> Losses:
        """Named loss terms of the batch, and its mean entropy."""
        dist = self.learner.dist(self.learner.net.policy(batch.obs))
        entropy = dist.entropy(noise).mean()
        surrogate = policy_gradient(dist.log_prob(batch.action), batch.extra["adv"])
        terms = {"policy": self.spec.policy_loss_coef * surrogate}
        if self.spec.entropy_coef_spec is not None:
            terms["entropy"] = -entropy_coef * entropy
        return terms, {"entropy": entropy.detach()}
