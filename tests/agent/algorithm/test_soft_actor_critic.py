from __future__ import annotations

import copy
import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from made_up import SGD, Given, changed, learner_of, live, make, one_hot, set_table, spaces, weights
from specs_for_tests import tiny_session, tiny_spec

from slm_lab.agent import Agent
from slm_lab.agent.algorithm.soft_actor_critic import SoftActorCritic
from slm_lab.types import Array, Batch, Spaces

BOX = spaces("continuous", 1)
LINEAR: dict[str, Any] = {"agent.net.hid_layers": []}
KINDS = [spaces(), BOX]


def targets_of(agent: Agent) -> Any:
    return sac(agent).target.net


def sac(agent: Agent) -> SoftActorCritic:
    assert isinstance(agent.algorithm, SoftActorCritic)
    return agent.algorithm


def batch(space: Spaces, action: Any = 1) -> Batch:
    """From state 0 to state 1 with reward 1: goes on, ends, is cut off."""
    actions = torch.full((3,), action) if space.action_kind == "discrete" else torch.full((3, 1), float(action))
    ends = torch.tensor([False, True, False]), torch.tensor([False, False, True])
    return Batch(one_hot([0] * 3), actions, torch.ones(3), one_hot([1] * 3), *ends)


# targets ----------------------------------------------------------------------------------------------------------


def test_the_target_of_discrete_actions_is_the_exact_mean_over_them() -> None:
    agent = make("SoftActorCritic", **LINEAR)
    algorithm, learner = sac(agent), learner_of(agent)
    set_table(learner.policy.net, [[0, 0, 0], [0, math.log(3), 0]])  # in state 1: .25, .75
    set_table(algorithm.target.net.q1, [[0, 1, 0], [0, 2, 0]])
    set_table(algorithm.target.net.q2, [[0, 3, 0], [0, 4, 0]])
    set_table(learner.critics.q1, [[5, 0, 0], [6, 0, 0]])
    set_table(learner.critics.q2, [[7, 0, 0], [8, 0, 0]])
    q1, q2, target = algorithm.values(batch(spaces()), 0.2, algorithm.rng.noise)
    # means of the twins 2 and 3: .25 * 2 + .75 * 3 = 2.75; entropy .562335; 1 + .5 (2.75 + .2 * .562335)
    assert target.tolist() == pytest.approx([2.4312335, 1, 2.4312335])
    assert (q1.tolist(), q2.tolist()) == ([6, 6, 6], [8, 8, 8])  # of action 1 in state 0
    assert not target.requires_grad


def test_the_target_of_continuous_actions_is_the_lower_value_of_a_sampled_one() -> None:
    agent = make("SoftActorCritic", BOX, **LINEAR)
    algorithm, learner = sac(agent), learner_of(agent)
    set_table(algorithm.target.net.q1, [[0, 3, 0, 2]])  # in state 1: 3 + 2 a
    set_table(algorithm.target.net.q2, [[0, 3, 0, -1]])  # 3 - a
    set_table(learner.critics.q1, [[5, 0, 0, 1]])
    set_table(learner.critics.q2, [[7, 0, 0, 1]])
    stream = algorithm.rng.torch.get_state()
    choice = learner.policy(one_hot([1] * 3), algorithm.rng.noise)
    algorithm.rng.torch.set_state(stream)  # so that the same actions are sampled again
    q1, q2, target = algorithm.values(batch(BOX, -0.5), 0.2, algorithm.rng.noise)
    lower = [3 + (2 * a if a < 0 else -a) for a in choice.action.flatten().tolist()]
    y = [1 + 0.5 * (q - 0.2 * log_prob) for q, log_prob in zip(lower, choice.log_prob.tolist(), strict=True)]
    assert target.tolist() == pytest.approx([y[0], 1, y[2]], rel=1e-5)
    assert (q1.tolist(), q2.tolist()) == ([4.5] * 3, [6.5] * 3)
    assert not target.requires_grad


def test_alpha_weighs_the_entropy_of_the_target() -> None:
    agent = make("SoftActorCritic", **LINEAR, **{"agent.algorithm.fixed_alpha": 1.0})
    algorithm = sac(agent)
    for net in (learner_of(agent).policy.net, algorithm.target.net.q1, algorithm.target.net.q2):
        set_table(net, [[0.0] * 3, [0.0] * 3])
    memory = Given(batch(spaces()))
    for critic in (learner_of(agent).critics.q1, learner_of(agent).critics.q2):
        set_table(critic, [[0.0] * 3, [0.0] * 3])
    agent.algorithm.update(memory, 4)
    y = 1 + 0.5 * math.log(2)
    assert memory.errors[0].tolist() == pytest.approx([-y, -1, -y])  # the lower of the twins minus the target


def policy_step(agent: Agent, rows: Batch, alpha: float = 0.0) -> None:
    """A step of policy and temperature; `alpha` counts where it is not learnt."""
    learner_of(agent).policy_step(rows, agent.algorithm.rng.noise, alpha=alpha, share=0.6)


# steps ------------------------------------------------------------------------------------------------------------


def test_the_loss_is_that_of_both_critics() -> None:
    agent = make("SoftActorCritic", **LINEAR)
    learner = learner_of(agent)
    set_table(learner.critics.q1, [[0, 0, 0], [3, 0, 0]])
    set_table(learner.critics.q2, [[0, 0, 0], [0, 0, 0]])
    ended = batch(spaces()).rows(1, 2)
    assert agent.algorithm.update(Given(ended), 4)["loss"] == pytest.approx((3 - 1) ** 2 + (0 - 1) ** 2)


@pytest.mark.parametrize(
    ("symlog", "loss"),
    [(False, (3 + 1) ** 2 + (-1 + 1) ** 2), (True, (math.log(4) + math.log(2)) ** 2 + 0.0)],
)
def test_symlog_compresses_values_and_targets(symlog: bool, loss: float) -> None:
    agent = make("SoftActorCritic", **LINEAR, **{"agent.algorithm.symlog": symlog})
    learner = learner_of(agent)
    set_table(learner.critics.q1, [[0, 0, 0], [3, 0, 0]])
    set_table(learner.critics.q2, [[0, 0, 0], [-1, 0, 0]])
    ended = batch(spaces()).rows(1, 2)
    ended.reward.fill_(-1)
    assert agent.algorithm.update(Given(ended), 4)["loss"] == pytest.approx(loss)


def test_importance_weights_scale_each_row_of_the_loss() -> None:
    agent = make("SoftActorCritic", **LINEAR)
    for critic in (learner_of(agent).critics.q1, learner_of(agent).critics.q2):
        set_table(critic, [[0.0] * 3, [0.0] * 3])
    ended = batch(spaces()).rows(1, 2)
    assert agent.algorithm.update(Given(ended.with_extra(weight=torch.tensor([0.25]))), 4)["loss"] == 0.5


@pytest.mark.parametrize("space", KINDS)
def test_a_critic_step_moves_the_critics_alone(space: Spaces) -> None:
    keys = {"agent.algorithm.policy_delay": 2, "agent.net.update_frequency": 1000}
    agent = make("SoftActorCritic", space, **keys)
    before = weights(agent)
    agent.algorithm.update(Given(batch(space)), 4)
    assert changed(agent, before) == {"critics", "iterations"}
    actor = [param.grad for param in learner_of(agent).policy.parameters()]
    assert all(grad is None or not grad.any() for grad in actor)
    assert all(param.grad is None for param in sac(agent).target.parameters())


@pytest.mark.parametrize("space", KINDS)
def test_a_policy_step_moves_policy_and_temperature_alone(space: Spaces) -> None:
    agent = make("SoftActorCritic", space)
    learner, before = learner_of(agent), weights(agent)
    policy_step(agent, batch(space))
    assert changed(agent, before) == {"policy", "temperature"}
    critics = [param.grad for param in learner.critics.parameters()]
    assert all(grad is None or not grad.any() for grad in critics)


def test_a_discrete_policy_steps_towards_the_better_action_and_a_continuous_one_uphill() -> None:
    keys = {"agent.algorithm.fixed_alpha": 0.0, "agent.net.optim_spec": SGD}
    agent = make("SoftActorCritic", **LINEAR, **keys)
    learner = learner_of(agent)
    set_table(learner.policy.net, [[0.0] * 3, [0.0] * 3])
    set_table(learner.critics.q1, [[0, 0, 0], [1, 0, 0]])
    set_table(learner.critics.q2, [[0, 0, 0], [3, 0, 0]])
    policy_step(agent, batch(spaces()))
    # -(p0 q0 + p1 q1) with q = 0, 2: slope of the logits p0 p1 (q0 - q1) = -.5 and .5, times .1
    assert learner.policy.net.net.heads[0].weight[:, 0].tolist() == pytest.approx([-0.05, 0.05])
    agent = make("SoftActorCritic", BOX, **LINEAR, **keys)
    learner = learner_of(agent)
    set_table(learner.policy.net, [[0.0] * 3], [[-5.0] * 3])
    set_table(learner.critics.q1, [[0, 0, 0, 2]])  # the action is worth 2 a, but the other
    set_table(learner.critics.q2, [[-9, 0, 0, 1]])  # critic, which is the lower, says a - 9
    policy_step(agent, batch(BOX))
    # slope of tanh near 0 is 1
    assert learner.policy.net.net.heads[0].weight[0, 0].item() == pytest.approx(0.1, abs=1e-3)


def test_a_higher_alpha_holds_the_policy_nearer_to_even() -> None:
    def drawn(alpha: float) -> float:
        agent = make("SoftActorCritic", **LINEAR, **{"agent.algorithm.fixed_alpha": alpha})
        learner = learner_of(agent)
        for critic in (learner.critics.q1, learner.critics.q2):
            set_table(critic, [[0.0] * 3, [1.0] * 3])
        for _ in range(400):
            policy_step(agent, batch(spaces()), alpha)
        probs: float = learner.policy(one_hot([0]), agent.algorithm.rng.noise).probs[0, 1].item()
        return probs

    # the best there is: odds of e^(1 / alpha)
    assert drawn(1.0) == pytest.approx(1 / (1 + math.exp(-1)), abs=0.01)
    assert drawn(0.5) == pytest.approx(1 / (1 + math.exp(-2)), abs=0.01)


def steps_of(agent: Agent, name: str) -> int:
    (state,) = learner_of(agent).optim.optimizers[name].state.values()
    return int(state["step"])


def test_policy_and_temperature_step_once_for_so_many_critic_steps() -> None:
    agent = make("SoftActorCritic", **{"agent.algorithm.policy_delay": 3, "agent.algorithm.training_iter": 4})
    memory = Given(batch(spaces()))
    reports = [agent.algorithm.update(memory, frame) for frame in (4, 8)]
    assert [report["opt_steps"] for report in reports] == [4, 4]
    assert memory.drawn == len(memory.errors) == 8
    # critic steps 3 and 6 of 8
    assert {name: steps_of(agent, name) for name in ("q1", "q2", "actor", "alpha")} == {
        "q1": 8,
        "q2": 8,
        "actor": 2,
        "alpha": 2,
    }


# target critics ---------------------------------------------------------------------------------------------------


def test_target_critics_start_as_the_critics() -> None:
    agent = make("SoftActorCritic", BOX)
    ours, theirs = sac(agent).target.net.state_dict(), learner_of(agent).critics.state_dict()
    assert all(torch.equal(ours[key], tensor) for key, tensor in theirs.items())


def test_target_critics_follow_every_critic_step_whatever_the_policy_delay() -> None:
    keys = {
        "agent.net.update_type": "polyak",
        "agent.net.polyak_coef": 0.25,
        "agent.net.optim_spec": SGD,
        "agent.algorithm.policy_delay": 9,
        "agent.algorithm.training_iter": 2,
    }
    agent = make("SoftActorCritic", **LINEAR, **keys)
    learner, target = learner_of(agent), targets_of(agent)
    for critic in (learner.critics.q1, learner.critics.q2):
        set_table(critic, [[0.0] * 3, [1.0, 0, 0]])  # right about the only row: reward 1, then the end
    for critic in (target.q1, target.q2):
        set_table(critic, [[0.0] * 3, [9.0, 0, 0]])
    agent.algorithm.update(Given(batch(spaces()).rows(1, 2)), 4)
    assert target.q1.net.heads[0].weight[1].tolist() == [1 + 8 * 0.75**2, 0, 0]


def test_target_critics_are_replaced_by_frames() -> None:
    agent = make("SoftActorCritic", **{"agent.net.update_frequency": 10})
    learner, target, replaced = learner_of(agent), targets_of(agent), list[int]()
    for frame in range(4, 25, 4):
        agent.algorithm.update(Given(batch(spaces())), frame)
        if torch.equal(target.q1.net.heads[0].weight, learner.critics.q1.net.heads[0].weight):
            replaced.append(frame)
    assert replaced == [12, 20]


def test_critics_have_a_section_of_their_own_where_given() -> None:
    agent = make("SoftActorCritic", **{"agent.critic_net": {"type": "MLPNet", "hid_layers": [5]}})
    learner = learner_of(agent)
    assert next(learner.critics.q1.parameters()).shape == (5, 3)
    assert next(learner.policy.net.parameters()).shape == (16, 3)


# state ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("space", KINDS)
def test_an_agent_brought_back_learns_the_very_same(space: Spaces) -> None:
    keys: dict[str, Any] = {"agent.algorithm.policy_delay": 3, "agent.memory.name": "PrioritizedReplay"}
    agent, other = make("SoftActorCritic", space, **keys), make("SoftActorCritic", space, 1, **keys)
    live(agent, 12)  # 11 critic steps: in the middle of a delay
    other.load_state_dict(copy.deepcopy(agent.state_dict()))
    expected = live(agent, 20, seed=1, frame=48)
    assert live(other, 20, seed=1, frame=48) == expected
    assert changed(other, weights(agent)) == set()
    assert len(expected) == 20


# a task whose solution is known -----------------------------------------------------------------------------------

REWARD = np.array([[1.0, 0.0], [0.5, -0.5]])  # by state and action
AFTER = np.array([[0, 1], [1, 0]])  # the state that follows
GAMMA, ALPHA = 0.8, 0.5


class TwoStates(gym.Env[Array, np.int64]):
    """Starts in either state, so that all of it is seen, and is cut off after four steps, which must not matter."""

    observation_space = Box(0, 1, (2,), np.float32)
    action_space = Discrete(2)
    state = t = 0

    def observe(self) -> Array:
        return np.array([1 - self.state, self.state], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self.state, self.t = int(self.np_random.integers(2)), 0
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        reward = float(REWARD[self.state, action])
        self.state, self.t = int(AFTER[self.state, action]), self.t + 1
        return self.observe(), reward, False, self.t == 4, {}


def soft_values() -> Array:
    """Q [state, action] of soft value iteration: V(s) = alpha ln sum_a e^(Q / alpha)."""
    q = np.zeros((2, 2))
    for _ in range(300):
        q = REWARD + GAMMA * (ALPHA * np.log(np.exp(q / ALPHA).sum(1)))[AFTER]
    return q


def test_values_and_policy_are_those_of_soft_value_iteration() -> None:
    algorithm = {"gamma": GAMMA, "fixed_alpha": ALPHA, "training_frequency": 4, "training_iter": 1}
    keys: dict[str, Any] = {f"agent.algorithm.{key}": value for key, value in algorithm.items()}
    net = {"hid_layers": [], "optim_spec": {"name": "Adam", "lr": 0.02}, "update_type": "polyak", "polyak_coef": 0.1}
    keys |= {f"agent.net.{key}": value for key, value in net.items()}
    keys["agent.net.lr_scheduler_spec"] = {"name": "LinearToZero", "frame": 6000}
    spec = tiny_spec("SoftActorCritic", "test_soft_actor_critic:TwoStates", max_frame=6000, **keys)
    session = tiny_session(spec)
    session.run()
    learner, q = learner_of(session.agent), soft_values()
    with torch.no_grad():
        found = [critic(torch.eye(2))[0].numpy() for critic in (learner.critics.q1, learner.critics.q2)]
        probs = learner.policy(torch.eye(2), session.agent.algorithm.rng.noise).probs.numpy()
    best = np.exp(q / ALPHA) / np.exp(q / ALPHA).sum(1, keepdims=True)
    assert np.allclose(found[0], q, rtol=0.02)
    assert np.allclose(found[1], q, rtol=0.02)
    assert np.allclose(probs, best, atol=0.02)
