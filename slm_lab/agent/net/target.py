"""A target net: a slow copy of a net, for bootstrap values that do not chase themselves."""

from __future__ import annotations

from copy import deepcopy
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from slm_lab.agent.net.base import NetSpec

N = TypeVar("N", bound=nn.Module)


class Target(nn.Module, Generic[N]):
    """A copy that follows its source: blended after each gradient step, or replaced after so many frames."""

    net: N

    def __init__(self, source: N, spec: NetSpec) -> None:
        super().__init__()
        self.spec = spec
        self.net = deepcopy(source).requires_grad_(False).eval()
        self.ours: list[Tensor] = list(self.net.parameters())
        self.theirs: list[Tensor] = list(source.parameters())
        self.buffer_pairs = list(zip(self.net.buffers(), source.buffers(), strict=True))
        self.register_buffer("replaced", torch.zeros((), dtype=torch.int64))  # multiples of update_frequency passed
        self.replaced: Tensor

    def stepped(self) -> None:
        """After a gradient step of the source."""
        if self.spec.update_type == "polyak":
            self._blend(self.spec.polyak_coef)

    def passed(self, frame: int) -> None:
        """After an update that ended at this frame."""
        if self.spec.update_type == "replace" and frame // self.spec.update_frequency > self.replaced.item():
            self._blend(1.0)
            self.replaced.fill_(int(frame // self.spec.update_frequency))

    def _blend(self, weight: float) -> None:
        """target <- (1 - weight) * target + weight * source; buffers are copied."""
        with torch.no_grad():
            torch._foreach_lerp_(self.ours, self.theirs, weight)
            for ours, theirs in self.buffer_pairs:
                ours.copy_(theirs)


def polyak_note(spec: NetSpec) -> list[str]:
    """A warning where an old spec gives the weight of what stays instead of what comes in."""
    if spec.update_type == "polyak" and spec.polyak_coef > 0.5:
        meant = round(1 - spec.polyak_coef, 6)
        return [
            f"agent.net.polyak_coef: {spec.polyak_coef} is the weight of the new parameters; "
            f"old specs meant the weight of the target itself, which is {meant} here."
        ]
    return []
