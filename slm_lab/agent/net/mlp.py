"""MLPNet: fully connected layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field, ValidationInfo, field_validator
from torch import Tensor, nn

from slm_lab.agent.net.base import Chain, Head, Net, NetSpec, activation, flat_size
from slm_lab.agent.net.batch_norm import BatchNorm1d
from slm_lab.agent.net.batch_renorm import BatchRenorm1d, BatchRenormSpec
from slm_lab.spec.parse import Int
from slm_lab.types import Shape


class MLPNetSpec(NetSpec):
    """Linear layers, each with an optional norm and an activation."""

    inert: ClassVar = NetSpec.inert | {"normalize": "linear layers take no images to divide by 255"}

    hid_layers: list[Annotated[Int, Field(ge=1)]] = Field(
        description="widths of the hidden layers, e.g. [64, 64]; may be empty"
    )
    layer_norm: bool = Field(False, description="LayerNorm after each linear layer")
    batch_norm: bool = Field(False, description="BatchNorm after each linear layer")
    batch_renorm: BatchRenormSpec | None = Field(
        None, description="BatchRenorm of the input and after each activation, as in CrossQ; true or its settings"
    )

    @field_validator("batch_renorm", mode="before")
    @classmethod
    def _settings(cls, value: Any) -> Any:
        if isinstance(value, bool):
            return {} if value else None
        if value is not None and not isinstance(value, Mapping | BatchRenormSpec):
            raise ValueError("true, false or a mapping of its settings")
        return value

    @field_validator("batch_renorm")
    @classmethod
    def _one_norm(cls, value: BatchRenormSpec | None, info: ValidationInfo) -> BatchRenormSpec | None:
        others = [key for key in ("layer_norm", "batch_norm") if info.data.get(key)]
        if value and others:
            raise ValueError(f"false with {' and '.join(others)}, as a net has one kind of norm")
        return value


class MLPNet(Net):
    """Linear -> norm -> activation, for each of `hid_layers`; input [B, ...] is flattened.

    With BatchRenorm: BRN -> [linear -> activation -> BRN].
    """

    Spec = MLPNetSpec

    def __init__(self, spec: MLPNetSpec, in_shape: Shape, heads: Sequence[Head], side: int = 0) -> None:
        size, layers = flat_size(in_shape) + side, list[nn.Module]()
        renorm = None if spec.batch_renorm is None else spec.batch_renorm.model_dump()
        if renorm is not None:
            layers.append(BatchRenorm1d(size, **renorm))
        for width in spec.hid_layers:
            layers.append(nn.Linear(size, width))
            if spec.batch_norm:
                layers.append(BatchNorm1d(width))
            elif spec.layer_norm:
                layers.append(nn.LayerNorm(width))
            layers.append(activation(spec.hid_layers_activation))
            if renorm is not None:
                layers.append(BatchRenorm1d(width, **renorm))
            size = width
        super().__init__(spec, Chain(*layers), size, heads)
        self.flatten = len(in_shape) != 1

    def encode(self, x: Tensor) -> Tensor:
        return x.flatten(1).float() if self.flatten else x.float()
