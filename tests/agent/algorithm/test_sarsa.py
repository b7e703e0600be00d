from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from made_up import SGD, Given, changed, learner_of, live, make, one_hot, set_table, spaces, table_of, weights

from slm_lab.agent import Agent
from slm_lab.agent.algorithm.sarsa import SARSA
from slm_lab.types import Batch

TABLE = [[10.0, 20.0, 30.0], [100.0, 200.0, 300.0]]  # Q of both actions in states 0, 1, 2


def linear(**keys: Any) -> Agent:
    """Gamma .5; greedy, which in every state means action 1."""
    agent = make("SARSA", spaces(num_envs=2), **{"agent.net.hid_layers": [], "agent.net.optim_spec": SGD, **keys})
    set_table(learner_of(agent).net, *[TABLE])
    return agent


def sarsa(agent: Agent) -> SARSA:
    assert isinstance(agent.algorithm, SARSA)
    return agent.algorithm


def rollout(
    states: Any, actions: Any, rewards: Any, nexts: Any, terminated: Any = None, truncated: Any = None
) -> Batch:
    """Rows [T, N] of states by number."""
    never = [[False] * len(states[0])] * len(states)
    ends = torch.tensor(terminated or never), torch.tensor(truncated or never)
    return Batch(one_hot(states), torch.tensor(actions), torch.tensor(rewards), one_hot(nexts), *ends)


def targets(agent: Agent, rows: Batch) -> list[list[float]]:
    found: list[list[float]] = sarsa(agent).targets(rows, 0).tolist()
    return found


def test_a_row_bootstraps_with_the_action_taken_next_in_its_own_env() -> None:
    rows = rollout([[0, 1], [1, 2], [2, 0]], [[0, 1], [0, 1], [1, 0]], [[1.0, 2.0]] * 3, [[1, 2], [2, 0], [0, 1]])
    # env 0: 1 + .5 Q(1, 0), 1 + .5 Q(2, 1); env 1: 2 + .5 Q(2, 1), 2 + .5 Q(0, 0)
    assert targets(linear(), rows) == [[1 + 10, 2 + 150], [1 + 150, 2 + 5]]


def test_nothing_follows_a_termination() -> None:
    rows = rollout([[0], [1]], [[0], [0]], [[1.0], [1.0]], [[1], [2]], terminated=[[True], [False]])
    assert targets(linear(), rows) == [[1]]
    both = rollout([[0], [1]], [[0], [0]], [[1.0], [1.0]], [[1], [2]], [[True], [False]], [[True], [False]])
    assert targets(linear(), both) == [[1]]


def test_a_time_limit_is_followed_by_what_the_policy_would_do() -> None:
    # env 0 was cut off in state 2: the action after, 0 in state 0, is of another episode; env 1 goes on with action 0
    rows = rollout([[0, 0], [0, 2]], [[0, 0], [0, 0]], [[1.0, 1.0]] * 2, [[2, 2], [1, 1]], None, [[True, False]] * 2)
    assert targets(linear(), rows) == [[1 + 150, 1 + 15]]  # greedy: Q(2, 1); as it was done: Q(2, 0)


def test_what_the_policy_would_do_includes_its_exploration() -> None:
    agent = linear(**{"agent.algorithm.explore_var_spec": {"start_val": 1.0}})
    n = 4000
    rows = rollout([[0] * n] * 2, [[1] * n] * 2, [[0.0] * n] * 2, [[2] * n] * 2, None, [[True] * n] * 2)
    found = sarsa(agent).targets(rows, 0)
    assert set(found.flatten().tolist()) == {15, 150}  # .5 Q(2, 0) and .5 Q(2, 1)
    assert (found == 15).float().mean().item() == pytest.approx(0.5, abs=0.04)  # five deviations of .5 / sqrt(4000)


def test_the_last_row_waits_for_the_rollout_that_knows_what_was_done_next() -> None:
    agent = linear()
    first = Given(rollout([[0], [1]], [[0], [1]], [[1.0], [2.0]], [[1], [2]]))
    # Q(0, 0) = 10 -> 1 + .5 Q(1, 1) = 101: loss 91^2; weight and bias of action 0 each move .2 * 91 = 18.2
    metrics = agent.algorithm.update(first, 2)
    assert metrics["loss"] == pytest.approx(91**2)
    assert metrics["opt_steps"] == 1
    assert table_of(learner_of(agent).net) == [[pytest.approx(28.2), 20, 30], [100, 200, 300]]
    second = Given(rollout([[2], [0]], [[0], [1]], [[3.0], [4.0]], [[0], [1]]))
    # held: Q(1, 1) = 200 -> 2 + .5 Q(2, 0) = 2 + .5 (30 + 18.2) = 26.1
    # new: Q(2, 0) = 48.2 -> 3 + .5 Q(0, 1) = 53
    metrics = agent.algorithm.update(second, 4)
    assert metrics["loss"] == pytest.approx(((200 - 26.1) ** 2 + (48.2 - 53) ** 2) / 2)
    held = sarsa(agent).held
    assert held is not None
    assert torch.equal(held.obs, one_hot([[0]]))  # type: ignore[arg-type]


def test_the_held_row_is_a_copy_for_a_rollout_is_overwritten() -> None:
    agent, rows = linear(), rollout([[0], [1]], [[0], [1]], [[1.0], [2.0]], [[1], [2]])
    agent.algorithm.update(Given(rows), 2)
    rows.reward.fill_(-1)
    held = sarsa(agent).held
    assert held is not None
    assert held.reward.tolist() == [[2]]


def test_a_single_first_row_is_held_without_a_step() -> None:
    agent = linear()
    before = weights(agent)
    metrics = agent.algorithm.update(Given(rollout([[0]], [[0]], [[1.0]], [[1]])), 1)
    assert metrics["opt_steps"] == 0
    assert changed(agent, before) == set()
    assert agent.algorithm.update(Given(rollout([[1]], [[1]], [[1.0]], [[2]])), 2)["loss"] == pytest.approx(91**2)


def test_whole_episodes_will_do_for_a_rollout() -> None:
    keys = {"agent.memory.name": "OnPolicyReplay", "agent.algorithm.training_frequency": 2}
    reports = live(make("SARSA", **keys), 60)
    assert len(reports) > 5
    assert all(report["opt_steps"] == 1 for report in reports)


@pytest.mark.parametrize("steps", [1, 3, 7])  # before the first update, right after it, in mid-rollout
def test_an_agent_brought_back_learns_the_very_same(steps: int) -> None:
    agent, other = make("SARSA"), make("SARSA", None, 1)
    live(other, 9, seed=5)  # it holds a row of its own
    live(agent, steps)
    assert (sarsa(agent).held is None) == (steps < 3)
    other.load_state_dict(copy.deepcopy(agent.state_dict()))
    expected = live(agent, 20, seed=1)
    assert live(other, 20, seed=1) == expected
    assert changed(other, weights(agent)) == set()
    assert len(expected) >= 6
