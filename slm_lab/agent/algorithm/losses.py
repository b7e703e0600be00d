"""Pure losses and target transforms: tensors in, tensor out, named as in the papers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

LossFn = Callable[[Tensor, Tensor], Tensor]


def policy_gradient(log_prob: Tensor, adv: Tensor) -> Tensor:
    """-E[log pi * A], Williams 1992. All [B]."""
    return -(log_prob * adv).mean()


def clipped_surrogate(log_prob: Tensor, old_log_prob: Tensor, adv: Tensor, clip_eps: float) -> Tensor:
    """Schulman et al. 2017, eq. 7, negated for descent. All [B]."""
    # the clamp only keeps exp from overflowing: a ratio of e^20 is clipped by clip_eps anyway
    ratio = (log_prob - old_log_prob).clamp(-20, 20).exp()
    return -torch.min(ratio * adv, ratio.clamp(1 - clip_eps, 1 + clip_eps) * adv).mean()


def clipped_value_loss(value: Tensor, old_value: Tensor, target: Tensor, clip_eps: float) -> Tensor:
    """Half the mean of the worse of the squared errors of V and of V held near its old value. All [B]."""
    held = old_value + (value - old_value).clamp(-clip_eps, clip_eps)
    return 0.5 * torch.max((value - target) ** 2, (held - target) ** 2).mean()


def standardize(x: Tensor) -> Tensor:
    """Mean 0 and deviation 1; a single element stays as it is."""
    return (x - x.mean()) / (x.std(correction=0) + 1e-8) if x.numel() > 1 else x


def symlog(x: Tensor) -> Tensor:
    """sign(x) ln(1 + |x|): large values and targets weigh less."""
    return x.sign() * x.abs().log1p()


class TargetScale(nn.Module):
    """Running deviation of value targets, at least 1: what predictions and targets are divided by in the value loss."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("mean", "m2", "count"):
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))
        self.mean: Tensor
        self.m2: Tensor
        self.count: Tensor

    def update(self, x: Tensor) -> None:
        """Merge a batch into the running moments (Chan et al. 1979)."""
        if not torch.isfinite(x).all():  # the step will be skipped; what was learnt of the scale stays
            return
        batch, n = x.double(), x.numel()
        delta, total = batch.mean() - self.mean, self.count + n
        self.m2 += ((batch - batch.mean()) ** 2).sum() + delta**2 * self.count * n / total
        self.mean += delta * n / total
        self.count += n

    def forward(self) -> Tensor:
        return (self.m2 / self.count.clamp_min(1)).sqrt().clamp_min(1).float()


class PercentileScale(nn.Module):
    """Smoothed distance between the 5th and 95th percentile of advantages, at least 1."""

    DECAY = 0.99

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("low", torch.zeros(()))
        self.register_buffer("high", torch.zeros(()))
        self.low: Tensor
        self.high: Tensor

    def forward(self, adv: Tensor) -> Tensor:
        """Update from a minibatch [B] and scale it."""
        finite = torch.isfinite(adv).all()  # else the step will be skipped, and what was learnt of the range stays
        for known, share in ((self.low, 0.05), (self.high, 0.95)):
            known.copy_(torch.where(finite, known.lerp(torch.quantile(adv, share), 1 - self.DECAY), known))
        return adv / (self.high - self.low).clamp_min(1.0)


def td_target(reward: Tensor, terminated: Tensor, next_value: Tensor, gamma: float) -> Tensor:
    """r + gamma V(s') where the episode goes on or was only cut off by a time limit, r where it ended. All [B]."""
    return torch.where(terminated, reward, reward + gamma * next_value)


def taken(q: Tensor, action: Tensor) -> Tensor:
    """Q(s, a) [B] of the actions that were taken, from the values of all [B, n]."""
    return q.gather(-1, action.unsqueeze(-1)).squeeze(-1)


def mean_loss(losses: Sequence[float]) -> float:
    """The mean of the losses of an update, without the steps that were skipped; NaN where all of them were."""
    taken_steps = [loss for loss in losses if math.isfinite(loss)]
    return sum(taken_steps) / len(taken_steps) if taken_steps else math.nan


def weighted_mean(rows: Tensor, weight: Tensor | None) -> Tensor:
    """The mean of a loss by rows [B], each with its importance weight where there are any."""
    return rows.mean() if weight is None else (rows * weight).mean()


def imitation_advantage(ret: Tensor, value: Tensor, clip: float) -> Tensor:
    """How much better than V a return was, 0 to `clip`, without gradient (Oh et al. 2018). All [B]."""
    return (ret - value.detach()).clamp(0, clip)


def imitation_weight(adv: Tensor, weight: Tensor | None, least: int) -> Tensor:
    """What each row [B] counts for: nothing where it was no better, else 1 / n times its importance weight.

    n is the number of better rows, but at least `least`, so that a few of them make no full step.
    """
    better = (adv > 0).to(adv.dtype)
    share = better / better.sum().clamp_min(least)
    return share if weight is None else share * weight


def imitation_policy_loss(log_prob: Tensor, adv: Tensor, weight: Tensor) -> Tensor:
    """Make what turned out better than expected more likely. All [B], weights of `imitation_weight`."""
    return -(weight * adv * log_prob).sum()


def imitation_value_loss(value: Tensor, adv: Tensor, weight: Tensor) -> Tensor:
    """Half of a loss whose gradient moves V towards better returns, never down. All [B]."""
    return -0.5 * (weight * adv * value).sum()
