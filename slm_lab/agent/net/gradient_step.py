"""One step of an optimiser down a loss: as Python runs it, or as one compiled function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from slm_lab.agent.net.descent import Descent, Options, Remembered, descent_of
from slm_lab.agent.net.flat import views_in
from slm_lab.agent.net.optim import Group, Optim, sum_losses
from slm_lab.agent.net.program import Compiler, Program, Vector, Work
from slm_lab.lib.errors import RunError
from slm_lab.lib.noise import Noise
from slm_lab.types import Batch

Losses = tuple[dict[str, Tensor], dict[str, Tensor]]
"""Named terms whose sum is descended, and what else is worth knowing, without gradient."""
Loss = Callable[..., Losses]
"""(batch, noise, **knobs) -> Losses. Knobs are numbers that change from update to update: floats, or 0-d tensors."""


class GradientStep:
    """Descends a loss over batches, for all nets of an optimiser or `only` some.

    Compiled, one function computes loss, gradient and clipping, and steps where both are finite. A loss must find all
    that changes between two calls in its arguments and in the nets: the rest is fixed when it is compiled.
    """

    def __init__(self, name: str, loss: Loss, optim: Optim, only: Sequence[str] | None = None) -> None:
        self.name, self.loss, self.optim = name, loss, optim
        self.only = only
        self._pending = list[Any]()  # losses as floats, or [loss, *norms] as tensors
        self._compiled: _CompiledStep | None = None

    def compile(self, compiler: Compiler, nets: nn.Module) -> None:
        """From now on run as a compiled function; `nets` hold all that the loss uses."""
        self._compiled = _CompiledStep(self.name, self.loss, self.optim, self.only, compiler, nets)

    def __call__(self, batch: Batch, noise: Noise, **knobs: float) -> dict[str, Tensor]:
        """Take a step; what the loss finds out on the way."""
        if self._compiled is None:
            terms, found = self.loss(batch, noise, **knobs)
            self._pending.append(self.optim.step(terms, self.only))
        else:
            found = self._compiled(batch, noise, knobs)
            self._pending.append(found["result"])
        return found

    def losses(self) -> list[float]:
        """Of the steps since this was last asked, NaN where one was skipped."""
        pending, self._pending = self._pending, []
        if self._compiled is None or not pending:
            return pending
        found = torch.stack(pending).tolist() if len(pending) > 1 else [pending[0].tolist()]
        return [self.optim.reckon(self._compiled.names, loss, norms) for loss, *norms in found]


class _Part(NamedTuple):
    """A vector of parameters that a step changes: which, whose, and how."""

    number: int  # among all vectors
    group: Group
    param: nn.Parameter
    optimizer: Optimizer
    descent: Descent
    options: Options  # as they were at the start: of them only the learning rate changes
    keys: tuple[str, ...]  # of what the optimiser remembers
    rates: int  # numbers of a step


class _CompiledStep:
    """The whole of a step as one function of tensors."""

    def __init__(
        self,
        name: str,
        loss: Loss,
        optim: Optim,
        only: Sequence[str] | None,
        compiler: Compiler,
        nets: nn.Module,
    ) -> None:
        self.loss, self.optim = loss, optim
        self.names = tuple(optim.params) if only is None else tuple(only)
        parts = list(_parts(optim))
        self.parts = [part for part in parts if part.group.name in self.names]
        vectors = [Vector(part.param, views_in(part.param, part.group.params)) for part in parts]
        self.program = Program(name, self._descend, nets, vectors, compiler)
        self.form: tuple[Batch, tuple[str, ...]] | None = None  # what the inputs stand for

    def __call__(self, batch: Batch, noise: Noise, knobs: Mapping[str, float]) -> dict[str, Tensor]:
        self.form = self.form or (batch, tuple(knobs))
        kept, numbers = list[Tensor](), list[float]()
        for part in self.parts:
            state = self._state(part)
            kept += [state[key] for key in part.keys]
            numbers += part.descent.rates(self.optim.lr_of(part.group.name), state, part.options)
        numbers += knobs.values()
        inputs = [x.contiguous() for x in batch.tensors()]
        inputs.append(torch.from_numpy(np.array(numbers, np.float32)).to(batch.reward.device))
        return self.program(len(batch), kept, inputs, noise)

    def _state(self, part: _Part) -> Remembered:
        """What the optimiser remembers of a vector; made up before its first step."""
        if not part.keys:
            return {}
        state: Remembered = part.optimizer.state[part.param]
        if not state:
            state.update(part.descent.start(part.param.detach(), part.options))
        return state

    def _descend(self, work: Work) -> dict[str, Tensor]:
        """The step, as it is compiled."""
        assert self.form is not None
        inputs, kept = iter(work.inputs), iter(work.kept)
        batch = self.form[0].filled(inputs)
        states = [{key: next(kept) for key in part.keys} for part in self.parts]
        numbers = iter(next(inputs).unbind())
        rates = [[next(numbers) for _ in range(part.rates)] for part in self.parts]
        terms, found = self.loss(batch, work.noise, **dict(zip(self.form[1], numbers, strict=True)))
        total = sum_losses(terms)
        wanted = [work.vectors[part.number] for part in self.parts]
        grads = torch.autograd.grad(total, wanted, allow_unused=True, materialize_grads=True)
        with torch.no_grad():
            norms = self._norms(grads)
            fine = torch.stack([total, *norms.values()]).isfinite().all()
            for part, grad, state, each in zip(self.parts, grads, states, rates, strict=True):
                name, clip, memory = part.group.name, part.group.clip, work.memory[part.number]
                if clip is not None:
                    grad = grad * torch.where(norms[name] > clip, clip / (norms[name] + 1e-6), 1.0)
                param, after = part.descent.step(memory, grad, state, each, part.options)
                if part.group.bounds is not None:
                    param = param.clamp(*part.group.bounds)
                memory.copy_(torch.where(fine, param, memory))
                for key, value in after.items():
                    state[key].copy_(torch.where(fine, value, state[key]))
        return {"result": torch.stack([total.detach(), *norms.values()]), **found}

    def _norms(self, grads: Sequence[Tensor]) -> dict[str, Tensor]:
        """The norm of each net's gradient."""
        squares = dict.fromkeys(self.names, torch.zeros(()))
        for part, grad in zip(self.parts, grads, strict=True):
            squares[part.group.name] = squares[part.group.name] + (grad * grad).sum()
        return {name: square.sqrt() for name, square in squares.items()}


def _parts(optim: Optim) -> Iterator[_Part]:
    """Every vector of an optimiser's parameters."""
    number = 0
    for group in optim.groups:
        optimizer = optim.optimizers[group.name]
        descent = descent_of(optimizer)
        if descent is None:
            raise RunError(f"{type(optimizer).__name__} with these options has no compiled form")
        for options in optimizer.param_groups:
            for param in options["params"]:
                start = descent.start(param.detach(), options)
                rates = len(descent.rates(0.0, start, options))
                yield _Part(number, group, param, optimizer, descent, options, tuple(start), rates)
                number += 1


def uncompilable(optim: Optim) -> str | None:
    """Why the steps of an optimiser cannot be compiled; None where they can."""
    names = [type(o).__name__ for o in optim.optimizers.values() if descent_of(o) is None]
    return f"{names[0]} with its options has no compiled form" if names else None
