"""Evaluation: whole episodes in envs of their own, with statistics that do not move."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from run_helpers import assert_equal, no_sinks, session, state_of, tiny_spec  # noqa: F401

from slm_lab.agent.algorithm import ALGORITHMS
from slm_lab.experiment.evaluate import evaluate, play
from slm_lab.experiment.session import Session
from slm_lab.types import Spaces, Step

KEY = (3, 0, 0)


@pytest.fixture(scope="module")
def trained() -> Session:
    """Pendulum with both normalisers, some way into training."""
    one = session(tiny_spec("PPO", "Pendulum-v1"))
    one.run(until=201)
    return one


def returns(
    one: Session, frame: int = 60, episodes: int = 4, deterministic: bool = True, key: Any = KEY
) -> list[float]:
    return evaluate(one.agent, one.spec.env, key, frame, episodes, deterministic)


@pytest.mark.parametrize("deterministic", [True, False])
def test_evaluating_changes_nothing_of_the_training(trained: Session, deterministic: bool) -> None:
    before = state_of(trained)
    assert trained.agent.normalizer is not None
    returns(trained, deterministic=deterministic)
    assert_equal(state_of(trained), before)


@pytest.mark.parametrize("episodes", [1, 2, 3, 5])
def test_there_are_as_many_returns_as_episodes_asked_for(trained: Session, episodes: int) -> None:
    assert len(returns(trained, episodes=episodes)) == episodes


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_can_be_evaluated_in_fewer_envs_than_it_trains_in(algorithm: str, deterministic: bool) -> None:
    one = session(tiny_spec(algorithm))
    assert one.spec.env.num_envs == 3
    assert len(returns(one, episodes=2, deterministic=deterministic)) == 2


def test_returns_are_raw_and_of_whole_episodes(trained: Session) -> None:
    # 50 steps of at most pi^2 + 0.1 * 8^2 + 0.001 * 2^2 each; normalised and clipped rewards would sum to far less
    for total in returns(trained):
        assert -50 * 16.3 < total < -50


def test_the_same_seed_and_frame_give_the_same_episodes(trained: Session) -> None:
    assert returns(trained) == returns(trained)
    assert returns(trained, deterministic=False) == returns(trained, deterministic=False)


def test_another_frame_or_seed_gives_other_episodes(trained: Session) -> None:
    first = returns(trained)
    assert returns(trained, frame=63) != first
    assert returns(trained, key=(4, 0, 0)) != first
    assert returns(trained, key=(3, 0, 1)) != first


def test_sampled_actions_score_otherwise_than_the_most_likely_ones(trained: Session) -> None:
    assert returns(trained, deterministic=False) != returns(trained)


def test_the_statistics_are_those_of_training(trained: Session) -> None:
    before = returns(trained)
    assert trained.agent.normalizer is not None
    moments = trained.agent.normalizer.moments["obs"]
    mean = moments.mean.copy()
    moments.mean = mean + 1
    try:
        assert returns(trained) != before
    finally:
        moments.mean = mean


class Metronome:
    """Two envs whose episodes always last 2 and 5 steps; a return is 10 times the env's number plus the episode's."""

    def __init__(self) -> None:
        self.spaces = Spaces((1,), np.dtype(np.float32), "discrete", 2, 2)
        self.obs: Any = np.zeros((2, 1), np.float32)
        self.action_mask = None
        self.t = 0
        self.played = [0, 0]

    def step(self, action: Any) -> Step:
        self.t += 1
        ended = np.array([self.t % 2 == 0, self.t % 5 == 0])
        totals = tuple(10.0 * env + self.played[env] for env in np.flatnonzero(ended))
        for env in np.flatnonzero(ended):
            self.played[env] += 1
        return Step(np.zeros(2, np.float32), self.obs, ended, np.zeros(2, bool), totals)


class Idle:
    def __call__(self, obs: Any, mask: Any, rng: Any) -> Any:
        return np.zeros(len(obs), np.int64)

    def ended(self, ended: Any) -> None:
        """Remembers nothing."""


@pytest.mark.parametrize(
    ("episodes", "expected"),
    [
        (2, [0, 10]),  # not [0, 1], the two that finish first
        (4, [0, 1, 10, 11]),
        (5, [0, 1, 10, 2, 11]),  # the odd one goes to the first env
    ],
)
def test_long_episodes_count_as_much_as_short_ones(episodes: int, expected: list[float]) -> None:
    assert sorted(play(Idle(), Metronome(), episodes, None)) == sorted(map(float, expected))  # type: ignore[arg-type]
