"""Parameters and optimiser state that several processes train together: in shared memory, stepped one at a time."""

from __future__ import annotations

import copy
import fcntl
import os
import weakref
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from slm_lab.agent.net.flat import views_in

ALIGN = 64  # bytes: tensors start where a cache line does
PARAM = ""  # the name of a parameter itself, beside the names of what the optimiser remembers of it
BEFORE_FIRST_STEP = {"step": 0.0, "mu_product": 1.0}  # what a step on a zero gradient changes all the same
Mode = Literal["shared", "synced"]
Tensors = dict[str, list[dict[str, Tensor]]]  # of each group's parameters: itself, and what is remembered of it


class Place(NamedTuple):
    """Where a tensor lies in shared memory."""

    group: str
    param: int  # its place in the group
    name: str
    start: int  # bytes
    dtype: torch.dtype
    shape: torch.Size


@dataclass(frozen=True)
class SharedWeights:
    """What workers train together. A process argument: each process that gets it holds the same memory.

    One block holds all tensors, since each piece of shared memory takes a file descriptor and few can be handed over.
    """

    mode: Mode
    workers: int
    lock: Path  # a file of this machine
    memory: Tensor  # bytes
    places: tuple[Place, ...]

    def tensors(self) -> Tensors:
        """The tensors in the shared memory, by group and parameter."""
        found: Tensors = {}
        for place in self.places:
            params = found.setdefault(place.group, [])
            if place.param == len(params):
                params.append({})
            size = place.shape.numel() * place.dtype.itemsize
            piece = self.memory[place.start : place.start + size].view(place.dtype)
            params[place.param][place.name] = piece.view(place.shape)
        return found


def share(optimizers: Mapping[str, Optimizer], mode: Mode, workers: int, lock: Path) -> SharedWeights:
    """Copy what the optimisers step and remember to shared memory."""
    tensors: Tensors = {name: _tensors(optimizer) for name, optimizer in optimizers.items()}
    places, end = list[Place](), 0
    for group, params in tensors.items():
        for index, param in enumerate(params):
            for name, tensor in param.items():
                places.append(Place(group, index, name, end, tensor.dtype, tensor.shape))
                end += -(-tensor.nbytes // ALIGN) * ALIGN
    memory: Tensor = torch.zeros(end, dtype=torch.uint8).share_memory_()  # type: ignore[no-untyped-call]
    weights = SharedWeights(mode, workers, lock, memory, tuple(places))
    for group, homes in weights.tensors().items():
        for home, param in zip(homes, tensors[group], strict=True):
            for name, tensor in param.items():
                home[name].copy_(tensor)
    return weights


def _tensors(optimizer: Optimizer) -> list[dict[str, Tensor]]:
    """Each parameter with what the optimiser remembers of it, also where it has not taken a step yet."""
    stepped = _after_nothing(optimizer)
    found = list[dict[str, Tensor]]()
    for ours, theirs in zip(_params(optimizer), _params(stepped), strict=True):
        state: dict[str, Tensor] = optimizer.state.get(ours) or stepped.state.get(theirs) or {}
        found.append({PARAM: ours.detach(), **state})
    return found


def _after_nothing(optimizer: Optimizer) -> Optimizer:
    """A copy after one step on zero gradients: most optimisers create their state in a step, each in its own way."""
    stepped = copy.deepcopy(optimizer)
    for group in stepped.param_groups:
        if "weight_decay" in group:
            group["weight_decay"] = 0.0  # it may pass for a gradient
    for param in _params(stepped):
        param.grad = torch.zeros_like(param)
    stepped.step()
    for state in stepped.state.values():
        for name in state.keys() & BEFORE_FIRST_STEP.keys():
            state[name].fill_(BEFORE_FIRST_STEP[name])
    return stepped


def _params(optimizer: Optimizer) -> list[nn.Parameter]:
    return [param for group in optimizer.param_groups for param in group["params"]]


class FileLock:
    """Keeps other processes out. Theirs again as soon as its holder dies: the kernel lets go of a file's lock."""

    def __init__(self, path: Path) -> None:
        self.handle = os.open(path, os.O_RDWR)
        weakref.finalize(self, os.close, self.handle)

    def __enter__(self) -> None:
        fcntl.flock(self.handle, fcntl.LOCK_EX)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        fcntl.flock(self.handle, fcntl.LOCK_UN)


class SharedStep:
    """One worker's steps on what all of them train, so that every gradient is applied once and none is lost.

    shared: the worker's parameters are the common ones, and change under it while it computes a gradient.
    synced: it has parameters of its own; a step puts its gradient on the common ones and then copies those.
    """

    def __init__(
        self,
        weights: SharedWeights,
        optimizers: Mapping[str, Optimizer],
        leaves: Mapping[str, list[nn.Parameter]],  # of the nets; optimisers may step flat vectors that hold them
    ) -> None:
        self.lock, self.optimizers = FileLock(weights.lock), optimizers
        self.pairs: dict[str, list[tuple[nn.Parameter, nn.Parameter]]] = {}  # synced: (ours, everyone's)
        for name, params in weights.tensors().items():
            if weights.mode == "shared":
                _move_in(optimizers[name], params, leaves[name])
            else:
                self.pairs[name] = _step_copies(optimizers[name], params)
        with self.lock:
            self._fetch(self.pairs)

    def step(self, names: Collection[str]) -> None:
        """Step these groups by the gradients of this worker."""
        with self.lock:
            for name in names:
                for ours, everyones in self.pairs.get(name, ()):
                    everyones.grad = ours.grad
                self.optimizers[name].step()
            self._fetch(names)

    def _fetch(self, names: Collection[str]) -> None:
        """Copy the common parameters to our own, where we have any."""
        for name in names:
            for ours, everyones in self.pairs.get(name, ()):
                ours.data.copy_(everyones.data)


def _move_in(optimizer: Optimizer, homes: list[dict[str, Tensor]], leaves: list[nn.Parameter]) -> None:
    """Let parameters, the leaves that are views of them, and the optimiser's state live in shared memory."""
    for param, home in zip(_params(optimizer), homes, strict=True):
        for view in views_in(param, leaves):
            view.leaf.data = home[PARAM].view(-1)[view.start : view.stop].view(view.leaf.shape)
        param.data = home[PARAM]
        optimizer.state[param] = _remembered(home)


def _step_copies(optimizer: Optimizer, homes: list[dict[str, Tensor]]) -> list[tuple[nn.Parameter, nn.Parameter]]:
    """Let the optimiser step the shared parameters instead of ours; the pairs (ours, everyone's)."""
    pairs = [(ours, nn.Parameter(home[PARAM])) for ours, home in zip(_params(optimizer), homes, strict=True)]
    twins = dict(pairs)
    optimizer.state.clear()
    for group in optimizer.param_groups:
        group["params"] = [twins[param] for param in group["params"]]
    for (_, everyones), home in zip(pairs, homes, strict=True):
        optimizer.state[everyones] = _remembered(home)
    return pairs


def _remembered(home: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in home.items() if name != PARAM}
