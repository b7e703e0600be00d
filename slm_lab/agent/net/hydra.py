"""HydraMLPNet: linear layers of its own for each part of an observation and for each output, and a body they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor, nn

from slm_lab.agent.net.base import Head, Net, NetSpec, flat_size, initialise
from slm_lab.agent.net.linear import Widths, linear_layers
from slm_lab.agent.net.mlp import MLPNetSpec
from slm_lab.lib.errors import SpecError
from slm_lab.types import Shape


def _branches(value: Any) -> Any:
    """A plain list of widths is the one list for all."""
    if not isinstance(value, list | tuple):
        raise ValueError("a list of widths, or a list of such lists")
    return value if value and all(isinstance(widths, list | tuple) for widths in value) else [value]


def _three(value: Any) -> Any:
    if not isinstance(value, list | tuple) or len(value) != 3:
        raise ValueError("[heads, body, tails], each a list of widths; heads and tails may be lists of such lists")
    return value


Branches = Annotated[list[Widths], BeforeValidator(_branches)]


class HydraMLPNetSpec(NetSpec):
    """Linear layers, each with an activation, in three parts."""

    inert: ClassVar = MLPNetSpec.inert

    hid_layers: Annotated[tuple[Branches, Widths, Branches], BeforeValidator(_three)] = Field(
        description="[heads, body, tails]: widths for each entry of the observation, for all of them joined, and for "
        "each output, e.g. [[[32], [16]], [64], []]; one list of heads or of tails is taken for all"
    )


class HydraMLPNet(Net):
    """A head of linear layers for each entry, joined; the body; a tail of linear layers before each output.

    forward: [B, ...], or a dict of such entries, each flattened -> one tensor [B, dim] per output.
    """

    Spec = HydraMLPNetSpec
    takes_entries = True

    def __init__(
        self, spec: HydraMLPNetSpec, in_shape: Shape | dict[str, Shape], heads: Sequence[Head], side: int = 0
    ) -> None:
        (inputs, body, tails), name = spec.hid_layers, spec.hid_layers_activation
        entries = in_shape if isinstance(in_shape, Mapping) else {"obs": in_shape}
        _fit(inputs, list(entries), "hid_layers[0]", "observation entries")
        _fit(tails, [str(head.dim) for head in heads], "hid_layers[2]", "outputs, of widths")
        built = [linear_layers(flat_size(shape), _one(inputs, i), name) for i, shape in enumerate(entries.values())]
        super().__init__(spec, *linear_layers(sum(size for _, size in built) + side, body, name), heads)
        self.keys = list(entries) if isinstance(in_shape, Mapping) else None
        self.inputs = nn.ModuleList(layers for layers, _ in built)
        self.tails = nn.ModuleList(linear_layers(self.size, _one(tails, i), name)[0] for i in range(len(heads)))
        initialise(self.inputs, spec)
        initialise(self.tails, spec)

    @staticmethod
    def _head(spec: NetSpec, features: int, head: Head, index: int) -> nn.Module:
        assert isinstance(spec, HydraMLPNetSpec)
        return Net._head(spec, [features, *_one(spec.hid_layers[2], index)][-1], head, index)

    def encode(self, x: Tensor | dict[str, Tensor]) -> Tensor:
        """What the body takes, [B, size]: what the heads give, in the order of the entries."""
        entries = [x] if isinstance(x, Tensor) else [x[key] for key in self.keys or ()]
        parts = [head.forward(part.flatten(1).float()) for head, part in zip(self.inputs, entries, strict=True)]
        return torch.cat(parts, -1)

    def forward(self, x: Tensor | dict[str, Tensor], side: Tensor | None = None) -> list[Tensor]:
        features = self.features(x, side)  # type: ignore[arg-type]
        return [head.forward(tail.forward(features)) for tail, head in zip(self.tails, self.heads, strict=True)]


def _one(branches: Sequence[Widths], index: int) -> Widths:
    """Widths of one branch; one list is that of all."""
    return branches[index if len(branches) > 1 else 0]


def _fit(branches: Sequence[Widths], names: Sequence[str], key: str, what: str) -> None:
    """There is one list of widths for all, or one for each."""
    if len(branches) not in (1, len(names)):
        raise SpecError(
            f"agent.net.{key}: got {len(branches)} lists of widths for {len(names)} {what} {', '.join(names)}; "
            f"allowed: {len(names)} lists, or one for all."
        )
