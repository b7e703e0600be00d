"""Self-imitation (Oh et al. 2018): after another algorithm's update, steps towards what once turned out well."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from slm_lab.agent.algorithm.actor import ActorCriticLearner
from slm_lab.agent.algorithm.base import PolicyGradientSpec, Workload
from slm_lab.agent.algorithm.losses import (
    imitation_advantage,
    imitation_policy_loss,
    imitation_value_loss,
    imitation_weight,
)
from slm_lab.agent.algorithm.returns import bootstrapped_returns
from slm_lab.agent.net.gradient_step import GradientStep, Losses
from slm_lab.lib.noise import Noise
from slm_lab.lib.rng import Rng
from slm_lab.spec.parse import Float, Int
from slm_lab.types import Batch, Cadence, Lessons, Metrics, map_obs


class SelfImitationSpec(PolicyGradientSpec):
    """Steps on replayed rows after each update, for those rows that turned out better than the critic expects."""

    sil_policy_loss_coef: Float = Field(ge=0, description="factor on the imitation policy loss and its entropy bonus")
    sil_val_loss_coef: Float = Field(ge=0, description="factor on the imitation value loss, which only raises values")
    training_iter: Int = Field(ge=1, description="replay batches drawn after each update")
    training_batch_iter: Int = Field(1, ge=1, description="gradient steps on each replay batch")
    sil_adv_clip: Float = Field(1.0, gt=0, description="most that a return above its value counts for")
    sil_min_better: Int = Field(
        64, ge=1, description="losses are divided by the number of better rows of a batch, at least by this"
    )
    sil_entropy_coef: Float | None = Field(
        None, ge=0, description="entropy bonus of imitation steps; unset: that of entropy_coef_spec"
    )


class Imitator(Protocol):
    """What imitation needs of the algorithm it is added to."""

    learner: ActorCriticLearner
    rng: Rng

    def cadence(self, unit: Literal["step", "frame", "episode"]) -> Cadence: ...
    def workload(self, num_envs: int, batch_size: int) -> Workload: ...
    def update(self, memory: Lessons, frame: int) -> Metrics: ...


class Past(Lessons, Protocol):
    """Rows of finished episodes, whose reward is the return to go."""

    def extend(self, rows: Batch) -> None: ...
    def __len__(self) -> int: ...


@runtime_checkable
class TwoMemories(Lessons, Protocol):
    """Rollouts for the inner algorithm, and what came of finished episodes."""

    replay: Past

    def finished(self) -> Batch | None: ...


class Step(NamedTuple):
    """What one imitation step came to."""

    loss: float
    adv: float  # mean advantage, as clipped
    better: float  # share of rows whose return is above their value


def workload(spec: SelfImitationSpec, inner: Imitator, num_envs: int) -> Workload:
    own = inner.workload(num_envs, 0)
    rows = inner.cadence("step").every * num_envs
    return Workload(own.steps + spec.training_iter * spec.training_batch_iter / rows, own.rows)


def imitation_step(spec: SelfImitationSpec, learner: ActorCriticLearner) -> GradientStep:
    """A step towards rows that turned out better than expected."""

    def loss(batch: Batch, noise: Noise, entropy_coef: float) -> Losses:
        outputs, value = learner.net(batch.obs)
        dist, ret = learner.dist(outputs), batch.reward
        adv = imitation_advantage(ret, value, spec.sil_adv_clip)
        weight = imitation_weight(adv, batch.extra.get("weight"), spec.sil_min_better)
        terms = {
            "sil_policy": spec.sil_policy_loss_coef * imitation_policy_loss(dist.log_prob(batch.action), adv, weight),
            "sil_value": spec.sil_val_loss_coef * imitation_value_loss(value, adv, weight),
        }
        if spec.sil_entropy_coef is not None or spec.entropy_coef_spec is not None:
            terms["sil_entropy"] = -spec.sil_policy_loss_coef * entropy_coef * (weight * dist.entropy(noise)).sum()
        return terms, {
            "error": (ret - value.detach()).clamp_min(0),
            "adv": adv.mean(),
            "better": (adv > 0).float().mean(),
        }

    return GradientStep("imitate", loss, learner.optim)


def learn(spec: SelfImitationSpec, inner: Imitator, step: GradientStep, memory: Lessons, frame: int) -> Metrics:
    """The inner algorithm's update, then imitation of all episodes that are over by now."""
    assert isinstance(memory, TwoMemories)
    metrics = inner.update(memory, frame)
    episodes = memory.finished()
    if episodes is not None:
        memory.replay.extend(with_returns(episodes, inner.learner, spec.gamma))
    steps = imitate(spec, inner.learner, step, memory.replay, frame, inner.rng.noise)
    loss, adv, better = np.mean(steps, axis=0) if steps else (math.nan,) * 3
    imitation = {"sil_loss": float(loss), "sil_adv": float(adv), "sil_better": float(better)}
    return {**metrics, **imitation, "opt_steps": metrics["opt_steps"] + len(steps)}


def with_returns(episodes: Batch, learner: ActorCriticLearner, gamma: float) -> Batch:
    """Whole episodes [B, 1] as rows [B] whose reward is the discounted reward to go.

    Where a time limit cut an episode, the value of what would have followed is added: else a short episode of a task
    that costs something every step would look like a good one.
    """
    flat = episodes.flat()
    cut = flat.truncated & ~flat.terminated
    next_value = np.zeros(len(flat), np.float32)
    if cut.any():
        next_value[cut.numpy()] = learner.values(map_obs(lambda x: x[cut].to(learner.device), flat.next_obs))
    reward, terminated, ended = (x.numpy() for x in (episodes.reward, episodes.terminated, episodes.ended))
    ret = bootstrapped_returns(reward, next_value[:, None], terminated, ended, gamma)
    return replace(flat, reward=torch.from_numpy(ret[:, 0]))


def imitate(
    spec: SelfImitationSpec, learner: ActorCriticLearner, step: GradientStep, past: Past, frame: int, noise: Noise
) -> list[Step]:
    """The imitation steps of one update; none before the first episode is over."""
    steps, entropy_coef = list[dict[str, Tensor]](), spec.sil_entropy_coef
    if entropy_coef is None:
        entropy_coef = spec.entropy_coef_spec(frame) if spec.entropy_coef_spec else 0.0
    with learner.training():
        for _ in range(spec.training_iter if len(past) else 0):
            batch = past.sample().to(learner.device)
            for _ in range(spec.training_batch_iter):
                steps.append(step(batch, noise, entropy_coef=entropy_coef))
                past.feedback(batch, steps[-1]["error"])
    return [
        Step(loss, found["adv"].item(), found["better"].item())
        for loss, found in zip(step.losses(), steps, strict=True)
    ]
