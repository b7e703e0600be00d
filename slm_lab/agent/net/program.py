"""A function that works on nets as one compiled function: parameters, buffers and inputs in, numbers out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from slm_lab.agent.net.flat import View
from slm_lab.lib.library import Captured, Library, Source, library
from slm_lab.lib.noise import Draw, Drawn, Noise, Wishes


@dataclass(frozen=True)
class Compiler:
    """Where libraries are kept, and what they depend on beside the name of a function and the shape of its inputs."""

    folder: Path
    key: str

    def library(self, name: str, rows: int, make: Callable[[], Source]) -> Library:
        key = hashlib.sha256(f"{self.key} {name} {rows}".encode()).hexdigest()[:24]
        return library(self.folder, f"{name}-{key}", make)


class Vector(NamedTuple):
    """A vector of parameters, and those of a net's that are views of it."""

    vector: Tensor
    views: list[View]


class Work(NamedTuple):
    """What a function works on: vectors to differentiate by, the memory they lie in, what is kept, inputs, noise."""

    vectors: list[Tensor]
    memory: list[Tensor]
    kept: list[Tensor]  # tensors beside the nets' that stay from call to call and may be written to
    inputs: list[Tensor]
    noise: Noise


Function = Callable[[Work], dict[str, Tensor]]


class _Whole(nn.Module):
    """Nets and a function that uses them as one module, so that torch can lend it other parameters."""

    def __init__(self, nets: nn.Module, function: Function) -> None:
        super().__init__()
        self.nets, self.function = nets, function

    def forward(self, work: Work) -> dict[str, Tensor]:
        return self.function(work)


@dataclass
class Program:
    """A function of nets and tensors, compiled once for each number of rows; all else about its inputs is fixed.

    It runs with the parameters and buffers that `nets` have at the time, and may write to them.
    """

    name: str
    function: Function
    nets: nn.Module
    vectors: Sequence[Vector]
    compiler: Compiler
    _libraries: dict[int, tuple[Library | Captured, list[Draw]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = {id(param): name for name, param in self.nets.named_parameters(remove_duplicate=False)}
        self._leaves = [[(names[id(view.leaf)], view) for view in vector.views] for vector in self.vectors]
        held = {name for leaves in self._leaves for name, _ in leaves}
        rest: dict[str, Tensor] = {**dict(self.nets.named_parameters()), **dict(self.nets.named_buffers())}
        self._others = {name: tensor.detach() for name, tensor in rest.items() if name not in held}
        self._state = [*(vector.vector.detach() for vector in self.vectors), *self._others.values()]
        self._device = self._state[0].device

    def __call__(self, rows: int, kept: Sequence[Tensor], inputs: Sequence[Tensor], noise: Noise) -> dict[str, Tensor]:
        if rows not in self._libraries:
            self._libraries[rows] = self._compiled(rows, kept, inputs)
        found, wishes = self._libraries[rows]
        return found([*self._state, *kept, *inputs, *(noise.draw(wish).to(self._device) for wish in wishes)])

    def _compiled(
        self, rows: int, kept: Sequence[Tensor], inputs: Sequence[Tensor]
    ) -> tuple[Library | Captured, list[Draw]]:
        found: Library | Captured
        if self._device.type == "cpu":
            found = self.compiler.library(self.name, rows, lambda: self.source(kept, inputs))
        else:
            found = Captured(self.source(kept, inputs), [*self._state, *kept])
        return found, [Draw(kind, tuple(shape), high) for kind, shape, high in found.notes["wishes"]]

    def source(self, kept: Sequence[Tensor], inputs: Sequence[Tensor]) -> Source:
        """What is to be compiled. The function is looked at twice: first for the random numbers it asks for."""
        example, count, wishes = [*self._state, *kept, *inputs], len(kept), Wishes()
        with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True) as mode:
            self._call([mode.from_tensor(tensor) for tensor in example], count, wishes)
        drawn = [Wishes().draw(wish).to(self._device) for wish in wishes.noted]
        notes: dict[str, Any] = {"wishes": [list(wish) for wish in wishes.noted]}

        def function(tensors: Sequence[Tensor]) -> dict[str, Tensor]:
            return self._call(tensors[: len(example)], count, Drawn(tensors[len(example) :]))

        return Source(function, [*example, *drawn], notes)

    def _call(self, tensors: Sequence[Tensor], count: int, noise: Noise) -> dict[str, Tensor]:
        """The function, with these in place of the nets' own tensors: vectors, others, `count` kept ones, inputs."""
        first, last = len(self.vectors), len(self._state)
        memory = list(tensors[:first])
        vectors = [tensor.detach().requires_grad_() for tensor in memory]
        lent = dict(zip(self._others, tensors[first:last], strict=True))
        for vector, leaves in zip(vectors, self._leaves, strict=True):
            # one split, whose gradient is one cat; slices would add up a vector each
            pieces = torch.split(vector.view(-1), [view.leaf.numel() for _, view in leaves])
            lent |= {name: piece.view(view.leaf.shape) for (name, view), piece in zip(leaves, pieces, strict=True)}
        whole = _Whole(self.nets, self.function)
        work = Work(vectors, memory, list(tensors[last : last + count]), list(tensors[last + count :]), noise)
        found: dict[str, Tensor] = functional_call(
            whole, {f"nets.{key}": value for key, value in lent.items()}, (work,)
        )
        return found
