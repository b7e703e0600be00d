"""Optimiser steps as functions: the same as torch's own, step by step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from slm_lab.agent.net.descent import DESCENTS, Descent, Options, Remembered, descent_of

STEPS = 20
START = torch.randn(7, generator=torch.Generator().manual_seed(1))
OPTIONS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "Adam": (torch.optim.Adam, {}),
    "Adam with betas and eps": (torch.optim.Adam, {"betas": (0.7, 0.9), "eps": 1e-3}),
    "Adam with decay": (torch.optim.Adam, {"weight_decay": 0.1}),
    "Adam, fused": (torch.optim.Adam, {"fused": True}),
    "AdamW": (torch.optim.AdamW, {}),
    "AdamW with decay": (torch.optim.AdamW, {"weight_decay": 0.3, "betas": (0.7, 0.9)}),
    "AdamW without decay": (torch.optim.AdamW, {"weight_decay": 0.0}),
    "RMSprop": (torch.optim.RMSprop, {}),
    "RMSprop with alpha and eps": (torch.optim.RMSprop, {"alpha": 0.8, "eps": 1e-3}),
    "RMSprop with momentum": (torch.optim.RMSprop, {"momentum": 0.9}),
    "RMSprop with momentum and decay": (torch.optim.RMSprop, {"momentum": 0.5, "weight_decay": 0.1}),
    "SGD": (torch.optim.SGD, {}),
    "SGD with momentum": (torch.optim.SGD, {"momentum": 0.9}),
    "SGD with nesterov": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "SGD with decay": (torch.optim.SGD, {"weight_decay": 0.1}),
    "SGD with momentum, nesterov and decay": (
        torch.optim.SGD,
        {"momentum": 0.5, "nesterov": True, "weight_decay": 0.1},
    ),
}
OTHERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "Adam with amsgrad": (torch.optim.Adam, {"amsgrad": True}),
    "Adam that climbs": (torch.optim.Adam, {"maximize": True}),
    "Adam with decay apart": (torch.optim.Adam, {"decoupled_weight_decay": True}),
    "AdamW with amsgrad": (torch.optim.AdamW, {"amsgrad": True}),
    "AdamW that climbs": (torch.optim.AdamW, {"maximize": True}),
    "RMSprop, centred": (torch.optim.RMSprop, {"centered": True}),
    "RMSprop that climbs": (torch.optim.RMSprop, {"maximize": True}),
    "SGD with dampening": (torch.optim.SGD, {"momentum": 0.9, "dampening": 0.1}),
    "SGD that climbs": (torch.optim.SGD, {"maximize": True}),
    "Adagrad": (torch.optim.Adagrad, {}),
    "RAdam": (torch.optim.RAdam, {}),
}


def made(cls: Any, options: dict[str, Any]) -> tuple[nn.Parameter, torch.optim.Optimizer]:
    param = nn.Parameter(START.clone())
    return param, cls([param], lr=0.1, **options)


def gradients() -> list[Tensor]:
    """Of both signs and several sizes, with a step that has none."""
    found = list(torch.randn(STEPS, 7, generator=torch.Generator().manual_seed(2)) * torch.logspace(-3, 0, 7))
    found[5] = torch.zeros(7)
    return found


def rates(descent: Descent, lr: float, state: Remembered, options: Options) -> list[Tensor]:
    return [torch.tensor(number) for number in descent.rates(lr, state, options)]


def rate(step: int) -> float:
    return 0.03 / (1 + step)


def test_every_descent_is_among_those_tested() -> None:
    assert {cls for cls, _ in OPTIONS.values()} == set(DESCENTS)


@pytest.mark.parametrize("case", OPTIONS)
def test_a_descent_is_the_step_of_torch_and_remembers_the_same(case: str) -> None:
    param, optimizer = made(*OPTIONS[case])
    descent, options = descent_of(optimizer), optimizer.param_groups[0]
    assert descent is not None
    ours, state = START.clone(), descent.start(START, options)
    for step, grad in enumerate(gradients()):
        options["lr"] = rate(step)
        param.grad = grad.clone()
        optimizer.step()
        ours, state = descent.step(ours, grad, state, rates(descent, rate(step), state, options), options)
        torch.testing.assert_close(ours, param.detach(), rtol=1e-6, atol=1e-6)
        theirs = {key: value for key, value in optimizer.state[param].items() if value is not None}
        assert list(state) == list(theirs)
        for key in theirs:
            torch.testing.assert_close(state[key], theirs[key], rtol=1e-6, atol=1e-6)
    assert (ours - START).abs().max() > 1e-2


def test_the_first_steps_of_adam_are_as_long_as_they_should_be() -> None:
    _, optimizer = made(torch.optim.Adam, {})
    descent, options = descent_of(optimizer), optimizer.param_groups[0]
    assert descent is not None
    ours, state = torch.zeros(1), descent.start(torch.zeros(1), options)
    for step in range(3):
        # a gradient that stays the same is its own mean, and its size the root of its mean square
        ours, state = descent.step(ours, torch.ones(1), state, rates(descent, 1.0, state, options), options)
        assert ours.item() == pytest.approx(-(step + 1), rel=1e-6)


@pytest.mark.parametrize("case", OPTIONS)
def test_a_descent_changes_nothing_that_it_is_given(case: str) -> None:
    _, optimizer = made(*OPTIONS[case])
    descent, options = descent_of(optimizer), optimizer.param_groups[0]
    assert descent is not None
    param, grad, state = START.clone(), gradients()[0], descent.start(START, options)
    before = {key: value.clone() for key, value in state.items()}
    descent.step(param, grad, state, rates(descent, 0.1, state, options), options)
    assert torch.equal(param, START)
    assert torch.equal(grad, gradients()[0])
    assert all(torch.equal(state[key], before[key]) for key in before)


@pytest.mark.parametrize("case", OTHERS)
def test_there_is_no_descent_for(case: str) -> None:
    assert descent_of(made(*OTHERS[case])[1]) is None


def test_there_is_no_descent_where_one_of_several_groups_has_none() -> None:
    groups: list[dict[str, Any]] = [
        {"params": [nn.Parameter(torch.zeros(2))]},
        {"params": [nn.Parameter(torch.zeros(3))], "amsgrad": True},
    ]
    assert descent_of(torch.optim.Adam(groups)) is None
    del groups[1]["amsgrad"]
    assert descent_of(torch.optim.Adam(groups)) is DESCENTS[torch.optim.Adam]
