"""Nets by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slm_lab.agent.net.base import Head, Net, NetSpec
from slm_lab.agent.net.dueling import DuelingMLPNet
from slm_lab.agent.net.mlp import MLPNet
from slm_lab.lib.plugin import component
from slm_lab.types import Shape

NETS: Mapping[str, type[Net]] = {"MLPNet": MLPNet, "DuelingMLPNet": DuelingMLPNet}


def net_class(name: object, path: str) -> type[Net]:
    """The net a spec names: one of ours, or `module:Class` of the user's own."""
    return component(NETS, name, path, "net", Net)


def make_net(spec: NetSpec, in_shape: Shape, heads: Sequence[Head], side: int = 0) -> Net:
    """The net of a parsed spec; `side` more numbers join the encoded observation, e.g. an action to be valued."""
    return net_class(spec.type, "agent.net.type")(spec, in_shape, heads, side)  # type: ignore[arg-type]
