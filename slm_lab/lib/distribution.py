"""Action distributions: small, without validation, sampled from noise that is handed to them.

torch.distributions costs 70-117 us a sample and log-prob on a batch of 4, these about 9. Every class takes the raw
outputs of a net, and what it samples is what a memory stores; `to_env` turns that into what the env gets.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from slm_lab.lib.noise import Noise

HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)
EULER_GAMMA = 0.5772156649015329
LOG_STD_RANGE = (-5.0, 2.0)
TINY = 1e-6


class Distribution(ABC):
    """A batch of action distributions. log_prob and entropy are [B], summed over action dims."""

    @abstractmethod
    def sample(self, noise: Noise) -> Tensor:
        """One action a row, drawn from `noise`."""

    @abstractmethod
    def mode(self) -> Tensor:
        """The most likely action of each row."""

    @abstractmethod
    def log_prob(self, action: Tensor) -> Tensor:
        """Log-density or log-probability of stored actions, [B]."""

    @abstractmethod
    def entropy(self, noise: Noise) -> Tensor:
        """Entropy in nats, [B]; `noise` is used only where there is no closed form."""

    @staticmethod
    def to_env(action: Tensor) -> Tensor:
        """A stored action as the env gets it."""
        return action

    @staticmethod
    def from_env(action: Tensor) -> Tensor:
        """What is stored for an action in [-1, 1] that was chosen otherwise; the inverse of `to_env`."""
        return action


class Categorical(Distribution):
    """One of n actions from logits [B, n]."""

    def __init__(self, logits: Tensor) -> None:
        self.log_probs = logits.log_softmax(-1)

    def sample(self, noise: Noise) -> Tensor:
        # arg max of log p + Gumbel noise is a draw from p, without a cumulative sum
        return (self.log_probs - noise.exponential(self.log_probs).log_()).argmax(-1)

    def mode(self) -> Tensor:
        return self.log_probs.argmax(-1)

    def log_prob(self, action: Tensor) -> Tensor:
        return self.log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self, noise: Noise) -> Tensor:
        return -(self.log_probs.exp() * self.log_probs).sum(-1)


class Argmax(Categorical):
    """All probability on the highest logit, shared where logits tie."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits

    @cached_property
    def log_probs(self) -> Tensor:  # type: ignore[override]
        top = self.logits >= self.logits.max(-1, keepdim=True).values
        # a large finite number instead of -inf: 0 * -inf would make the entropy NaN
        return torch.where(top, 0.0, -1e8).log_softmax(-1)

    def mode(self) -> Tensor:
        return self.logits.argmax(-1)


class GumbelSoftmax(Categorical):
    """Categorical whose `relaxed` sample carries a gradient, temperature 1."""

    def relaxed(self, noise: Noise) -> Tensor:
        """Straight-through one-hot sample [B, n]: hard forward, soft backward."""
        soft = (self.log_probs - noise.exponential(self.log_probs).log()).softmax(-1)
        hard = F.one_hot(soft.argmax(-1), soft.shape[-1]).to(soft.dtype)
        return hard + soft - soft.detach()


class MultiCategorical(Distribution):
    """Independent choices: logits [B, sum(nvec)] for components of nvec choices; actions [B, components]."""

    def __init__(self, logits: Tensor, nvec: tuple[int, ...]) -> None:
        self.parts = [Categorical(part) for part in torch.split(logits, list(nvec), -1)]

    def sample(self, noise: Noise) -> Tensor:
        return torch.stack([part.sample(noise) for part in self.parts], -1)

    def mode(self) -> Tensor:
        return torch.stack([part.mode() for part in self.parts], -1)

    def log_prob(self, action: Tensor) -> Tensor:
        return torch.stack([part.log_prob(action[..., i]) for i, part in enumerate(self.parts)]).sum(0)

    def entropy(self, noise: Noise) -> Tensor:
        return torch.stack([part.entropy(noise) for part in self.parts]).sum(0)


class Bernoulli(Distribution):
    """Independent bits from logits [B, A]; actions are 0.0 or 1.0."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits

    def sample(self, noise: Noise) -> Tensor:
        return noise.uniform(self.logits).lt(self.logits.sigmoid()).to(self.logits.dtype)

    def mode(self) -> Tensor:
        return self.logits.gt(0).to(self.logits.dtype)

    def log_prob(self, action: Tensor) -> Tensor:
        return -F.binary_cross_entropy_with_logits(self.logits, action, reduction="none").sum(-1)

    def entropy(self, noise: Noise) -> Tensor:
        return F.binary_cross_entropy_with_logits(self.logits, self.logits.sigmoid(), reduction="none").sum(-1)


class Normal(Distribution):
    """Independent Gaussians from means and log deviations, both [B, A]."""

    def __init__(self, loc: Tensor, log_std: Tensor) -> None:
        self.loc = loc
        self.log_std = log_std.clamp(*LOG_STD_RANGE)

    def sample(self, noise: Noise) -> Tensor:
        return self.loc + self.log_std.exp() * noise.normal(self.loc)

    def mode(self) -> Tensor:
        return self.loc

    def log_prob(self, action: Tensor) -> Tensor:
        z = (action - self.loc) * (-self.log_std).exp()
        return (-0.5 * z * z - self.log_std - HALF_LOG_TAU).sum(-1)

    def entropy(self, noise: Noise) -> Tensor:
        return (self.log_std + 0.5 + HALF_LOG_TAU).expand_as(self.loc).sum(-1)


class NormalTanh(Normal):
    """A Gaussian squashed into (-1, 1). The value before tanh is sampled and stored, so no log-prob needs atanh."""

    def log_prob(self, action: Tensor) -> Tensor:
        return super().log_prob(action) - tanh_correction(action)

    def entropy(self, noise: Noise) -> Tensor:
        return super().entropy(noise) + tanh_correction(self.sample(noise))

    @staticmethod
    def to_env(action: Tensor) -> Tensor:
        return action.tanh()

    @staticmethod
    def from_env(action: Tensor) -> Tensor:
        return action.clamp(TINY - 1, 1 - TINY).atanh()


def tanh_correction(u: Tensor) -> Tensor:
    """log |d tanh(u) / du| summed over dims, in the form that stays finite for large |u|."""
    return (2 * (math.log(2) - u - F.softplus(-2 * u))).sum(-1)


class LogNormal(Normal):
    """exp of a Gaussian, per dim."""

    def sample(self, noise: Noise) -> Tensor:
        return super().sample(noise).exp()

    def mode(self) -> Tensor:
        return (self.loc - (2 * self.log_std).exp()).exp()

    def log_prob(self, action: Tensor) -> Tensor:
        log_action = action.clamp_min(TINY).log()
        return super().log_prob(log_action) - log_action.sum(-1)

    def entropy(self, noise: Noise) -> Tensor:
        return super().entropy(noise) + self.loc.sum(-1)


class Gumbel(Normal):
    """Independent Gumbel distributions from locations and log scales, both [B, A]."""

    def sample(self, noise: Noise) -> Tensor:
        return self.loc - self.log_std.exp() * noise.exponential(self.loc).log()

    def log_prob(self, action: Tensor) -> Tensor:
        z = (action - self.loc) * (-self.log_std).exp()
        return -(z + (-z).exp() + self.log_std).sum(-1)

    def entropy(self, noise: Noise) -> Tensor:
        return (self.log_std + 1 + EULER_GAMMA).expand_as(self.loc).sum(-1)


class Beta(Distribution):
    """Independent Beta distributions over (0, 1) with one hump; the env gets them stretched to (-1, 1)."""

    def __init__(self, raw_a: Tensor, raw_b: Tensor) -> None:
        self.a, self.b = 1 + F.softplus(raw_a), 1 + F.softplus(raw_b)

    def sample(self, noise: Noise) -> Tensor:
        x, y = noise.gamma(self.a), noise.gamma(self.b)
        return (x / (x + y)).clamp(TINY, 1 - TINY)

    def mode(self) -> Tensor:
        # TINY: where both exponents round to 0 the density is flat, and its middle as good as any
        return ((self.a - 1 + TINY) / (self.a + self.b - 2 + 2 * TINY)).clamp(TINY, 1 - TINY)

    def _log_norm(self) -> Tensor:
        return torch.lgamma(self.a) + torch.lgamma(self.b) - torch.lgamma(self.a + self.b)

    def log_prob(self, action: Tensor) -> Tensor:
        return ((self.a - 1) * action.log() + (self.b - 1) * (-action).log1p() - self._log_norm()).sum(-1)

    def entropy(self, noise: Noise) -> Tensor:
        total = self.a + self.b
        spread = (
            (self.a - 1) * torch.digamma(self.a)
            + (self.b - 1) * torch.digamma(self.b)
            - (total - 2) * torch.digamma(total)
        )
        return (self._log_norm() - spread).sum(-1)

    @staticmethod
    def to_env(action: Tensor) -> Tensor:
        return 2 * action - 1

    @staticmethod
    def from_env(action: Tensor) -> Tensor:
        return (0.5 * (action + 1)).clamp(TINY, 1 - TINY)
