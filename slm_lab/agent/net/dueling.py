"""Dueling nets: the value of a state and the advantages of its actions, together as action values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from torch import Tensor

from slm_lab.agent.net.base import Head
from slm_lab.agent.net.mlp import MLPNet, MLPNetSpec
from slm_lab.lib.errors import SpecError
from slm_lab.types import Shape


def _unset(value: Any) -> Any:
    if value is not None:
        raise ValueError("null, as a dueling net adds its outputs up to action values")
    return value


NoActivation = Annotated[None, BeforeValidator(_unset)]
"""`out_layer_activation` of a dueling net."""


def dueling_heads(heads: Sequence[Head], net: str) -> list[Head]:
    """The V head (1) and the A head (n) for the one head (n) asked for; both take its gain."""
    if len(heads) != 1:
        raise SpecError(
            f"agent.net.type: {net} gives one output, the values of discrete actions, and {len(heads)} were asked for. "
            "It is for DQN and its kin, not for policies; take the net without Dueling in its name."
        )
    return [Head(1, heads[0].gain), heads[0]]


def action_values(value: Tensor, advantage: Tensor) -> Tensor:
    """Q = V + A - mean A over actions, [B, n], of V [B, 1] and A [B, n]."""
    return value + advantage - advantage.mean(-1, keepdim=True)


class DuelingMLPNetSpec(MLPNetSpec):
    """Keys of MLPNet without an activation of the outputs."""

    out_layer_activation: NoActivation = Field(None, description="none: outputs are action values")


class DuelingMLPNet(MLPNet):
    """The layers of MLPNet, then V and A. forward: [B, ...] -> [Q], Q [B, n]."""

    Spec = DuelingMLPNetSpec

    def __init__(self, spec: DuelingMLPNetSpec, in_shape: Shape, heads: Sequence[Head], side: int = 0) -> None:
        super().__init__(spec, in_shape, dueling_heads(heads, type(self).__name__), side)

    def forward(self, x: Tensor, side: Tensor | None = None) -> list[Tensor]:
        return [action_values(*super().forward(x, side))]
