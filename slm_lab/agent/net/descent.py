"""Optimiser steps as pure functions of tensors: what torch.optim does in place, in a form that compiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

Remembered = dict[str, Tensor]  # what an optimiser remembers of a parameter, by torch's names
Options = Mapping[str, Any]  # of a parameter group


class Stepped(NamedTuple):
    """A parameter after a step, and what is remembered of it."""

    param: Tensor
    state: Remembered


Rates = Sequence[Tensor]  # numbers of one step, 0-d each


class Descent(NamedTuple):
    """A kind of optimiser: what it remembers at the start, the numbers of its next step, the step, and what it cannot.

    What is one number for a whole vector is worked out beforehand and not in the step, which would do so for each
    element.
    """

    start: Callable[[Tensor, Options], Remembered]
    rates: Callable[[float, Remembered, Options], tuple[float, ...]]  # learning rate, state, options
    step: Callable[[Tensor, Tensor, Remembered, Rates, Options], Stepped]  # param, gradient, state, rates, options
    without: tuple[str, ...]  # options


def _adam_start(param: Tensor, options: Options) -> Remembered:
    return {
        "step": torch.zeros((), device=param.device),
        "exp_avg": torch.zeros_like(param),
        "exp_avg_sq": torch.zeros_like(param),
    }


def _adam_rates(lr: float, state: Remembered, options: Options) -> tuple[float, ...]:
    """The length of a step, what the root of squares is multiplied by, and the share of a parameter that stays."""
    step, (beta1, beta2) = state["step"].item() + 1, options["betas"]
    return lr / (1 - beta1**step), 1 / math.sqrt(1 - beta2**step), 1 - lr * options["weight_decay"]


def _adam_moments(grad: Tensor, state: Remembered, root: Tensor, options: Options) -> tuple[Remembered, Tensor]:
    """The moments after a gradient, and the direction of the step."""
    beta1, beta2 = options["betas"]
    mean = state["exp_avg"].lerp(grad, 1 - beta1)
    square = state["exp_avg_sq"] * beta2 + grad * grad * (1 - beta2)
    after = {"step": state["step"] + 1, "exp_avg": mean, "exp_avg_sq": square}
    return after, mean / (square.sqrt() * root + options["eps"])


def adam(param: Tensor, grad: Tensor, state: Remembered, rates: Rates, options: Options) -> Stepped:
    """Kingma and Ba 2015; weight decay as a part of the gradient."""
    length, root, _ = rates
    after, direction = _adam_moments(_decayed(grad, param, options), state, root, options)
    return Stepped(param - length * direction, after)


def adam_w(param: Tensor, grad: Tensor, state: Remembered, rates: Rates, options: Options) -> Stepped:
    """Loshchilov and Hutter 2019: weight decay apart from the gradient."""
    length, root, stays = rates
    after, direction = _adam_moments(grad, state, root, options)
    return Stepped(param * stays - length * direction, after)


def _rms_prop_start(param: Tensor, options: Options) -> Remembered:
    state = {"step": torch.zeros((), device=param.device), "square_avg": torch.zeros_like(param)}
    return state | ({"momentum_buffer": torch.zeros_like(param)} if options["momentum"] else {})


def _plain_rate(lr: float, state: Remembered, options: Options) -> tuple[float, ...]:
    return (lr,)


def rms_prop(param: Tensor, grad: Tensor, state: Remembered, rates: Rates, options: Options) -> Stepped:
    """Tieleman and Hinton 2012."""
    grad, alpha, (length,) = _decayed(grad, param, options), options["alpha"], rates
    square = state["square_avg"] * alpha + grad * grad * (1 - alpha)
    direction, after = grad / (square.sqrt() + options["eps"]), {"step": state["step"] + 1, "square_avg": square}
    if options["momentum"]:
        direction = state["momentum_buffer"] * options["momentum"] + direction
        after["momentum_buffer"] = direction
    return Stepped(param - length * direction, after)


def _sgd_start(param: Tensor, options: Options) -> Remembered:
    return {"momentum_buffer": torch.zeros_like(param)} if options["momentum"] else {}


def sgd(param: Tensor, grad: Tensor, state: Remembered, rates: Rates, options: Options) -> Stepped:
    """Plain descent, with momentum where asked for."""
    direction, after, (length,) = _decayed(grad, param, options), Remembered(), rates
    if options["momentum"]:
        buffer = state["momentum_buffer"] * options["momentum"] + direction
        direction = direction + options["momentum"] * buffer if options["nesterov"] else buffer
        after["momentum_buffer"] = buffer
    return Stepped(param - length * direction, after)


def _decayed(grad: Tensor, param: Tensor, options: Options) -> Tensor:
    return grad + options["weight_decay"] * param if options["weight_decay"] else grad


DESCENTS: Mapping[type[Optimizer], Descent] = {
    torch.optim.Adam: Descent(_adam_start, _adam_rates, adam, ("amsgrad", "maximize", "decoupled_weight_decay")),
    torch.optim.AdamW: Descent(_adam_start, _adam_rates, adam_w, ("amsgrad", "maximize")),
    torch.optim.RMSprop: Descent(_rms_prop_start, _plain_rate, rms_prop, ("centered", "maximize")),
    torch.optim.SGD: Descent(_sgd_start, _plain_rate, sgd, ("dampening", "maximize")),
}


def descent_of(optimizer: Optimizer) -> Descent | None:
    """How to take an optimiser's step in a compiled function; None where there is no way."""
    found = DESCENTS.get(type(optimizer))
    if found is None or any(group.get(option) for group in optimizer.param_groups for option in found.without):
        return None
    return found
