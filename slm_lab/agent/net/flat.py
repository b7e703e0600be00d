"""Parameters as views of one flat vector: one operation on it in place of one a tensor."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import nn


class View(NamedTuple):
    """A parameter of a net, and where it starts in a vector that holds it."""

    leaf: nn.Parameter
    start: int

    @property
    def stop(self) -> int:
        return self.start + self.leaf.numel()


def flatten(params: list[nn.Parameter]) -> nn.Parameter:
    """One vector that holds all the parameters; they and their gradients become views of it."""
    flat = nn.Parameter(torch.cat([p.detach().reshape(-1) for p in params]))
    flat.grad = torch.zeros_like(flat)
    start = 0
    for param in params:
        stop = start + param.numel()
        param.data = flat.data[start:stop].view_as(param)
        param.grad = flat.grad[start:stop].view_as(param)
        start = stop
    return flat


def views_in(vector: nn.Parameter, leaves: Iterable[nn.Parameter]) -> list[View]:
    """Those of the leaves that are views of the vector, or the vector itself."""
    memory = vector.untyped_storage().data_ptr()
    return [
        View(leaf, int(leaf.storage_offset() - vector.storage_offset()))
        for leaf in leaves
        if leaf.untyped_storage().data_ptr() == memory
    ]
