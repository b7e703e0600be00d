"""Advantage actor-critic: A2C, and A3C where meta.distributed says so."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from slm_lab.agent.algorithm.actor import ActorCriticLearner
from slm_lab.agent.algorithm.base import TARGET_KEYS, Algorithm, Key, NetPlan, PolicyGradientSpec, Workload
from slm_lab.agent.algorithm.losses import PercentileScale, TargetScale, policy_gradient, standardize
from slm_lab.agent.algorithm.returns import bootstrapped_returns, gae
from slm_lab.agent.net.gradient_step import GradientStep, Losses
from slm_lab.agent.net.optim import make_loss
from slm_lab.lib.errors import SpecError
from slm_lab.lib.noise import Noise
from slm_lab.spec.parse import Float, Int
from slm_lab.types import Batch, Cadence, Lessons, Metrics, Spaces


class ActorCriticSpec(PolicyGradientSpec):
    """One policy step a batch, with a learnt value as baseline and bootstrap."""

    inert: ClassVar = {}

    lam: Float | None = Field(None, ge=0, le=1, description="GAE's lambda; null for n-step or plain returns")
    num_step_returns: Int | None = Field(
        None, ge=1, description="with lam null: n-step returns, and an update every n vector steps"
    )
    training_frequency: Int | None = Field(
        None, ge=1, description="vector steps of a batch; episodes with OnPolicyReplay"
    )
    val_loss_coef: Float = Field(1.0, ge=0, description="factor on the value loss")
    normalize_advantages: Literal["standardize", "batch", "percentile", "none"] = Field(
        "standardize",
        description="standardize or batch: over the batch; percentile: by a running 5-95 percentile range; none",
    )
    normalize_v_targets: bool = Field(
        False, description="divide values and targets by the running deviation of targets in the loss"
    )
    critic_training_epoch: Int = Field(
        1, ge=1, description="passes of the value loss over a batch; the policy takes one"
    )


class ActorCritic(Algorithm):
    """Advantages from GAE, n-step or plain returns; one joint step, then further value passes where asked."""

    Spec = ActorCriticSpec
    has_critic = True
    unused_net_keys = TARGET_KEYS
    logs = ("entropy_coef", "entropy")

    def __init__(self, spec: ActorCriticSpec, plan: NetPlan, spaces: Spaces, key: Key) -> None:
        super().__init__(key)
        self.spec = spec
        self.learner = ActorCriticLearner(spec, plan, spaces, key)
        self.actor = self.learner.actor
        self.notes, self.optim = self.learner.notes, self.learner.optim
        self.v_scale, self.adv_scale = TargetScale(), PercentileScale()
        self.nets = nn.ModuleDict({"net": self.learner.net, "v_scale": self.v_scale, "adv_scale": self.adv_scale})
        self.value_loss = make_loss((plan.critic or plan.actor).loss_spec)
        critic = self.learner.steps_for(policy=False, value=True)
        self.step = GradientStep("a2c", self.loss, self.learner.optim)
        self.value_step = GradientStep("a2c-value", self.critic_loss, self.learner.optim, critic)
        further = [self.value_step] if spec.critic_training_epoch > 1 else []
        self.programs = (self.step, *further, self.learner.values, self.actor)

    @classmethod
    def settle(cls, spec: ActorCriticSpec, num_envs: int, unit: str, batch_size: int | None) -> ActorCriticSpec:
        if spec.training_frequency is None and (spec.lam is not None or spec.num_step_returns is None):
            raise SpecError(
                "agent.algorithm.training_frequency: missing key (required unless num_step_returns sets it)."
            )
        return spec

    def cadence(self, unit: Literal["step", "frame", "episode"]) -> Cadence:
        n_step = self.spec.num_step_returns if self.spec.lam is None else None
        return Cadence(n_step or self.spec.training_frequency or 1, unit)

    def workload(self, num_envs: int, batch_size: int) -> Workload:
        rows = self.cadence("step").every * num_envs
        return Workload(self.spec.critic_training_epoch / rows, rows)

    def update(self, memory: Lessons, frame: int) -> Metrics:
        spec, learner = self.spec, self.learner
        rollout = memory.sample().to(learner.device)
        batch = learner.whole(self._with_targets(rollout, rollout.flat()), rollout.ended)
        entropy_coef = spec.entropy_coef_spec(frame) if spec.entropy_coef_spec else 0.0
        learner.optim.set_lr(frame)
        with learner.training():
            found = self.step(batch, self.rng.noise, entropy_coef=entropy_coef)
            for _ in range(spec.critic_training_epoch - 1):
                self.value_step(batch, self.rng.noise)
        (loss,) = self.step.losses()
        self.value_step.losses()
        return {
            "loss": loss,
            "opt_steps": spec.critic_training_epoch,
            "entropy": found["entropy"].item(),
            "entropy_coef": entropy_coef,
        }

    def _with_targets(self, rollout: Batch, flat: Batch) -> Batch:
        """The flat batch with advantages and value targets."""
        spec = self.spec
        value, next_value = self.learner.values.of_rollout(rollout)
        reward, terminated, ended = (x.cpu().numpy() for x in (rollout.reward, rollout.terminated, rollout.ended))
        if spec.lam is not None:
            adv = gae(reward, value, next_value, terminated, ended, spec.gamma, spec.lam)
            target = adv + value
        else:
            target = bootstrapped_returns(reward, next_value, terminated, ended, spec.gamma)
            adv = target - value
        flat_adv, v_target = (
            torch.from_numpy(x.astype(np.float32)).flatten().to(self.learner.device) for x in (adv, target)
        )
        if spec.normalize_v_targets:
            self.v_scale.update(v_target)
        return flat.with_extra(adv=self._scaled(flat_adv), v_target=v_target)

    def _scaled(self, adv: Tensor) -> Tensor:
        if self.spec.normalize_advantages == "percentile":
            return self.adv_scale(adv)  # type: ignore[no-any-return]
        return adv if self.spec.normalize_advantages == "none" else standardize(adv)

    def loss(self, batch: Batch, noise: Noise, entropy_coef: float) -> Losses:
        """Named loss terms of the batch, and its mean entropy."""
        outputs, value = self.learner.net(batch.obs)
        dist = self.learner.dist(outputs)
        entropy = dist.entropy(noise).mean()
        terms = {
            "policy": self.spec.policy_loss_coef * policy_gradient(dist.log_prob(batch.action), batch.extra["adv"]),
            "value": self._value_loss(value, batch),
        }
        if self.spec.entropy_coef_spec is not None:
            terms["entropy"] = -entropy_coef * entropy
        return terms, {"entropy": entropy.detach()}

    def critic_loss(self, batch: Batch, noise: Noise) -> Losses:
        """The value loss alone."""
        return {"value": self._value_loss(self.learner.net.value(batch.obs), batch)}, {}

    def _value_loss(self, value: Tensor, batch: Batch) -> Tensor:
        scale = self.v_scale() if self.spec.normalize_v_targets else 1.0
        loss: Tensor = self.spec.val_loss_coef * self.value_loss(value / scale, batch.extra["v_target"] / scale)
        return loss
