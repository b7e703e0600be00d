from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from slm_lab.agent.algorithm.returns import bootstrapped_returns, episode_returns, gae
from slm_lab.types import Array


class Rollout(NamedTuple):
    """A rollout [T, N] and the values of its rows and their true successors."""

    reward: Array
    value: Array
    next_value: Array
    terminated: Array
    truncated: Array

    @property
    def ended(self) -> Array:
        return np.asarray(self.terminated | self.truncated)

    def gae(self, gamma: float, lam: float) -> Array:
        return gae(self.reward, self.value, self.next_value, self.terminated, self.ended, gamma, lam)

    def returns(self, gamma: float) -> Array:
        return bootstrapped_returns(self.reward, self.next_value, self.terminated, self.ended, gamma)


def column(*values: float) -> Array:
    """[T, 1] of one env."""
    return np.array(values, np.float64)[:, None]


def flags(*on: int, rows: int = 4) -> Array:
    """[T, 1], true in the rows `on`."""
    return np.isin(np.arange(rows), on)[:, None]


def four_rows(terminated: tuple[int, ...] = (), truncated: tuple[int, ...] = (), final: float = 1.5) -> Rollout:
    """r = 1 2 3 4, V = .5 1 1.5 2, bootstrap 2.5; `final` is the value of what followed row 1."""
    return Rollout(
        column(1, 2, 3, 4), column(0.5, 1, 1.5, 2), column(1, final, 2, 2.5), flags(*terminated), flags(*truncated)
    )


def random_rollout(steps: int = 30, envs: int = 4) -> Rollout:
    """Several episodes an env, ended either way; a successor has the next row's value unless an episode ended."""
    rng = np.random.default_rng(5)
    reward, value, final = rng.normal(size=(3, steps, envs))
    terminated, truncated = rng.random((2, steps, envs)) < 0.1
    follows = np.append(value[1:], final[-1:], 0)
    return Rollout(reward, value, np.where(terminated | truncated, final, follows), terminated, truncated)


def summed_return(rollout: Rollout, t: int, env: int, gamma: float) -> float:
    """Discounted rewards from row t to where the episode or the rollout ends, and the value there: the definition."""
    total = 0.0
    for k, row in enumerate(range(t, len(rollout.reward))):
        total += gamma**k * rollout.reward[row, env]
        if rollout.ended[row, env] or row == len(rollout.reward) - 1:
            bootstrap = 0.0 if rollout.terminated[row, env] else rollout.next_value[row, env]
            return float(total + gamma ** (k + 1) * bootstrap)
    raise AssertionError("rows end with the rollout")


# gamma .9, lam .8; deltas without an end: 1.4, 2.35, 3.3, 4.25
@pytest.mark.parametrize(
    ("rollout", "expected"),
    [
        pytest.param(four_rows(), (6.389024, 6.9292, 6.36, 4.25), id="no end"),
        pytest.param(four_rows(terminated=(1,)), (2.12, 1.0, 6.36, 4.25), id="terminated at 1"),
        pytest.param(four_rows(truncated=(1,), final=7), (6.656, 7.3, 6.36, 4.25), id="truncated at 1"),
    ],
)
def test_gae_by_hand(rollout: Rollout, expected: tuple[float, ...]) -> None:
    assert np.allclose(rollout.gae(0.9, 0.8), column(*expected), atol=1e-9)


def test_gae_does_not_look_at_the_successor_of_a_terminal_row() -> None:
    one, other = four_rows(terminated=(1,), final=7), four_rows(terminated=(1,), final=-99)
    assert np.array_equal(one.gae(0.9, 0.8), other.gae(0.9, 0.8))


def test_gae_with_lambda_one_plus_value_is_the_discounted_return() -> None:
    rollout = random_rollout()
    expected = np.array([[summed_return(rollout, t, env, 0.9) for env in range(4)] for t in range(30)])
    assert np.allclose(rollout.gae(0.9, 1.0) + rollout.value, expected)
    assert np.allclose(rollout.returns(0.9), expected)


def test_gae_with_lambda_zero_is_the_one_step_error() -> None:
    rollout = random_rollout()
    error = rollout.reward + 0.9 * np.where(rollout.terminated, 0, rollout.next_value) - rollout.value
    assert np.allclose(rollout.gae(0.9, 0.0), error)


def test_returns_of_one_step_are_the_one_step_target() -> None:
    rollout = random_rollout(steps=1)
    target = rollout.reward + 0.9 * np.where(rollout.terminated, 0, rollout.next_value)
    assert np.allclose(rollout.returns(0.9), target)


@pytest.mark.parametrize("lam", [0.0, 0.8, 1.0])
def test_envs_of_a_rollout_do_not_touch(lam: float) -> None:
    rollout = random_rollout()
    together = rollout.gae(0.9, lam), rollout.returns(0.9), episode_returns(rollout.reward, rollout.ended, 0.9)
    for env in range(4):
        alone = Rollout(*(part[:, env : env + 1] for part in rollout))
        apart = alone.gae(0.9, lam), alone.returns(0.9), episode_returns(alone.reward, alone.ended, 0.9)
        for one, all_of_them in zip(apart, together, strict=True):
            assert np.array_equal(one[:, 0], all_of_them[:, env])


def test_bootstrapped_returns_by_hand() -> None:
    # from the end: 4 + .5 * 2.5; 3 + .5 * that; cut by a time limit: 2 + .5 * 7; 1 + .5 * that
    expected = column(1 + 0.5 * 5.5, 2 + 0.5 * 7, 3 + 0.5 * 5.25, 5.25)
    assert np.allclose(four_rows(truncated=(1,), final=7).returns(0.5), expected)
    # terminated there instead: no value is added
    assert np.allclose(four_rows(terminated=(1,), final=7).returns(0.5)[:2], column(2, 2))


def test_episode_returns_start_anew_after_either_end() -> None:
    reward, ended = column(1, 2, 3, 4), flags(1, 3)
    assert np.allclose(episode_returns(reward, ended, 0.5), column(2, 2, 5, 4))


def test_an_unended_last_row_has_no_value_added_to_its_episode_return() -> None:
    assert np.allclose(episode_returns(column(1, 2, 3, 4), flags(), 1.0), column(10, 9, 7, 4))


def test_inputs_are_left_as_they_were() -> None:
    rollout = random_rollout()
    copies = [part.copy() for part in rollout]
    rollout.gae(0.9, 0.8), rollout.returns(0.9), episode_returns(rollout.reward, rollout.ended, 0.9)
    assert all(np.array_equal(part, copy) for part, copy in zip(rollout, copies, strict=True))
