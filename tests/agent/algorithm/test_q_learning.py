"""VanillaDQN, DQN and DoubleDQN: what their values step towards, how they step, and when target nets follow."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from made_up import SGD, Given, changed, learner_of, live, make, one_hot, set_table, spaces, table_of, weights

from slm_lab.agent import Agent
from slm_lab.agent.algorithm.q_learning import bootstrap
from slm_lab.lib.errors import SpecError
from slm_lab.types import Batch, Cadence

NAMES = ["VanillaDQN", "DQN", "DoubleDQN"]
TARGETED = ["DQN", "DoubleDQN"]
LINEAR: dict[str, Any] = {"agent.net.hid_layers": [], "agent.net.optim_spec": SGD}


def target_of(agent: Agent) -> Any:
    algorithm: Any = agent.algorithm
    return algorithm.target


def linear(name: str, /, **keys: Any) -> Agent:
    """Two actions, three states. In state 1 the net prefers action 1, the target net action 0."""
    agent = make(name, **{**LINEAR, **keys})
    set_table(learner_of(agent).net, [[0, 1, 0], [5, 3, 0]])
    if name in TARGETED:
        set_table(target_of(agent).net, [[0, 10, 0], [7, 4, 0]])
    return agent


def batch(rows: int = 4) -> Batch:
    """From state 0 to state 1 with reward 1: goes on, ends, is cut off, ends at the time limit."""
    ends = torch.tensor([False, True, False, True]), torch.tensor([False, False, True, True])
    whole = Batch(one_hot([0] * 4), torch.tensor([1, 1, 0, 0]), torch.ones(4), one_hot([1] * 4), *ends)
    return whole.rows(0, rows)


# targets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "follows"),
    [
        ("VanillaDQN", 3),  # the net's own highest
        ("DQN", 10),  # the target net's highest
        ("DoubleDQN", 4),  # the target net's value of the action that the net prefers
    ],
)
def test_what_follows_is_valued_where_the_episode_goes_on_or_was_cut_off(name: str, follows: float) -> None:
    algorithm: Any = linear(name).algorithm
    y = 1 + 0.5 * follows
    assert bootstrap(batch(), algorithm.next_value, 0.5).tolist() == [y, 1, y, 1]


@pytest.mark.parametrize("name", NAMES)
def test_a_target_carries_no_gradient(name: str) -> None:
    algorithm: Any = linear(name).algorithm
    assert not bootstrap(batch(), algorithm.next_value, 0.5).requires_grad


@pytest.mark.parametrize(("name", "y"), [("VanillaDQN", 2.5), ("DQN", 6.0), ("DoubleDQN", 3.0)])
def test_a_step_moves_the_value_of_the_action_taken_towards_its_target(name: str, y: float) -> None:
    agent = linear(name)
    memory = Given(batch(1))
    metrics = agent.algorithm.update(memory, 4)
    # Q(0, 1) = 5; loss (5 - y)^2, so SGD at .1 goes .2 (y - 5)
    assert metrics["loss"] == pytest.approx((5 - y) ** 2)
    after = table_of(learner_of(agent).net)
    assert after == [[0, 1, 0], [pytest.approx(5 + 0.2 * (y - 5)), 3, 0]]
    assert [error.tolist() for error in memory.errors] == [[y - 5]]


def test_importance_weights_scale_each_row_of_the_loss() -> None:
    agent = linear("VanillaDQN")
    weighted = batch(2).with_extra(weight=torch.tensor([0.5, 0.25]))
    # errors 5 - 2.5 and 5 - 1; mean of .5 * 2.5^2 and .25 * 4^2
    assert agent.algorithm.update(Given(weighted), 4)["loss"] == pytest.approx((3.125 + 4) / 2)


def test_the_loss_is_the_one_the_spec_names() -> None:
    agent = linear("VanillaDQN", **{"agent.net.loss_spec": {"name": "SmoothL1Loss"}})
    assert agent.algorithm.update(Given(batch(1)), 4)["loss"] == pytest.approx(2.5 - 0.5)


def test_every_batch_is_stepped_on_as_often_as_asked_with_a_new_target_each_time() -> None:
    keys = {"agent.algorithm.training_iter": 2, "agent.algorithm.training_batch_iter": 3}
    agent = linear("VanillaDQN", **keys)
    to_itself = Batch(
        one_hot([0]), torch.tensor([1]), torch.ones(1), one_hot([0]), torch.tensor([False]), torch.tensor([False])
    )
    memory = Given(to_itself)
    assert agent.algorithm.update(memory, 4)["opt_steps"] == 6
    assert memory.drawn == 2
    # the error is 1 + q / 2 - q; the weight moves by .2 of it and the bias as well
    q, errors = 5.0, list[float]()
    for _ in range(6):
        errors.append(1 - q / 2)
        q += 0.4 * errors[-1]
    assert [error.item() for error in memory.errors] == pytest.approx(errors)


# target nets ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TARGETED)
def test_a_target_net_starts_as_the_net(name: str) -> None:
    agent = make(name)
    ours, theirs = target_of(agent).net.state_dict(), learner_of(agent).net.state_dict()
    assert all(torch.equal(ours[key], tensor) for key, tensor in theirs.items())


@pytest.mark.parametrize("name", TARGETED)
def test_a_target_net_follows_once_a_gradient_step_where_blended(name: str) -> None:
    keys = {
        "agent.net.update_type": "polyak",
        "agent.net.polyak_coef": 0.5,
        "agent.algorithm.training_iter": 2,
        "agent.algorithm.training_batch_iter": 3,
    }
    agent = linear(name, **keys)
    right = Batch(
        one_hot([0]), torch.tensor([1]), torch.tensor([5.0]), one_hot([1]), torch.tensor([True]), torch.tensor([False])
    )
    agent.algorithm.update(Given(right), 4)
    assert table_of(learner_of(agent).net) == [[0, 1, 0], [5, 3, 0]]  # it was right: nothing to learn
    share = 0.5**6  # of what the target net was
    assert table_of(target_of(agent).net) == [[0, 1 + 9 * share, 0], [5 + 2 * share, 3 + share, 0]]


@pytest.mark.parametrize("name", TARGETED)
def test_a_target_net_is_replaced_by_frames_that_are_no_multiple_of_num_envs(name: str) -> None:
    agent = linear(name, **{"agent.net.update_type": "replace", "agent.net.update_frequency": 10})
    replaced = list[int]()
    for frame in range(4, 41, 4):
        agent.algorithm.update(Given(batch()), frame)
        if table_of(target_of(agent).net) == table_of(learner_of(agent).net):
            replaced.append(frame)
    assert replaced == [12, 20, 32, 40]


@pytest.mark.parametrize("name", TARGETED)
def test_no_gradient_reaches_a_target_net(name: str) -> None:
    agent = linear(name, **{"agent.net.update_frequency": 1000})
    before = weights(agent)
    agent.algorithm.update(Given(batch()), 4)
    assert changed(agent, before) == {"net"}  # of the net alone
    assert all(param.grad is None for param in target_of(agent).parameters())


def test_vanilla_has_no_target_net() -> None:
    assert list(make("VanillaDQN").algorithm.nets) == ["net"]


@pytest.mark.parametrize(("name", "notes"), [("DQN", 1), ("DoubleDQN", 1), ("VanillaDQN", 0)])
def test_a_coefficient_of_the_old_meaning_is_remarked_upon(name: str, notes: int) -> None:
    agent = make(name, **{"agent.net.update_type": "polyak", "agent.net.polyak_coef": 0.99})
    assert sum("polyak_coef" in note for note in agent.algorithm.notes) == notes


# settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("start", "after"), [(None, 8), (0, 0), (100, 100)])
def test_learning_starts_after_a_batch_unless_told_otherwise(name: str, start: int | None, after: int) -> None:
    agent = make(name, **{"agent.algorithm.training_start_step": start})
    assert agent.algorithm.cadence("frame") == Cadence(4, "frame", after)


@pytest.mark.parametrize("name", NAMES)
def test_updates_come_by_frames_and_report_epsilon(name: str) -> None:
    schedule = {"name": "linear_decay", "start_val": 1.0, "end_val": 0.0, "end_step": 100}
    reports = live(make(name, **{"agent.algorithm.explore_var_spec": schedule}), 5)
    # 4 envs; the first update when a batch of 8 is there
    assert [report["explore_var"] for report in reports] == pytest.approx([0.92, 0.88, 0.84, 0.80])


def test_learning_rates_follow_their_schedule() -> None:
    agent = linear("VanillaDQN", **{"agent.net.lr_scheduler_spec": {"name": "LinearToZero", "frame": 100}})
    agent.algorithm.update(Given(batch(1)), 75)
    assert table_of(learner_of(agent).net)[1][0] == pytest.approx(5 - 0.25 * 0.2 * 2.5)


@pytest.mark.parametrize("name", NAMES)
def test_boltzmann_over_argmax_is_remarked_upon(name: str) -> None:
    keys: dict[str, Any] = {"agent.algorithm.action_policy": "boltzmann"}
    assert any("boltzmann over Argmax" in note for note in make(name, **keys).algorithm.notes)
    keys["agent.algorithm.action_pdtype"] = "Categorical"
    assert make(name, **keys).algorithm.notes == []


@pytest.mark.parametrize("name", [*NAMES, "SARSA"])
def test_epsilon_greedy_without_an_epsilon_is_refused(name: str) -> None:
    with pytest.raises(SpecError, match=r"agent\.algorithm\.explore_var_spec: missing key"):
        make(name, **{"agent.algorithm.explore_var_spec": None})


@pytest.mark.parametrize("name", [*NAMES, "SARSA"])
@pytest.mark.parametrize("kind", ["continuous", "multi_discrete", "multi_binary"])
def test_only_discrete_actions_have_a_value_each(name: str, kind: Any) -> None:
    space = spaces(kind, 2, nvec=(2, 3) if kind == "multi_discrete" else ())
    with pytest.raises(SpecError, match=rf"agent\.algorithm\.name: {name} takes discrete actions; .* {kind} ones"):
        make(name, space)


@pytest.mark.parametrize("name", NAMES)
def test_keys_of_other_algorithms_are_unknown(name: str) -> None:
    with pytest.raises(SpecError, match=r"agent\.algorithm\.clip_eps_spec: unknown key"):
        make(name, **{"agent.algorithm.clip_eps_spec": {"start_val": 0.2}})


# state ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", ["Replay", "PrioritizedReplay"])
@pytest.mark.parametrize("name", NAMES)
def test_an_agent_brought_back_learns_the_very_same(name: str, memory: str) -> None:
    keys: dict[str, Any] = {"agent.memory.name": memory}
    if name in TARGETED:
        keys |= {"agent.net.update_type": "replace", "agent.net.update_frequency": 50}
    agent, other = make(name, **keys), make(name, None, 1, **keys)
    live(agent, 30)
    other.load_state_dict(copy.deepcopy(agent.state_dict()))
    expected = live(agent, 30, seed=1, frame=120)
    assert live(other, 30, seed=1, frame=120) == expected
    assert changed(other, weights(agent)) == set()
    assert len(expected) == 30
