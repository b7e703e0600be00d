"""Nets by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slm_lab.agent.net.base import Head, Net, NetSpec
from slm_lab.agent.net.conv import ConvNet, DuelingConvNet
from slm_lab.agent.net.dueling import DuelingMLPNet
from slm_lab.agent.net.entries import IMAGE_DIMS, make_encoders
from slm_lab.agent.net.hydra import HydraMLPNet
from slm_lab.agent.net.mlp import MLPNet
from slm_lab.agent.net.obs_net import ObsNet
from slm_lab.agent.net.recurrent import RecurrentNet
from slm_lab.agent.net.torcharc import TorchArcNet
from slm_lab.lib.errors import SpecError, hint
from slm_lab.lib.plugin import component
from slm_lab.types import MASK, ObsShape, Shape

NETS: Mapping[str, type[Net]] = {
    "MLPNet": MLPNet,
    "ConvNet": ConvNet,
    "DuelingConvNet": DuelingConvNet,
    "DuelingMLPNet": DuelingMLPNet,
    "HydraMLPNet": HydraMLPNet,
    "RecurrentNet": RecurrentNet,
    "TorchArcNet": TorchArcNet,
}


def net_class(name: object, path: str) -> type[Net]:
    """The net a spec names: one of ours, or `module:Class` of the user's own."""
    return component(NETS, name, path, "net", Net)


def make_net(
    spec: NetSpec, obs_shape: ObsShape, heads: Sequence[Head], name: str = "net", side: int = 0, acts: bool = False
) -> ObsNet:
    """The net of a parsed spec for what an env shows.

    `name` tells what it remembers from what other nets do; `side` more numbers join the encoded observation, e.g. an
    action to be valued; with `acts` the first head is of actions.
    """
    cls, joined = net_class(spec.type, "agent.net.type"), (side,) if side else ()
    shapes = entry_shapes(spec, obs_shape)
    first = next(iter(shapes.values()))
    bare = len(shapes) == 1 and spec.encoders is None
    if bare and not (issubclass(cls, RecurrentNet) and len(first) == IMAGE_DIMS):
        return ObsNet(cls(spec, first, heads, *joined), None, list(shapes), name, side, acts)  # type: ignore[arg-type]
    if cls.takes_entries:
        if spec.encoders is not None:
            raise SpecError(f"agent.net.encoders: {spec.type} has layers of its own for each entry; allowed: none.")
        return ObsNet(cls(spec, shapes, heads, *joined), None, list(shapes), name, side, acts)  # type: ignore[arg-type]
    images, trunk = cls.parts(spec)
    encoders = make_encoders(spec, images, shapes, net_class)
    net = net_class(trunk.type, "agent.net.type")(trunk, (encoders.size,), heads, *joined)  # type: ignore[arg-type]
    return ObsNet(net, encoders, list(shapes), name, side, acts)


def entry_shapes(spec: NetSpec, obs_shape: ObsShape) -> dict[str, Shape]:
    """The entries that a net looks at: all of an observation's, or those it names."""
    shapes = dict(obs_shape) if isinstance(obs_shape, Mapping) else {"obs": obs_shape}
    shapes.pop(MASK, None)
    for key in spec.entries or ():
        if key not in shapes:
            known = f"{hint(key, shapes)} Known: {', '.join(shapes)}."
            raise SpecError(f"agent.net.entries: the observation has no entry {key!r}.{known}")
    return {key: shapes[key] for key in spec.entries} if spec.entries else shapes
