"""Batch renormalisation: batch norm in training, drawn towards the running statistics that evaluation uses."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from slm_lab.spec.parse import Float, Int, Model


class BatchRenormSpec(Model):
    """Settings of BatchRenorm1d."""

    eps: Float = Field(1e-3, gt=0, description="added to variances before their root is taken")
    momentum: Float = Field(0.01, gt=0, le=1, description="weight of the new batch in the running statistics")
    r_max: Float = Field(3.0, ge=1, description="bound of batch deviation / running deviation: [1 / r_max, r_max]")
    d_max: Float = Field(5.0, ge=0, description="bound of the batch mean's distance, in running deviations")
    warmup_steps: Int = Field(10000, ge=0, description="gradient steps of plain batch norm before it")


class BatchRenorm1d(nn.Module):
    """[B, C, ...] -> the same shape, with each of C features normalised."""

    running_mean: Tensor
    running_var: Tensor
    steps: Tensor

    def __init__(
        self,
        features: int,
        *,
        eps: float = 1e-3,
        momentum: float = 0.01,
        r_max: float = 3.0,
        d_max: float = 5.0,
        warmup_steps: int = 10000,
    ) -> None:
        super().__init__()
        self.eps, self.momentum, self.warmup_steps = eps, momentum, warmup_steps
        self.r_max, self.d_max = r_max, d_max
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.register_buffer("running_mean", torch.zeros(features))
        self.register_buffer("running_var", torch.ones(features))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        # one row has no deviation: it is taken by the running statistics, as in evaluation
        if not self.training or len(x) < 2:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        with torch.no_grad():
            # the batch's mean and biased variance, [C] each; torch.var_mean takes twenty times as long on a CPU
            mean, var = torch.batch_norm_update_stats(x, None, None, 0.0)
        weight, bias = self._affine(mean, var)
        self._count(mean, var)
        # weight * (normalised * r + d) + bias in one pass
        return F.batch_norm(x, None, None, weight, bias, training=True, eps=self.eps)

    def _affine(self, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        """(weight, bias), [C] each, with r and d in them; they lead from the batch's statistics to the running ones."""
        with torch.no_grad():
            warm = self.steps >= self.warmup_steps
            variance = self.running_var + self.eps
            r = ((var + self.eps) / variance).sqrt().clamp(1 / self.r_max, self.r_max)
            d = ((mean - self.running_mean) / variance.sqrt()).clamp(-self.d_max, self.d_max)
            r, d = torch.where(warm, r, 1.0), torch.where(warm, d, 0.0)
        return self.weight * r, torch.addcmul(self.bias, self.weight, d)

    @torch.no_grad()
    def _count(self, mean: Tensor, var: Tensor) -> None:
        """Take a batch's statistics into the running ones."""
        for running, seen in ((self.running_mean, mean), (self.running_var, var)):
            # the step of a batch that is not finite will be skipped: what was learnt of the others stays
            running.copy_(torch.where(seen.isfinite(), running.lerp(seen, self.momentum), running))
        self.steps += 1
