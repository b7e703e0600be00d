"""Checks of dev mode, and names for what is not finite."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from loguru import logger
from run_helpers import no_sinks, session, tiny_spec  # noqa: F401

from slm_lab.experiment.health import Health, what_is_not_finite
from slm_lab.experiment.session import Session
from slm_lab.types import Step


@pytest.fixture
def warnings() -> Any:
    lines = list[str]()
    sink = logger.add(lambda line: lines.append(line.record["message"]), level="WARNING")
    yield lines
    logger.remove(sink)


@pytest.fixture
def one() -> Session:
    """A session after its first update."""
    built = session(tiny_spec("PPO", "Pendulum-v1"))
    while not built.clock.opt_step:
        built.step()
    return built


def step(reward: float = 0.0, obs: Any = None) -> Step:
    flags = np.zeros(1, bool)
    return Step(np.full(1, reward, np.float32), np.zeros((1, 2)) if obs is None else obs, flags, flags)


def update(one: Session) -> None:
    """Train until the next update."""
    done = one.clock.opt_step
    while one.clock.opt_step == done:
        one.step()


def test_healthy_training_says_nothing(one: Session, warnings: list[str]) -> None:
    health = Health(one.agent)
    for _ in range(2):
        update(one)
        health.check()
    assert warnings == []


@pytest.mark.parametrize(("norm", "shown"), [(0.0, "0"), (2e5, "200000"), (math.nan, "nan"), (math.inf, "inf")])
def test_a_gradient_that_vanishes_or_explodes_is_named_once(
    one: Session, warnings: list[str], norm: float, shown: str
) -> None:
    health = Health(one.agent)
    update(one)
    assert one.agent.algorithm.optim is not None
    one.agent.algorithm.optim.norms["critic"] = norm
    for _ in range(3):
        health.check()
        health.sums["critic"] = health.sums["actor"] = -1.0
    assert warnings == [f"the gradient norm of critic is {shown}, outside (0, 100000)"]


def test_parameters_that_do_not_move_are_named_once(one: Session, warnings: list[str]) -> None:
    health = Health(one.agent)
    for _ in range(3):
        health.check()
    assert sorted(warnings) == [f"the parameters of {net} did not change in an update" for net in ("actor", "critic")]


def test_an_agent_that_learns_nothing_is_healthy(warnings: list[str]) -> None:
    health = Health(session(tiny_spec("Random")).agent)
    health.check()
    assert warnings == []


def test_what_is_not_finite_is_named(one: Session) -> None:
    agent = one.agent
    assert what_is_not_finite(agent) == "the loss alone"
    assert what_is_not_finite(agent, step()) == "the loss alone"
    assert what_is_not_finite(agent, step(math.inf)) == "reward"
    assert what_is_not_finite(agent, step(obs=np.array([[0, math.nan]]))) == "observation"
    entries = {"image": np.zeros((1, 2), np.uint8), "speed": np.array([[math.inf]])}
    assert what_is_not_finite(agent, step(math.nan, entries)) == "observation speed, reward"


def test_parameters_and_statistics_that_are_not_finite_are_named(one: Session) -> None:
    with torch.no_grad():
        name, parameter = next(iter(one.agent.algorithm.nets.named_parameters()))
        parameter[0] = math.nan
    assert one.agent.normalizer is not None
    one.agent.normalizer.moments["obs"].var[1] = math.inf
    assert what_is_not_finite(one.agent) == f"parameter {name}, statistics of observation obs"
