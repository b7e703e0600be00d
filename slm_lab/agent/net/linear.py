"""Linear layers, each with an activation: a part of larger nets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field
from torch import nn

from slm_lab.agent.net.base import Chain, activation
from slm_lab.spec.parse import Int

Widths = list[Annotated[Int, Field(ge=1)]]


def linear_layers(size: int, widths: Sequence[int], name: str) -> tuple[Chain, int]:
    """Linear -> activation for each width, [B, size] -> [B, last width], and the last width."""
    layers = list[nn.Module]()
    for width in widths:
        layers += [nn.Linear(size, width), activation(name)]
        size = width
    return Chain(*layers), size
