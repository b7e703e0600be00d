"""Optimiser steps as pure functions of tensors: what torch.optim does in place, in a form that compiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
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


class Descent(NamedTuple):
    """A kind of optimiser: what it remembers at the start, its step, and options that it cannot do."""

    start: Callable[[Tensor, Options], Remembered]
    step: Callable[[Tensor, Tensor, Remembered, Tensor, Options], Stepped]  # param, gradient, state, rate, options
    without: tuple[str, ...]


def _adam_start(param: Tensor, options: Options) -> Remembered:
    return {"step": torch.zeros(()), "exp_avg": torch.zeros_like(param), "exp_avg_sq": torch.zeros_like(param)}


def _adam_moments(grad: Tensor, state: Remembered, options: Options) -> tuple[Remembered, Tensor]:
    """The moments after a gradient, and the direction of the step."""
    beta1, beta2 = options["betas"]
    step = state["step"] + 1
    mean = state["exp_avg"].lerp(grad, 1 - beta1)
    square = state["exp_avg_sq"] * beta2 + grad * grad * (1 - beta2)
    scale = square.sqrt() / _share_seen(beta2, step).sqrt() + options["eps"]
    return {"step": step, "exp_avg": mean, "exp_avg_sq": square}, mean / _share_seen(beta1, step) / scale


def _share_seen(beta: float, step: Tensor) -> Tensor:
    """1 - beta^step, without the digits that a subtraction from 1 would lose."""
    return -torch.expm1(step * math.log(beta)) if beta > 0 else torch.ones_like(step)


def adam(param: Tensor, grad: Tensor, state: Remembered, lr: Tensor, options: Options) -> Stepped:
    """Kingma and Ba 2015; weight decay as a part of the gradient."""
    after, direction = _adam_moments(_decayed(grad, param, options), state, options)
    return Stepped(param - lr * direction, after)


def adam_w(param: Tensor, grad: Tensor, state: Remembered, lr: Tensor, options: Options) -> Stepped:
    """Loshchilov and Hutter 2019: weight decay apart from the gradient."""
    after, direction = _adam_moments(grad, state, options)
    return Stepped(param * (1 - lr * options["weight_decay"]) - lr * direction, after)


def _rms_prop_start(param: Tensor, options: Options) -> Remembered:
    state = {"step": torch.zeros(()), "square_avg": torch.zeros_like(param)}
    return state | ({"momentum_buffer": torch.zeros_like(param)} if options["momentum"] else {})


def rms_prop(param: Tensor, grad: Tensor, state: Remembered, lr: Tensor, options: Options) -> Stepped:
    """Tieleman and Hinton 2012."""
    grad, alpha = _decayed(grad, param, options), options["alpha"]
    square = state["square_avg"] * alpha + grad * grad * (1 - alpha)
    direction, after = grad / (square.sqrt() + options["eps"]), {"step": state["step"] + 1, "square_avg": square}
    if options["momentum"]:
        direction = state["momentum_buffer"] * options["momentum"] + direction
        after["momentum_buffer"] = direction
    return Stepped(param - lr * direction, after)


def _sgd_start(param: Tensor, options: Options) -> Remembered:
    return {"momentum_buffer": torch.zeros_like(param)} if options["momentum"] else {}


def sgd(param: Tensor, grad: Tensor, state: Remembered, lr: Tensor, options: Options) -> Stepped:
    """Plain descent, with momentum where asked for."""
    direction, after = _decayed(grad, param, options), Remembered()
    if options["momentum"]:
        buffer = state["momentum_buffer"] * options["momentum"] + direction
        direction = direction + options["momentum"] * buffer if options["nesterov"] else buffer
        after["momentum_buffer"] = buffer
    return Stepped(param - lr * direction, after)


def _decayed(grad: Tensor, param: Tensor, options: Options) -> Tensor:
    return grad + options["weight_decay"] * param if options["weight_decay"] else grad


DESCENTS: Mapping[type[Optimizer], Descent] = {
    torch.optim.Adam: Descent(_adam_start, adam, ("amsgrad", "maximize", "decoupled_weight_decay")),
    torch.optim.AdamW: Descent(_adam_start, adam_w, ("amsgrad", "maximize")),
    torch.optim.RMSprop: Descent(_rms_prop_start, rms_prop, ("centered", "maximize")),
    torch.optim.SGD: Descent(_sgd_start, sgd, ("dampening", "maximize")),
}


def descent_of(optimizer: Optimizer) -> Descent | None:
    """How to take an optimiser's step in a compiled function; None where there is no way."""
    found = DESCENTS.get(type(optimizer))
    if found is None or any(group.get(option) for group in optimizer.param_groups for option in found.without):
        return None
    return found
