"""Observations of several entries: a net encodes each, and what they give is joined."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from slm_lab.agent.net.base import Net, NetSpec
from slm_lab.agent.net.conv import ConvNet, ConvNetSpec
from slm_lab.agent.net.mlp import MLPNet, MLPNetSpec
from slm_lab.agent.net.recurrent import RecurrentNet
from slm_lab.lib.errors import SpecError, hint
from slm_lab.spec.parse import parse
from slm_lab.types import Shape

IMAGE_DIMS = 3  # channels, height, width
VECTOR_LAYERS = [64]
LARGE, LARGE_LAYERS = 36, [[32, 8, 4, 0, 1], [64, 4, 2, 0, 1], [64, 3, 1, 0, 1]]  # from so many pixels on each side
SMALL_LAYERS = [[16, 3, 1, 0, 1], [32, 3, 1, 0, 1]]
IMAGE_WIDTH = 128
NOT_ITS_OWN = {
    *("optim_spec", "lr_scheduler_spec", "loss_spec", "clip_grad_val", "update_type", "update_frequency"),
    *("polyak_coef", "gpu", "shared", "use_same_optim", "log_std_init", "actor_init_std", "critic_init_std"),
    *("out_layer_activation", "encoders"),
}
"""Keys of a net that an encoder, which is a part of one, cannot have."""

NetClass = Callable[[object, str], type[Net]]


class Encoders(nn.Module):
    """forward: entries [B, ...] each -> [B, size], in the order of the entries; bytes of `scaled` ones over 255."""

    def __init__(self, nets: Mapping[str, Net], scaled: Collection[str]) -> None:
        super().__init__()
        self.keys, self.scaled = list(nets), set(scaled)
        self.nets = nn.ModuleList(nets.values())  # entries may have names that torch does not take for modules
        self.size = sum(net.size for net in nets.values())

    def forward(self, obs: Mapping[str, Tensor]) -> Tensor:
        encoded = [self._encoded(net, key, obs[key]) for key, net in zip(self.keys, self.nets, strict=True)]
        return encoded[0] if len(encoded) == 1 else torch.cat(encoded, -1)

    def _encoded(self, net: nn.Module, key: str, x: Tensor) -> Tensor:
        assert isinstance(net, Net)
        return net.features(x / 255 if x.dtype == torch.uint8 and key in self.scaled else x)


def make_encoders(spec: NetSpec, images: NetSpec | None, shapes: Mapping[str, Shape], net_class: NetClass) -> Encoders:
    """Encoders as `spec.encoders` says, else by the shape of an entry; `images`: the net's own layers for them."""
    given = spec.encoders or {}
    for key in given:
        if key not in shapes:
            known = f"{hint(key, shapes)} Known: {', '.join(shapes)}."
            raise SpecError(f"agent.net.encoders.{key}: the observation has no such entry.{known}")
    nets, scaled = dict[str, Net](), list[str]()
    for key, shape in shapes.items():
        if key not in given and images is None and len(shape) == IMAGE_DIMS:
            scaled.append(key)
        chosen = _given(given[key], spec, key, net_class) if key in given else _by_shape(spec, images, shape)
        nets[key] = net_class(chosen.type, f"agent.net.encoders.{key}.type")(chosen, shape, [])  # type: ignore[arg-type, call-arg]
    return Encoders(nets, scaled)


def _given(data: Mapping[str, Any], spec: NetSpec, key: str, net_class: NetClass) -> NetSpec:
    path = f"agent.net.encoders.{key}"
    cls = net_class(data.get("type"), f"{path}.type")
    if issubclass(cls, RecurrentNet):
        reason = "it can be agent.net itself, over what encoders give"
        raise SpecError(f"{path}.type: got {data['type']!r}; allowed: a net without a memory; {reason}.")
    for name in data:
        if name in NOT_ITS_OWN:
            raise SpecError(f"{path}.{name}: an encoder has none of its own; it is a key of agent.net.")
    inherited = {"hid_layers_activation": spec.hid_layers_activation, "init_fn": spec.init_fn}
    return parse(cls.Spec, {**inherited, **data}, path, [])


def _by_shape(spec: NetSpec, images: NetSpec | None, shape: Shape) -> NetSpec:
    """Conv layers for an image, a linear layer for everything else."""
    common = {"hid_layers_activation": spec.hid_layers_activation, "init_fn": spec.init_fn}
    if len(shape) != IMAGE_DIMS:
        return MLPNetSpec(type=MLPNet.__name__, hid_layers=VECTOR_LAYERS, **common)
    if images is not None:
        return images
    layers = LARGE_LAYERS if min(shape[1:]) >= LARGE else SMALL_LAYERS
    sizes = {"conv_hid_layers": layers, "fc_hid_layers": [IMAGE_WIDTH]}
    return ConvNetSpec(type=ConvNet.__name__, batch_norm=False, normalize=False, **sizes, **common)
