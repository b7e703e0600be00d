"""Maximum-entropy learning from a replay memory: what SoftActorCritic and CrossQ do alike.

They differ in where the values of what follows come from.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from slm_lab.agent.algorithm.acting import NetActor
from slm_lab.agent.algorithm.base import Key, NetPlan, Workload, resolve_device
from slm_lab.agent.algorithm.losses import mean_loss, symlog, td_target, weighted_mean
from slm_lab.agent.algorithm.soft import (
    Choice,
    SoftPolicy,
    SoftSpec,
    Temperature,
    TwinCritic,
    decide,
    soft_groups,
    soft_notes,
)
from slm_lab.agent.algorithm.value import check_explore_var
from slm_lab.agent.net.gradient_step import GradientStep, Losses
from slm_lab.agent.net.modes import Modes
from slm_lab.agent.net.obs_net import mask_in
from slm_lab.agent.net.optim import Optim, make_loss
from slm_lab.agent.net.target import Target
from slm_lab.lib.errors import SpecError
from slm_lab.lib.noise import Noise
from slm_lab.lib.rng import Consumer, Rng, seed_of
from slm_lab.types import Batch, Lessons, Metrics, Spaces

Values = Callable[[Batch, float | Tensor, Noise], tuple[Tensor, Tensor, Tensor]]
"""Batch, alpha, noise -> q1, q2 and their target, [B] each."""
SEPARATE = dict.fromkeys(("shared", "use_same_optim"), "policy and critics are always apart")
"""Net keys that mean nothing to algorithms whose nets are apart."""


def settled(spec: SoftSpec, num_envs: int, batch_size: int | None) -> SoftSpec:
    """The spec with its defaults that depend on the number of envs and on the memory."""
    if spec.log_alpha_min > spec.log_alpha_max:
        got = f"{spec.log_alpha_min} is above log_alpha_max, {spec.log_alpha_max}"
        raise SpecError(f"agent.algorithm.log_alpha_min: {got}.")
    check_explore_var(spec)
    start = max(1000, batch_size or 0) if spec.training_start_step is None else spec.training_start_step
    return spec.model_copy(update={"training_iter": spec.training_iter or num_envs, "training_start_step": start})


def workload(spec: SoftSpec, num_envs: int, batch_size: int) -> Workload:
    each = (spec.training_iter or num_envs) * (1 + 1 / spec.policy_delay)
    return Workload(each / max(spec.training_frequency, num_envs), batch_size)


class SoftLearner(nn.Module):
    """Policy, twin critics and temperature with their optimiser.

    Each iteration the critics step towards r + gamma V(s'); now and then policy and temperature step too.
    """

    def __init__(self, spec: SoftSpec, plan: NetPlan, spaces: Spaces, key: Key, rng: Rng, values: Values) -> None:
        super().__init__()
        critic = plan.critic or plan.actor
        self.spec, self.rng, self.device = spec, rng, resolve_device(plan.actor.gpu)
        with torch.random.fork_rng():
            torch.manual_seed(seed_of(*key, Consumer.INIT))
            self.policy = SoftPolicy(spec, plan.actor, spaces).to(self.device)
            self.critics = TwinCritic(spec, critic, spaces).to(self.device)
        self.temperature = Temperature(spec, spaces).to(self.device)
        self.register_buffer("iterations", torch.zeros((), dtype=torch.int64))
        self.register_buffer("entropy", torch.full((), math.nan))  # of the policy, when it last stepped
        self.iterations: Tensor
        self.entropy: Tensor
        self.policy_mode, self.critic_mode = Modes(self.policy), Modes(self.critics)
        self.optim: Optim = Optim(soft_groups(self.policy, self.critics, self.temperature, plan))
        self.value_loss = make_loss(critic.loss_spec, "none")
        self.actor = NetActor(
            self.policy.policy,
            partial(decide, self.policy, self.critics),
            self.device,
            self.policy.net.hidden | self.critics.hidden,
            spec.explore_var_spec,
            random_until=spec.training_start_step or 0,
            stores_env=True,
        )
        self.notes = soft_notes(spec, spaces)
        stepped = ("actor", "alpha") if self.temperature.learnt else ("actor",)
        self.critic_step = GradientStep("critics", partial(self.critic_loss, values), self.optim, ("q1", "q2"))
        self.policy_step = GradientStep("policy", self.policy_loss, self.optim, stepped)
        self.programs = (self.critic_step, self.policy_step, self.actor)

    def update(self, target: Target[TwinCritic] | None, memory: Lessons, frame: int) -> Metrics:
        """Iterations on batches of a memory; a target net follows."""
        alpha, share = self.temperature.given(frame), self.spec.entropy_anneal(frame)
        self.optim.set_lr(frame)
        for _ in range(self.spec.training_iter or 1):
            batch = memory.sample().to(self.device)
            memory.feedback(batch, self.critic_step(batch, self.rng.noise, alpha=alpha)["error"])
            if target is not None:
                target.stepped()
            self.iterations += 1
            if self.iterations.item() % self.spec.policy_delay == 0:
                found = self.policy_step(batch, self.rng.noise, alpha=alpha, share=share)
                self.entropy.copy_(found["entropy"])
        if target is not None:
            target.passed(frame)
        losses = self.critic_step.losses()
        self.policy_step.losses()
        return {
            "loss": mean_loss(losses),
            "opt_steps": len(losses),
            "alpha": float(self.temperature.alpha(alpha)),
            "entropy": self.entropy.item(),
        }

    def target(self, batch: Batch, choice: Choice, next_q: Tensor, alpha: float | Tensor) -> Tensor:
        """r + gamma (E[Q] + alpha H) of what follows, [B]."""
        value = choice.expect(next_q) + alpha * choice.entropy
        return td_target(batch.reward, batch.terminated, value, self.spec.gamma)

    def critic_loss(self, values: Values, batch: Batch, noise: Noise, alpha: float) -> Losses:
        """How far both critics are from their target; how far the lower one of each row is."""
        q1, q2, target = values(batch, self.temperature.alpha(alpha), noise)
        terms = {name: self.distance(q, target, batch.extra.get("weight")) for name, q in (("q1", q1), ("q2", q2))}
        return terms, {"error": torch.min(q1, q2).detach() - target}

    def distance(self, value: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        if self.spec.symlog:
            value, target = symlog(value), symlog(target)
        return weighted_mean(self.value_loss(value, target), weight)

    def policy_loss(self, batch: Batch, noise: Noise, alpha: float, share: float) -> Losses:
        """What the policy's choices lack in value and entropy; how far the temperature is off. And the entropy."""
        with self.policy_mode.training():
            choice = self.policy(batch.obs, noise)
        with torch.set_grad_enabled(not self.policy.discrete):  # values of all actions do not depend on the choice
            q = self.critics.agreed(*self.critics(batch.obs, choice.action))
        entropy = choice.entropy
        terms = {"policy": -(choice.expect(q) + self.temperature.alpha(alpha) * entropy).mean()}
        if self.spec.entropy_penalty_coef and self.policy.discrete:
            terms["entropy"] = self.spec.entropy_penalty_coef * self.temperature.penalty(entropy)
        if self.temperature.learnt:
            terms["alpha"] = self.temperature.loss(entropy, share, mask_in(batch.obs))
        return terms, {"entropy": entropy.detach().mean()}
