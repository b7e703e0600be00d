"""Actions that an env does not allow: never taken, never hoped for, no part of a policy."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from made_up import SGD, Given, learner_of, make, one_hot, random_step, set_table, spaces
from torch import Tensor

from slm_lab.agent import Agent
from slm_lab.agent.algorithm.policy import random_actions
from slm_lab.agent.algorithm.q_learning import bootstrap
from slm_lab.agent.algorithm.soft import SoftSpec, Temperature
from slm_lab.agent.algorithm.soft_actor_critic import SoftActorCritic
from slm_lab.lib.rng import Rng
from slm_lab.types import MASK, Array, Batch, Spaces

FOUR = replace(spaces("discrete", 4), mask_size=4)
THREE = replace(spaces("discrete", 3), mask_size=3)
PAIR = replace(spaces("multi_discrete", 2, nvec=(2, 3)), mask_size=5)
LINEAR: dict[str, Any] = {"agent.net.hid_layers": [], "agent.net.optim_spec": SGD}
# every mask of 4 actions that allows some
MASKS = np.array([mask for mask in itertools.product([False, True], repeat=4) if any(mask)])
EACH = 800  # rows of each mask
BOLTZMANN = {"agent.algorithm.action_policy": "boltzmann", "agent.algorithm.explore_var_spec": {"start_val": 2.0}}
EPSILON = {"agent.algorithm.action_policy": "epsilon_greedy", "agent.algorithm.explore_var_spec": {"start_val": 1.0}}


def seen(mask: Array, agent: Agent) -> Any:
    """State 0 in every row, and what is allowed there."""
    return agent.see(np.tile(np.array([1.0, 0.0, 0.0], np.float32), (len(mask), 1)), mask)


def shares(action: Array) -> Array:
    """How often each action was taken under each mask, [15, 4]; the rows are EACH of every mask."""
    by_mask = action.reshape(len(MASKS), EACH)
    return np.stack([(by_mask == choice).mean(1) for choice in range(4)], -1)


def is_near(found: Array, share: Array) -> bool:
    """Within 5 deviations of what so many draws give, and exact where the share is 0 or 1."""
    return bool((abs(found - share) <= 5 * np.sqrt(share * (1 - share) / EACH)).all())


def acted(agent: Agent, frame: int = 0) -> Array:
    found: Array = agent.act(seen(MASKS.repeat(EACH, 0), agent), frame).env_action
    return found


EVEN = MASKS / MASKS.sum(1, keepdims=True)


def softmax(logits: list[float], temperature: float = 1.0) -> Array:
    """Shares of the allowed actions, [15, 4]."""
    odds = np.exp(np.array(logits) / temperature) * MASKS
    shares: Array = odds / odds.sum(1, keepdims=True)
    return shares


# acting -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("Random", {}),
        ("DQN", EPSILON),
        ("DQN", {"agent.algorithm.action_policy": "random"}),
        ("PPO", EPSILON),
        ("PPO", {"agent.algorithm.action_policy": "random"}),
        ("SoftActorCritic", {"agent.algorithm.training_start_step": 100}),  # frame 0 is before
    ],
)
def test_random_actions_are_any_of_the_allowed_ones_alike(name: str, keys: dict[str, Any]) -> None:
    assert is_near(shares(acted(make(name, FOUR, **keys))), EVEN)


def test_epsilon_greedy_is_greedy_among_the_allowed_actions() -> None:
    agent = make("DQN", FOUR, **LINEAR, **{"agent.algorithm.explore_var_spec": {"start_val": 0.25}})
    set_table(learner_of(agent).net, [[-1.0, 0, 0], [-5.0, 0, 0], [-3.0, 0, 0], [-2.0, 0, 0]])
    best = np.zeros_like(EVEN)
    for row, mask in zip(best, MASKS, strict=True):
        row[next(action for action in (0, 3, 2, 1) if mask[action])] = 1.0
    assert is_near(shares(acted(agent)), 0.75 * best + 0.25 * EVEN)
    greedy = agent.decide(seen(MASKS, agent).shown).env_action
    assert np.array_equal(greedy, best.argmax(1))


@pytest.mark.parametrize("name", ["DQN", "PPO"])
def test_boltzmann_leaves_odds_among_the_allowed_actions_as_they_are(name: str) -> None:
    agent = make(name, FOUR, **LINEAR, **BOLTZMANN, **{"agent.algorithm.action_pdtype": "Categorical"})
    logits = [0.0, 2.0, 4.0, 9.0]
    net = learner_of(agent).net if name == "DQN" else learner_of(agent).net.actor
    set_table(net, [[value, 0, 0] for value in logits])
    assert is_near(shares(acted(agent)), softmax(logits, 2.0))


@pytest.mark.parametrize("name", ["PPO", "SoftActorCritic"])
def test_samples_are_those_of_the_policy_among_the_allowed_actions(name: str) -> None:
    agent, logits = make(name, FOUR, **LINEAR), [0.5, -1.0, 1.0, 30.0]
    net = learner_of(agent).net.actor if name == "PPO" else learner_of(agent).policy.net
    set_table(net, [[value, 0, 0] for value in logits])
    found = shares(acted(agent, 1000))
    assert is_near(found, softmax(logits))
    best = agent.decide(seen(MASKS, agent).shown).env_action
    assert np.array_equal(best, softmax(logits).argmax(1))


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("Random", {}),
        ("PPO", {}),
        ("PPO", EPSILON),
        ("PPO", BOLTZMANN),
        ("PPO", {"agent.algorithm.action_policy": "random"}),
    ],
)
def test_every_component_of_an_action_has_a_mask_of_its_own(name: str, keys: dict[str, Any]) -> None:
    agent = make(name, PAIR, **keys)
    masks = np.array([[*one, *two] for one in MASKS[:3, 2:] for two in MASKS[:7, 1:]])  # 3 x 7 masks of 2 and 3
    assert masks.shape == (21, 5)
    rows = masks.repeat(300, 0)
    action = agent.act(seen(rows, agent), 0).env_action
    number = np.arange(len(rows))
    assert rows[number, action[:, 0]].all()
    assert rows[number, 2 + action[:, 1]].all()
    every = {(index, *choice) for index, choice in zip((number // 300).tolist(), action.tolist(), strict=True)}
    # all that is allowed is done now and then: 1 or 2 times 1, 2 or 3 choices
    assert len(every) == sum(int(mask[:2].sum() * mask[2:].sum()) for mask in masks)


def test_random_components_are_any_of_the_allowed_ones_alike() -> None:
    mask = torch.tensor([[True, False, True, False, True]]).expand(10_000, -1)
    drawn = random_actions(PAIR, 10_000, Rng(0).noise, mask)
    assert (drawn[:, 0] == 0).all()
    # half of 10000, with a deviation of 50
    assert abs((drawn[:, 1] == 0).sum().item() - 5000) < 250
    assert abs((drawn[:, 1] == 2).sum().item() - 5000) < 250


def test_where_all_is_allowed_a_mask_changes_nothing() -> None:
    agent, other = make("DQN", FOUR), make("DQN", replace(FOUR, mask_size=0))
    everything = np.ones((5, 4), bool)
    plain = other.see(np.tile(np.array([1.0, 0.0, 0.0], np.float32), (5, 1)))
    assert np.array_equal(agent.decide(seen(everything, agent).shown).action, other.decide(plain.shown).action)


# Q-learning -------------------------------------------------------------------------------------------------------


def batch(next_mask: list[list[bool]], action: int = 0, terminated: bool = False) -> Batch:
    """From state 0, where all is allowed, to state 1 with reward 1."""
    rows = len(next_mask)
    obs = {"obs": one_hot([0] * rows), MASK: torch.ones(rows, 3, dtype=torch.bool)}
    after = {"obs": one_hot([1] * rows), MASK: torch.tensor(next_mask)}
    ends = torch.full((rows,), terminated), torch.zeros(rows, dtype=torch.bool)
    return Batch(obs, torch.full((rows,), action), torch.ones(rows), after, *ends)


def valued(name: str) -> Agent:
    """In state 1 the net values actions 1, 5, 3 and the target net 10, 20, 4."""
    agent = make(name, THREE, **LINEAR)
    set_table(learner_of(agent).net, [[0, 1, 0], [0, 5, 0], [0, 3, 0]])
    if name != "VanillaDQN":
        algorithm: Any = agent.algorithm
        set_table(algorithm.target.net, [[0, 10, 0], [0, 20, 0], [0, 4, 0]])
    return agent


@pytest.mark.parametrize(
    ("name", "follows"),
    [
        ("VanillaDQN", [5, 3, 1]),  # the net's own highest of those allowed
        ("DQN", [20, 10, 10]),  # the target net's
        ("DoubleDQN", [20, 4, 10]),  # the target net's value of the one that the net prefers
    ],
)
def test_only_allowed_actions_follow(name: str, follows: list[float]) -> None:
    algorithm: Any = valued(name).algorithm
    masks = [[True, True, True], [True, False, True], [True, False, False]]
    target = bootstrap(batch(masks), algorithm.next_value, 0.5)
    assert target.tolist() == [1 + 0.5 * value for value in follows]


@pytest.mark.parametrize("name", ["VanillaDQN", "DQN", "DoubleDQN"])
def test_an_episode_may_end_where_nothing_is_allowed(name: str) -> None:
    algorithm: Any = valued(name).algorithm
    over = batch([[False, False, False]], terminated=True)
    assert bootstrap(over, algorithm.next_value, 0.5).tolist() == [1]


def test_a_step_towards_the_value_of_allowed_actions() -> None:
    agent = valued("DQN")
    memory = Given(batch([[True, False, True]]))
    agent.algorithm.update(memory, 4)
    # Q(0, 0) = 0, and what follows is worth 10: target 1 + 5
    assert [error.tolist() for error in memory.errors] == [[6]]


# soft actor-critic ------------------------------------------------------------------------------------------------


def sac() -> Any:
    """In state 1 odds 1 to 3 to 9; the target critics value the last action beyond measure."""
    agent = make("SoftActorCritic", THREE, **LINEAR)
    algorithm = agent.algorithm
    assert isinstance(algorithm, SoftActorCritic)
    set_table(algorithm.learner.policy.net, [[0, 0, 0], [math.log(3)] * 3, [math.log(9)] * 3])
    for critics in (algorithm.target.net, algorithm.learner.critics):
        set_table(critics.q1, [[1, 1, 1], [2, 2, 2], [1e6, 1e6, 1e6]])
        set_table(critics.q2, [[3, 3, 3], [4, 4, 4], [1e6, 1e6, 1e6]])
    return algorithm


def test_expectation_and_entropy_are_of_the_allowed_actions() -> None:
    algorithm = sac()
    _, _, target = algorithm.values(batch([[True, True, False], [True, False, False]]), 0.2, algorithm.rng.noise)
    # .25 and .75 of 2 and 3 is 2.75, entropy .562335: 1 + .5 (2.75 + .2 * .562335). One action alone: 1 + .5 * 2
    assert target.tolist() == pytest.approx([2.4312335, 2.0])


def test_a_choice_among_allowed_actions_is_finite_and_carries_finite_gradients() -> None:
    algorithm = sac()
    policy = algorithm.learner.policy
    masks = [[True, True, False], [True, False, False], [True, True, True]]
    choice = policy(batch(masks).next_obs, algorithm.rng.noise)
    assert choice.probs[:2].tolist() == [[pytest.approx(0.25), pytest.approx(0.75), 0], [1, 0, 0]]
    assert choice.entropy.tolist() == pytest.approx([0.562335, 0.0, 0.790268], abs=1e-5)
    loss = (choice.expect(torch.tensor([1.0, 2.0, 1e6])) + choice.entropy)[:2].sum()
    for gradient in torch.autograd.grad(loss, list(policy.parameters())):
        assert torch.isfinite(gradient).all()
        assert gradient[:2].any()
        assert not gradient[2].any()  # nor is the third action learnt about where it is not allowed


def test_soft_updates_stay_finite_under_masks() -> None:
    algorithm = sac()
    forbidden = batch([[True, True, False], [True, False, False], [False, True, False]], action=1)
    obs: Any = forbidden.obs
    obs[MASK][:, 2] = False
    report = algorithm.update(Given(forbidden), 4)
    assert math.isfinite(report["loss"])
    # state 0, odds 1 to 3
    assert report["entropy"] == pytest.approx(0.562335, abs=1e-5)
    assert all(torch.isfinite(parameter).all() for parameter in algorithm.nets.parameters())


# policy gradients -------------------------------------------------------------------------------------------------


def log_probs(agent: Agent, mask: Tensor | None, action: Any) -> list[float]:
    learner, obs = learner_of(agent), one_hot([0] * len(action))
    outputs = learner.net.policy(obs if mask is None else {"obs": obs, MASK: mask})
    return learner.dist(outputs).log_prob(torch.tensor(action)).exp().tolist()


def test_a_policy_is_shared_out_among_allowed_actions() -> None:
    agent = make("PPO", THREE, **LINEAR)
    set_table(learner_of(agent).net.actor, [[0, 0, 0], [math.log(3), 0, 0], [math.log(4), 0, 0]])
    assert log_probs(agent, None, [0, 1, 2]) == pytest.approx([1 / 8, 3 / 8, 4 / 8])
    mask = torch.tensor([[True, True, False], [True, True, False], [True, False, True], [False, True, False]])
    assert log_probs(agent, mask, [0, 1, 2, 1]) == pytest.approx([1 / 4, 3 / 4, 4 / 5, 1])
    outputs = learner_of(agent).net.policy({"obs": one_hot([0] * 4), MASK: mask})
    entropy = learner_of(agent).dist(outputs).entropy(agent.algorithm.rng.noise)
    assert entropy.tolist() == pytest.approx([0.562335, 0.562335, 0.500402, 0.0], abs=1e-5)


def test_components_are_shared_out_each_by_itself() -> None:
    agent = make("PPO", PAIR, **LINEAR)
    odds = [1, 3, 1, 2, 5]
    set_table(learner_of(agent).net.actor, [[math.log(value), 0, 0] for value in odds])
    mask = torch.tensor(
        [[True, True, True, True, True], [True, True, True, False, True], [False, True, True, True, False]]
    )
    # 3 / 4 times 5 / 8; 1 / 4 times 5 / 6; 1 times 2 / 3
    expected = [15 / 32, 5 / 24, 2 / 3]
    assert log_probs(agent, mask, [[1, 2], [0, 2], [1, 1]]) == pytest.approx(expected)


def test_the_value_of_a_state_does_not_depend_on_what_is_allowed() -> None:
    for shared in (False, True):
        agent = make("PPO", THREE, **{"agent.net.shared": shared})
        obs = one_hot([0, 1])
        masks = [torch.tensor([[True, False, False]] * 2), torch.tensor([[True, True, True]] * 2)]
        first, second = (learner_of(agent).values({"obs": obs, MASK: mask}) for mask in masks)
        assert np.array_equal(first, second)
        assert np.isfinite(first).all()


@pytest.mark.parametrize("name", ["PPO", "ActorCritic", "Reinforce"])
def test_an_action_that_was_never_allowed_is_not_learnt_about(name: str) -> None:
    agent = make(name, THREE, **LINEAR)
    actor = learner_of(agent).net.actor.net.heads[0]
    before = actor.weight.detach().clone()
    rng, mask = np.random.default_rng(0), np.tile([True, True, False], (4, 1))
    obs, reports = np.ones((4, 3), np.float32), 0
    for _ in range(40):
        shown = agent.see(obs, mask)
        act = agent.act(shown, 0)
        step = random_step(rng, 4)._replace(next_mask=mask)
        reports += agent.learn(shown, act, step, 4) is not None
        obs = np.asarray(step.next_obs)
    assert reports
    assert torch.isfinite(actor.weight).all()
    assert torch.equal(actor.weight[2], before[2])
    assert not torch.equal(actor.weight[:2], before[:2])


def test_the_target_entropy_of_sac_is_a_share_of_what_allowed_actions_can_have() -> None:
    space = Spaces((3,), np.dtype(np.float32), "discrete", 4, 2)
    spec = SoftSpec.model_validate({"name": "SoftActorCritic", "gamma": 0.9, "training_frequency": 1})
    mask = torch.tensor([[True, True, False, False], [True, True, True, True]])
    assert Temperature(spec, space).target(0.5) == pytest.approx(0.5 * math.log(4))
    expected = 0.5 * (math.log(2) + math.log(4)) / 2
    assert float(Temperature(spec, space).target(0.5, mask)) == pytest.approx(expected)
