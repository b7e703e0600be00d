"""The nets of a spec as they would be built: layers in the order they are passed, with shapes and parameter counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from slm_lab.agent import Agent, make_agent
from slm_lab.agent.net.obs_net import ObsNet
from slm_lab.agent.net.target import Target
from slm_lab.experiment.check import check, one_env
from slm_lab.spec.schema import Spec
from slm_lab.types import Shape, map_obs


@dataclass(frozen=True)
class Layer:
    """A layer of a net: where, what, what comes out for one observation, and its own parameters."""

    path: str
    kind: str
    shape: Shape
    params: int


@dataclass(frozen=True)
class NetSummary:
    """A net: where in the agent, what it takes, its layers."""

    path: str
    takes: str
    layers: list[Layer]
    params: int
    target: bool  # a copy that follows another net


@dataclass(frozen=True)
class Description:
    """An agent's nets, and how many parameters of its own learn, in and beside them."""

    nets: list[NetSummary]
    learnt: int


def describe(spec: Spec, notes: list[str]) -> Description:
    """Every net of a spec's agent, built for its env."""
    plan = check(spec, notes)
    env = one_env(spec.env, plan.gamma)
    try:
        agent = make_agent(plan, spec.env, env.spaces, (0, 0, 0))
        shown = agent.see(env.obs, env.action_mask).shown
    finally:
        env.close()
    notes.extend(agent.algorithm.notes)
    obs = map_obs(torch.from_numpy, shown)
    learnt = sum(param.numel() for param in agent.algorithm.nets.parameters() if param.requires_grad)
    copies = _copies(agent)
    return Description([_summary(path, net, obs, path in copies) for path, net in _nets(agent)], learnt)


def _nets(agent: Agent) -> Iterator[tuple[str, ObsNet]]:
    for path, module in agent.algorithm.nets.named_modules():
        if isinstance(module, ObsNet):
            yield path, module


def _copies(agent: Agent) -> set[str]:
    """Paths of nets inside targets."""
    targets = [path for path, module in agent.algorithm.nets.named_modules() if isinstance(module, Target)]
    return {path for path, _ in _nets(agent) for target in targets if path.startswith(f"{target}.")}


def _summary(path: str, net: ObsNet, obs: Any, target: bool) -> NetSummary:
    layers, net = list[Layer](), net.cpu().eval()
    entries = {key: entry for key, entry in obs.items() if key in _entries(net, obs)} if isinstance(obs, dict) else obs
    taken = entries if isinstance(entries, dict) else {"obs": entries}
    takes = [f"{key} {list(entry.shape[1:])}" for key, entry in taken.items()]
    if net.side:
        takes.append(f"action [{net.side}]")
    with torch.no_grad(), _watched(net, layers):
        net.forward(obs, torch.zeros(1, net.side) if net.side else None)
    return NetSummary(path, ", ".join(takes), layers, _count(net), target)


def _entries(net: ObsNet, obs: dict[str, Tensor]) -> list[str]:
    """Entries of an observation that a net looks at."""
    return [*net.keys, *(key for key in net.hidden if key in obs)]


@contextmanager
def _watched(net: ObsNet, layers: list[Layer]) -> Iterator[None]:
    """Note every layer that is passed, in the order it is. Chains call `forward` of theirs, which no hook would see."""
    leaves = [(_label(net, path), module) for path, module in net.named_modules() if _is_layer(path, module)]
    for path, module in leaves:
        module.forward = partial(_noted, path, module, module.forward, layers)
    try:
        yield
    finally:
        for _, module in leaves:
            del module.forward


def _label(net: ObsNet, path: str) -> str:
    """A layer's path, with the names of entries where the encoders have numbers."""
    keys = net.encoders.keys if net.encoders is not None else []
    for i, key in enumerate(keys):
        path = path.replace(f"encoders.nets.{i}.", f"encoders.{key}.")
    return path.removeprefix("net.")


def _is_layer(path: str, module: nn.Module) -> bool:
    """Whether a module is one line: it has no parts but those that norms of weights add."""
    return "parametrizations" not in path and all(name == "parametrizations" for name, _ in module.named_children())


def _noted(path: str, module: nn.Module, forward: Any, layers: list[Layer], *args: Any, **kwargs: Any) -> Any:
    output = forward(*args, **kwargs)
    first = output[0] if isinstance(output, tuple) else output
    leading = 2 if isinstance(module, nn.RNNBase) else 1  # steps and rows, or rows
    layers.append(Layer(path, _kind(module), tuple(first.shape[leading:]), _count(module)))
    return output


def _kind(module: nn.Module) -> str:
    """Class and settings, as torch shows them."""
    settings = module.extra_repr()
    return f"{type(module).__name__}({settings})" if settings else type(module).__name__


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
