from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from made_up import spaces
from torch import Tensor

from slm_lab.agent.algorithm.acting import NetActor
from slm_lab.agent.algorithm.policy import Policy
from slm_lab.lib.rng import Rng
from slm_lab.spec.schema import Schedule

CPU = torch.device("cpu")


def actor(row: list[list[float]], kind: Any, pdtype: str, rule: str = "default", /, **keys: Any) -> NetActor:
    """Acts on the same outputs whatever it sees: one row for each head."""

    def forward(obs: Any) -> tuple[list[Tensor], dict[str, Tensor]]:
        rows = len(next(iter(obs.values()))) if isinstance(obs, dict) else len(obs)
        return [torch.tensor(head).expand(rows, -1) for head in row], {}

    return NetActor(Policy(spaces(kind, len(row[0])), pdtype, rule), forward, CPU, {}, **keys)


def seen(rows: int) -> Any:
    return np.zeros((rows, 3), np.float32)


def test_epsilon_is_a_coin_for_each_env() -> None:
    greedy = actor([[1.0, *[0.0] * 999]], "discrete", "Argmax", "epsilon_greedy", explore_var=Schedule(start_val=0.3))
    rng = Rng(0)
    explored = np.array([(greedy.act(seen(20), 0, rng).action != 0).sum() for _ in range(2000)])
    # a random action is the greedy one once in a thousand. Of 20 envs .3 explore: 6, with a variance of 20 * .3 * .7;
    # one coin for all of them would give 20 times that
    assert explored.mean() == pytest.approx(6, abs=0.25)
    assert explored.var() == pytest.approx(4.2, abs=0.6)


def test_epsilon_follows_the_frames() -> None:
    schedule = Schedule(name="linear_decay", start_val=1.0, end_val=0.0, end_step=100)
    greedy, rng = actor([[1.0, 0.0]], "discrete", "Argmax", "epsilon_greedy", explore_var=schedule), Rng(0)
    for frame, share in ((0, 0.5), (50, 0.25), (100, 0.0), (200, 0.0)):  # half of the random actions are greedy
        assert greedy.act(seen(10_000), frame, rng).action.mean() == pytest.approx(share, abs=0.025)


def test_a_temperature_flattens_the_choice() -> None:
    logits = [[0.0, float(np.log(81.0))]]
    schedule = Schedule(name="linear_decay", start_val=4.0, end_val=1.0, end_step=100)
    warm, rng = actor(logits, "discrete", "Categorical", "boltzmann", explore_var=schedule), Rng(0)
    # odds of 81 to 1 at temperature 1; their fourth root, 3 to 1, at temperature 4
    assert warm.act(seen(10_000), 0, rng).action.mean() == pytest.approx(3 / 4, abs=0.025)
    assert warm.act(seen(10_000), 100, rng).action.mean() == pytest.approx(81 / 82, abs=0.01)


def test_the_first_frames_are_random_and_reach_all_of_the_space() -> None:
    policy = actor([[9.0], [-5.0]], "continuous", "NormalTanh", random_until=100, stores_env=True)
    rng = Rng(0)
    act = policy.act(seen(5000), 99, rng)
    assert -1 <= act.env_action.min() < -0.99
    assert 0.99 < act.env_action.max() <= 1
    assert act.env_action.mean() == pytest.approx(0, abs=0.05)
    assert policy.act(seen(5000), 100, rng).env_action.min() > 0.99  # the policy's own: tanh(9)


def test_what_is_stored_is_what_was_sent_or_what_was_sampled() -> None:
    outputs = [[2.0, -2.0], [-5.0, -5.0]]
    sent = actor(outputs, "continuous", "NormalTanh", stores_env=True).act(seen(50), 0, Rng(0))
    assert np.array_equal(sent.action, sent.env_action)
    assert abs(sent.action).max() <= 1
    sampled = actor(outputs, "continuous", "NormalTanh").act(seen(50), 0, Rng(0))
    assert np.allclose(np.tanh(sampled.action), sent.env_action)
    assert sampled.action[:, 0].min() > 1.5


@pytest.mark.parametrize("random_until", [0, 10])
def test_dict_observations_are_acted_on_row_by_row(random_until: int) -> None:
    policy = actor([[0.0, 0.0]], "discrete", "Categorical", random_until=random_until)
    assert policy.act({"a": seen(5), "b": seen(5)}, 0, Rng(0)).action.shape == (5,)
    assert policy.best({"a": seen(5), "b": seen(5)}).env_action.shape == (5,)


def test_the_best_action_is_the_most_likely_and_needs_no_chance() -> None:
    assert actor([[0.0, 0.1, 0.0]], "discrete", "Categorical", random_until=100).best(seen(4)).env_action.tolist() == [
        1,
        1,
        1,
        1,
    ]
    assert np.allclose(actor([[0.5], [2.0]], "continuous", "NormalTanh").best(seen(2)).env_action, np.tanh(0.5))


def test_actions_are_those_of_the_stream_they_are_drawn_from() -> None:
    policy = actor([[0.0, 0.0]], "discrete", "Categorical")
    first, again, other = (policy.act(seen(64), 0, Rng(seed)).action for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
