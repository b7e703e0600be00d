"""Q-learning from a replay memory: what VanillaDQN, DQN and DoubleDQN do alike. They value what follows differently."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from slm_lab.agent.algorithm.base import AlgorithmSpec, Workload
from slm_lab.agent.algorithm.losses import mean_loss, taken, td_target, weighted_mean
from slm_lab.agent.algorithm.value import ValueLearner, check_explore_var
from slm_lab.agent.net.gradient_step import GradientStep, Losses
from slm_lab.agent.net.obs_net import ObsNet
from slm_lab.agent.net.target import Target
from slm_lab.lib.noise import Noise
from slm_lab.spec.parse import Float, Int
from slm_lab.types import Batch, Lessons, Metrics

NextValue = Callable[[Any], Tensor]  # observations that followed [B, ...] -> what they are worth [B]


class QLearningSpec(AlgorithmSpec):
    """Action values learnt from replayed transitions."""

    action_pdtype: str | None = Field("Argmax", description="Argmax, or Categorical for boltzmann")
    action_policy: str = Field("epsilon_greedy", description="epsilon_greedy, boltzmann, random or default (sample)")
    gamma: Float = Field(ge=0, le=1, description="discount")
    training_frequency: Int = Field(
        ge=1, description="frames between updates; one a vector step at most, so less than num_envs means every step"
    )
    training_iter: Int = Field(1, ge=1, description="batches drawn for an update")
    training_batch_iter: Int = Field(1, ge=1, description="gradient steps on each batch")
    training_start_step: Int | None = Field(
        None, ge=0, description="transitions stored before the first update; unset: the memory's batch_size"
    )


def settled(spec: QLearningSpec, batch_size: int | None) -> QLearningSpec:
    """The spec with its default that depends on the memory."""
    check_explore_var(spec)
    if spec.training_start_step is not None or batch_size is None:
        return spec
    return spec.model_copy(update={"training_start_step": batch_size})


def workload(spec: QLearningSpec, num_envs: int, batch_size: int) -> Workload:
    return Workload(spec.training_iter * spec.training_batch_iter / max(spec.training_frequency, num_envs), batch_size)


def q_step(name: str, spec: QLearningSpec, learner: ValueLearner, next_value: NextValue) -> GradientStep:
    """A step towards r + gamma V(s'), which also finds out how wrong each row was."""

    def loss(batch: Batch, noise: Noise) -> Losses:
        target = bootstrap(batch, next_value, spec.gamma)
        with learner.training():
            value = taken(learner.net(batch.obs)[0], batch.action)
        weight = batch.extra.get("weight")
        # the first is the same mean in fewer operations
        mean = learner.loss(value, target) if weight is None else weighted_mean(learner.row_loss(value, target), weight)
        return {"value": mean}, {"error": target - value.detach()}

    return GradientStep(name, loss, learner.optim)


@torch.no_grad()
def bootstrap(batch: Batch, next_value: NextValue, gamma: float) -> Tensor:
    """What the values of a batch step towards, [B]."""
    return td_target(batch.reward, batch.terminated, next_value(batch.next_obs), gamma)


def learn(
    spec: QLearningSpec,
    learner: ValueLearner,
    step: GradientStep,
    target: Target[ObsNet] | None,
    memory: Lessons,
    frame: int,
    noise: Noise,
) -> Metrics:
    """Draw batches, step, tell the memory the errors; a target net follows."""
    learner.optim.set_lr(frame)
    for _ in range(spec.training_iter):
        batch = memory.sample().to(learner.device)
        for _ in range(spec.training_batch_iter):
            memory.feedback(batch, step(batch, noise)["error"])
            if target is not None:
                target.stepped()
    if target is not None:
        target.passed(frame)
    losses = step.losses()
    return {
        "loss": mean_loss(losses),
        "opt_steps": len(losses),
        "explore_var": spec.explore_var_spec(frame) if spec.explore_var_spec else math.nan,
    }
