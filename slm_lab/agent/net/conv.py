"""ConvNet: convolutions over an image, then fully connected layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from pydantic import BeforeValidator, Field, PlainSerializer, field_validator
from torch import Tensor, nn

from slm_lab.agent.net.base import Chain, Head, Net, NetSpec, activation, initialise
from slm_lab.agent.net.batch_norm import BatchNorm2d
from slm_lab.agent.net.dueling import DuelingMLPNet, NoActivation, action_values, dueling_heads
from slm_lab.agent.net.linear import Widths, linear_layers
from slm_lab.agent.net.mlp import MLPNet
from slm_lab.lib.errors import SpecError
from slm_lab.spec.parse import Int
from slm_lab.types import Shape

FORM = "[out_channels, kernel, stride, padding, dilation], of which the last three may be left out"
CHANNELS = (1, 3, 4)  # of images as cameras and games give them


def _pair(value: Any) -> Any:
    """One number holds for height and width."""
    if isinstance(value, list | tuple):
        if len(value) != 2:
            raise ValueError("a number, or [height, width]")
        return value
    return (value, value)


def _short(pair: tuple[int, int]) -> int | list[int]:
    """A pair as people write it."""
    return pair[0] if pair[0] == pair[1] else list(pair)


def _layer(value: Any) -> Any:
    if not isinstance(value, list | tuple) or not 2 <= len(value) <= 5:
        raise ValueError(FORM)
    return value


Count = Annotated[Int, Field(ge=1)]
Margin = Annotated[Int, Field(ge=0)]
Pair = Annotated[tuple[Count, Count], BeforeValidator(_pair), PlainSerializer(_short)]
Padding = Annotated[tuple[Margin, Margin], BeforeValidator(_pair), PlainSerializer(_short)]


class ConvLayer(NamedTuple):
    """One convolution; pairs are (height, width)."""

    channels: Count
    kernel: Pair
    stride: Pair = (1, 1)
    padding: Padding = (0, 0)
    dilation: Pair = (1, 1)


class ConvNetSpec(NetSpec):
    """Convolutions, each with an activation and an optional norm, then linear layers."""

    conv_hid_layers: list[Annotated[ConvLayer, BeforeValidator(_layer)]] = Field(
        description=f"convolutions, each {FORM}; e.g. [[32, 8, 4], [64, 4, 2], [64, 3, 1]]"
    )
    fc_hid_layers: Widths = Field(description="widths of the linear layers after them, e.g. [512]; may be empty")
    batch_norm: bool = Field(True, description="BatchNorm2d after each activation of a convolution but the first")
    normalize: bool = Field(False, description="divide images by 255")

    @field_validator("conv_hid_layers")
    @classmethod
    def _some(cls, layers: list[ConvLayer]) -> list[ConvLayer]:
        if not layers:
            raise ValueError("at least one convolution, as MLPNet is the net without")
        return layers


class ConvEncoder(nn.Module):
    """Convolution -> activation -> norm, for each layer. forward: [B, C, H, W], or [B, H, W] of grey -> [B, size]."""

    def __init__(
        self, layers: Sequence[ConvLayer], in_shape: Shape, activation_name: str, batch_norm: bool, normalize: bool
    ) -> None:
        super().__init__()
        channels, *image = image_shape(in_shape)
        self.grey, self.normalize = len(in_shape) == 2, normalize
        modules = list[nn.Module]()
        for i, layer in enumerate(layers):
            image = _image_after(layer, image, f"agent.net.conv_hid_layers[{i}]")
            modules += [nn.Conv2d(channels, *layer[:4], dilation=layer.dilation), activation(activation_name)]
            if batch_norm and i > 0:
                modules.append(BatchNorm2d(layer.channels))
            channels = layer.channels
        for module in modules:
            if isinstance(module, nn.ReLU):
                module.inplace = True  # memory that is new to a process costs more than the function
        self.layers = Chain(*modules)
        self.size = channels * image[0] * image[1]

    def forward(self, x: Tensor) -> Tensor:
        if self.grey:
            x = x.unsqueeze(1)
        copied = x.device.type == "cpu"
        if copied:  # channels last: half the time of a forward and backward pass of 256 Atari images
            x = torch.stack(x.unbind(1), -1).permute(0, 3, 1, 2)  # twice as fast as a transposing copy
        x = x.float()  # before the division, which takes eight times as long on bytes
        if self.normalize:
            x = x.div_(255) if copied else x / 255  # in place: another 29 MB for 256 images cost more than the division
        return self.layers.forward(x).flatten(1)


def image_shape(shape: Shape) -> tuple[int, int, int]:
    """(channels, height, width) of an observation that is an image; (height, width) is one channel."""
    taken = "convolutions take images with channels first, (channels, height, width), or (height, width) of one channel"
    got = f"agent.net.type: got an observation of shape {shape}; {taken}"
    if len(shape) < 2:
        raise SpecError(f"{got}. For vectors take MLPNet, or DuelingMLPNet.")
    if len(shape) > 3:
        raise SpecError(f"{got}. Let the env join {len(shape) - 2} of its dims as channels.")
    channels, height, width = shape if len(shape) == 3 else (1, *shape)
    if width < min(channels, height) and (width in CHANNELS or channels == height):
        raise SpecError(f"{got}. This looks like channels last: let the env give {(width, channels, height)}.")
    return channels, height, width


def _image_after(layer: ConvLayer, image: Sequence[int], where: str) -> list[int]:
    """[height, width] after a layer."""
    spans = [1 + (size - 1) * gap for size, gap in zip(layer.kernel, layer.dilation, strict=True)]
    room = [size + 2 * pad for size, pad in zip(image, layer.padding, strict=True)]
    if any(span > size for span, size in zip(spans, room, strict=True)):
        parts = {"padding": layer.padding, "dilation": layer.dilation}
        means = ", ".join(f"{name} {_by(pair)}" for name, pair in parts.items())
        raise SpecError(
            f"{where}: its kernel {_by(layer.kernel)} ({means}) does not fit the {_by(image)} image "
            f"(height x width) that comes to it; allowed: what spans at most {_by(room)}, or fewer layers."
        )
    return [(size - span) // step + 1 for size, span, step in zip(room, spans, layer.stride, strict=True)]


def _by(pair: Sequence[int]) -> str:
    return f"{pair[0]} x {pair[1]}"


class ConvNet(Net):
    """Convolutions as in ConvEncoder, flattened, then linear -> activation for each of `fc_hid_layers`."""

    Spec = ConvNetSpec
    trunk: ClassVar[type[MLPNet]] = MLPNet  # the same net without convolutions

    def __init__(self, spec: ConvNetSpec, in_shape: Shape, heads: Sequence[Head], side: int = 0) -> None:
        name = spec.hid_layers_activation
        encoder = ConvEncoder(spec.conv_hid_layers, in_shape, name, spec.batch_norm, spec.normalize)
        super().__init__(spec, *linear_layers(encoder.size + side, spec.fc_hid_layers, name), heads)
        self.encoder = encoder
        initialise(encoder, spec)

    def encode(self, x: Tensor) -> Tensor:
        return self.encoder.forward(x)

    @classmethod
    def parts(cls, spec: ConvNetSpec) -> tuple[NetSpec | None, NetSpec]:
        """The convolutions for each image, and the linear layers over all entries joined."""
        images = spec.model_copy(update={"type": ConvNet.__name__, "fc_hid_layers": []})
        common = {key: value for key, value in spec if key in NetSpec.model_fields}
        rest = {"type": cls.trunk.__name__, "hid_layers": spec.fc_hid_layers}
        return images, cls.trunk.Spec(**common | rest)


class DuelingConvNetSpec(ConvNetSpec):
    """Keys of ConvNet without an activation of the outputs, and without batch norm unless asked for."""

    out_layer_activation: NoActivation = Field(None, description="none: outputs are action values")
    batch_norm: bool = Field(False, description="BatchNorm2d after each activation of a convolution but the first")


class DuelingConvNet(ConvNet):
    """The layers of ConvNet, then V and A. forward: [B, ...] -> [Q], Q [B, n]."""

    Spec = DuelingConvNetSpec
    trunk = DuelingMLPNet

    def __init__(self, spec: DuelingConvNetSpec, in_shape: Shape, heads: Sequence[Head], side: int = 0) -> None:
        super().__init__(spec, in_shape, dueling_heads(heads, type(self).__name__), side)

    def forward(self, x: Tensor, side: Tensor | None = None) -> list[Tensor]:
        return [action_values(*super().forward(x, side))]
