"""Proximal policy optimisation (Schulman et al. 2017)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from slm_lab.agent.algorithm.actor import ActorCriticLearner
from slm_lab.agent.algorithm.base import TARGET_KEYS, Algorithm, Key, NetPlan, PolicyGradientSpec, Workload
from slm_lab.agent.algorithm.losses import (
    PercentileScale,
    TargetScale,
    clipped_surrogate,
    clipped_value_loss,
    mean_loss,
    standardize,
    symlog,
)
from slm_lab.agent.algorithm.returns import gae
from slm_lab.agent.algorithm.stretches import cut, lesson
from slm_lab.agent.net.gradient_step import GradientStep, Losses
from slm_lab.agent.net.optim import make_loss
from slm_lab.lib.errors import SpecError
from slm_lab.lib.noise import Noise
from slm_lab.spec.parse import Float, Int
from slm_lab.spec.schema import Schedule
from slm_lab.types import Array, Batch, Cadence, Lessons, Metrics, Spaces


class PPOSpec(PolicyGradientSpec):
    """Clipped policy updates over minibatches of a rollout."""

    inert: ClassVar = {
        "clip_val_loss": "nothing reads it; the key for value clipping is clip_vloss",
        "training_frequency": "PPO updates every time_horizon",
    }

    lam: Float = Field(ge=0, le=1, description="GAE's lambda")
    clip_eps_spec: Schedule = Field(description="clip range of the probability ratio over frames")
    val_loss_coef: Float = Field(1.0, ge=0, description="factor on the value loss")
    time_horizon: Int = Field(
        ge=1, description="vector steps of a rollout: batch = time_horizon * num_envs; episodes with OnPolicyReplay"
    )
    num_unrolls: Int = Field(1, ge=1, description="rollouts of time_horizon collected for one update")
    minibatch_size: Int = Field(
        4,
        ge=1,
        description="rows of a gradient step, of whole sequences where nets are recurrent; the last may be fewer",
    )
    training_epoch: Int = Field(ge=1, description="passes over the batch")
    critic_training_epoch: Int | None = Field(
        None, ge=1, description="passes of the value loss, where not training_epoch"
    )
    normalize_advantages: Literal["standardize", "batch", "percentile", "none"] = Field(
        "standardize", description="per minibatch, once per batch, by a running 5-95 percentile range, or not"
    )
    recompute_adv: bool = Field(False, description="recompute values and advantages before each epoch")
    normalize_v_targets: bool = Field(
        False, description="divide values and targets by the running deviation of targets in the loss"
    )
    clip_vloss: bool = Field(False, description="clip value changes by clip_eps too")
    symlog: bool = Field(False, description="compress values and targets by sign(x) ln(1 + |x|) in the loss")


MOVES = ("approx_kl", "clip_fraction")
PASSES = {(True, True): "ppo", (True, False): "ppo-policy", (False, True): "ppo-value"}


class PPO(Algorithm):
    """Collect a rollout, estimate advantages, then several epochs of clipped minibatch steps."""

    Spec = PPOSpec
    has_critic = True
    unused_net_keys = TARGET_KEYS
    logs = ("entropy", "clip_eps")

    def __init__(self, spec: PPOSpec, plan: NetPlan, spaces: Spaces, key: Key) -> None:
        super().__init__(key)
        self.spec = spec
        self.learner = ActorCriticLearner(spec, plan, spaces, key)
        self.actor = self.learner.actor
        self.notes, self.optim = self.learner.notes, self.learner.optim
        self.v_scale, self.adv_scale = TargetScale(), PercentileScale()
        self.nets = nn.ModuleDict({"net": self.learner.net, "v_scale": self.v_scale, "adv_scale": self.adv_scale})
        self.value_loss = make_loss((plan.critic or plan.actor).loss_spec)
        # by whether policy and value learn: where their epochs differ, the later ones are of one alone
        self.steps = {on: self._step(*on) for on in dict.fromkeys(map(self._learning, range(self.epochs)))}
        self.programs = (*self.steps.values(), self.actor)

    @classmethod
    def settle(cls, spec: PPOSpec, num_envs: int, unit: str, batch_size: int | None) -> PPOSpec:
        rows = spec.time_horizon * spec.num_unrolls * num_envs
        if unit == "step" and spec.minibatch_size > rows:
            raise SpecError(
                f"agent.algorithm.minibatch_size: {spec.minibatch_size} is larger than the batch: "
                f"time_horizon * num_unrolls * num_envs = {rows}."
            )
        return spec

    def cadence(self, unit: Literal["step", "frame", "episode"]) -> Cadence:
        return Cadence(self.spec.time_horizon * self.spec.num_unrolls, unit)

    def workload(self, num_envs: int, batch_size: int) -> Workload:
        rows, spec = self.cadence("step").every * num_envs, self.spec
        return Workload(self.epochs * math.ceil(rows / spec.minibatch_size) / rows, spec.minibatch_size)

    def update(self, memory: Lessons, frame: int) -> Metrics:
        spec, learner = self.spec, self.learner
        rollout = memory.sample().to(learner.device)
        flat = rollout.flat()
        log_prob, value = learner.judged(flat)
        flat = flat.with_extra(log_prob=log_prob)
        clip_eps = spec.clip_eps_spec(frame)
        entropy_coef = spec.entropy_coef_spec(frame) if spec.entropy_coef_spec else 0.0
        learner.optim.set_lr(frame)
        knobs = {"clip_eps": clip_eps, "entropy_coef": entropy_coef}
        losses, entropies, last = list[float](), list[Tensor](), list[dict[str, Tensor]]()
        batch = self._with_targets(rollout, flat, value)
        for epoch in range(self.epochs):
            if epoch and spec.recompute_adv:
                batch = self._with_targets(rollout, flat, learner.values(flat.obs))
            learning = self._learning(epoch)
            step = self.steps[learning]
            with learner.training():
                found = [step(rows, self.rng.noise, **knobs) for rows in self._minibatches(batch, rollout.ended)]
            losses += step.losses()
            entropies += [one["entropy"] for one in found]
            last = found if learning[0] else last  # of the policy's last pass
        return {
            "loss": mean_loss(losses),
            "opt_steps": len(losses),
            "entropy": torch.stack(entropies).mean().item(),
            "clip_eps": clip_eps,
            **{name: torch.stack([one[name] for one in last]).mean().item() for name in MOVES},
            "explained_variance": _explained(batch.extra["v_target"], batch.extra["value"]),
        }

    def _with_targets(self, rollout: Batch, flat: Batch, flat_value: Array) -> Batch:
        """The flat batch with advantages, value targets and the values they came from."""
        value = flat_value.reshape(rollout.reward.shape)
        adv = gae(
            rollout.reward.cpu().numpy(),
            value,
            self.learner.values.of_successors(rollout, value),
            rollout.terminated.cpu().numpy(),
            rollout.ended.cpu().numpy(),
            self.spec.gamma,
            self.spec.lam,
        )
        to = self.learner.device
        flat_adv = torch.from_numpy(adv.astype(np.float32)).flatten().to(to)
        old_value = torch.from_numpy(value).flatten().to(to)
        target = flat_adv + old_value
        if self.spec.normalize_v_targets:
            self.v_scale.update(target)
        if self.spec.normalize_advantages == "batch":
            flat_adv = standardize(flat_adv)
        return flat.with_extra(adv=flat_adv, v_target=target, value=old_value)

    def _minibatches(self, batch: Batch, ended: Tensor) -> Iterator[Batch]:
        """Disjoint minibatches of one epoch: views of one gathered batch, which costs less than a gather each."""
        size, length = self.spec.minibatch_size, self.learner.length
        if length is not None:
            yield from self._stretches(batch, ended, length, max(1, size // length))
            return
        index = self._shuffled(len(batch)).to(batch.reward.device)
        yield from batch.map(lambda x: x.index_select(0, index)).split(size)

    def _stretches(self, batch: Batch, ended: Tensor, length: int, size: int) -> Iterator[Batch]:
        """Disjoint minibatches of `size` stretches each."""
        cuts = cut(ended, length)
        order = self._shuffled(cuts.count).to(ended.device)
        for start in range(0, len(order), size):
            yield lesson(batch, cuts, order[start : start + size])

    def _shuffled(self, count: int) -> Tensor:
        return torch.randperm(count, generator=self.rng.torch)

    @property
    def epochs(self) -> int:
        return max(self.spec.training_epoch, self.spec.critic_training_epoch or 0)

    def _learning(self, epoch: int) -> tuple[bool, bool]:
        """Whether policy and value learn in an epoch."""
        return epoch < self.spec.training_epoch, epoch < (self.spec.critic_training_epoch or self.spec.training_epoch)

    def _step(self, policy: bool, value: bool) -> GradientStep:
        loss, nets = partial(self.loss, policy, value), self.learner.steps_for(policy, value)
        return GradientStep(PASSES[policy, value], loss, self.learner.optim, nets)

    def loss(self, policy: bool, value: bool, mb: Batch, noise: Noise, clip_eps: float, entropy_coef: float) -> Losses:
        """Named loss terms of one minibatch, its mean entropy, and how far the policy has moved on it."""
        terms, (outputs, v) = {}, self.learner.net(mb.obs)
        dist = self.learner.dist(outputs)
        entropy = dist.entropy(noise).mean()
        found = {"entropy": entropy.detach()}
        if policy:
            adv, log_prob, old = self._scaled(mb.extra["adv"]), dist.log_prob(mb.action), mb.extra["log_prob"]
            terms["policy"] = self.spec.policy_loss_coef * clipped_surrogate(log_prob, old, adv, clip_eps)
            found |= moves(log_prob.detach() - old, clip_eps)
            if self.spec.entropy_coef_spec is not None:
                terms["entropy"] = -entropy_coef * entropy
        if value:
            terms["value"] = self.spec.val_loss_coef * self._value_loss(v, mb, clip_eps)
        return terms, found

    def _scaled(self, adv: Tensor) -> Tensor:
        if self.spec.normalize_advantages == "standardize":
            return standardize(adv)
        return self.adv_scale(adv) if self.spec.normalize_advantages == "percentile" else adv

    def _value_loss(self, value: Tensor, mb: Batch, clip_eps: float) -> Tensor:
        old, target = mb.extra["value"], mb.extra["v_target"]
        if self.spec.normalize_v_targets:
            scale = self.v_scale()
            value, old, target = value / scale, old / scale, target / scale
        if self.spec.symlog:
            value, old, target = symlog(value), symlog(old), symlog(target)
        if self.spec.clip_vloss:
            return clipped_value_loss(value, old, target, clip_eps)
        loss: Tensor = self.value_loss(value, target)
        return loss


def moves(log_ratio: Tensor, clip_eps: float) -> dict[str, Tensor]:
    """How far a policy is from the one that acted, by log pi - log pi_old [B]: MOVES."""
    ratio = log_ratio.exp()
    kl, outside = ratio - 1 - log_ratio, (ratio - 1).abs() > clip_eps
    return dict(zip(MOVES, (kl.mean(), outside.float().mean()), strict=True))


def _explained(target: Tensor, value: Tensor) -> float:
    """The part of the variance of targets [B] that values [B] explained; NaN where they do not vary."""
    spread = target.var()
    return (1 - (target - value).var() / spread).item() if spread > 0 else math.nan
