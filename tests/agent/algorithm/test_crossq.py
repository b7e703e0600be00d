from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from made_up import Given, changed, learner_of, live, make, one_hot, set_table, spaces, weights
from torch import Tensor, nn

from slm_lab.agent import Agent
from slm_lab.agent.algorithm.crossq import CrossQ
from slm_lab.agent.algorithm.joined import joined_obs
from slm_lab.agent.net.batch_renorm import BatchRenorm1d
from slm_lab.types import Batch, Spaces

BOX = spaces("continuous", 1)
KINDS = [spaces(), BOX]
LINEAR: dict[str, Any] = {"agent.net.hid_layers": [], "agent.net.batch_renorm": None, "agent.critic_net": None}
CRITIC = {"type": "MLPNet", "hid_layers": [5], "batch_renorm": {"momentum": 0.5}}


def crossq(agent: Agent) -> CrossQ:
    assert isinstance(agent.algorithm, CrossQ)
    return agent.algorithm


def batch(space: Spaces, seed: int = 0) -> Batch:
    rng = torch.Generator().manual_seed(seed)
    obs, next_obs = (torch.randn(8, 3, generator=rng) for _ in range(2))
    action = torch.arange(8) % 2 if space.action_kind == "discrete" else torch.rand(8, 1, generator=rng) * 2 - 1
    ends = torch.arange(8) == 2, torch.arange(8) == 5
    return Batch(obs, action, torch.randn(8, generator=rng), next_obs, *ends)


def norms(net: nn.Module) -> list[BatchRenorm1d]:
    return [module for module in net.modules() if isinstance(module, BatchRenorm1d)]


def statistics(net: nn.Module) -> list[Tensor]:
    return [tensor.clone() for norm in norms(net) for tensor in (norm.running_mean, norm.running_var, norm.steps)]


def same(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(map(torch.equal, first, second))


# targets ----------------------------------------------------------------------------------------------------------


def test_the_target_comes_from_the_critics_themselves() -> None:
    agent = make("CrossQ", **LINEAR)
    learner = learner_of(agent)
    set_table(learner.policy.net, [[0, 0, 0], [0, math.log(3), 0]])  # in state 1: .25, .75
    set_table(learner.critics.q1, [[5, 1, 0], [6, 2, 0]])
    set_table(learner.critics.q2, [[7, 3, 0], [8, 4, 0]])
    ends = torch.tensor([False, True, False]), torch.tensor([False, False, True])
    rows = Batch(one_hot([0] * 3), torch.tensor([1, 1, 0]), torch.ones(3), one_hot([1] * 3), *ends)
    q1, q2, target = crossq(agent).values(rows, 0.2, agent.algorithm.rng.noise)
    # means of the twins 2 and 3: .25 * 2 + .75 * 3 = 2.75; entropy .562335; 1 + .5 (2.75 + .2 * .562335)
    assert target.tolist() == pytest.approx([2.4312335, 1, 2.4312335])
    assert (q1.tolist(), q2.tolist()) == ([6, 6, 5], [8, 8, 7])
    assert not target.requires_grad


@pytest.mark.parametrize("space", KINDS)
def test_states_and_what_follows_pass_the_critics_as_one_batch(space: Spaces) -> None:
    agent = make("CrossQ", space, **{"agent.critic_net": CRITIC})
    algorithm, learner, rows = crossq(agent), learner_of(agent), batch(space)
    live(agent, 6)  # so that running statistics say something
    stream = algorithm.rng.torch.get_state()
    assert not learner.policy.training
    with torch.no_grad():
        choice = learner.policy(rows.next_obs, algorithm.rng.noise)  # in evaluation mode
        algorithm.rng.torch.set_state(stream)
        twin = copy.deepcopy(learner.critics).train()
        action = None if choice.action is None else torch.cat([rows.action, choice.action])
        q = twin(joined_obs(rows.obs, rows.next_obs), action)
    next_q = learner.critics.agreed(q[0][8:], q[1][8:])
    value = choice.expect(next_q) + 0.2 * choice.entropy
    expected = torch.where(rows.terminated, rows.reward, rows.reward + 0.5 * value)
    before = statistics(learner.policy)
    q1, q2, target = algorithm.values(rows, 0.2, algorithm.rng.noise)
    torch.testing.assert_close(target, expected)
    torch.testing.assert_close(q1.detach(), learner.critics.of(q[0][:8], rows.action))
    torch.testing.assert_close(q2.detach(), learner.critics.of(q[1][:8], rows.action))
    assert same(statistics(learner.policy), before)
    assert same(statistics(learner.critics), statistics(twin))  # once, by the joint batch


def test_no_gradient_comes_from_what_follows() -> None:
    agent = make("CrossQ", **LINEAR)
    learner = learner_of(agent)
    rows = Batch(
        one_hot([0]), torch.tensor([1]), torch.ones(1), one_hot([1]), torch.zeros(1).bool(), torch.ones(1).bool()
    )
    before = learner.critics.q1.net.heads[0].weight.detach().clone()
    agent.algorithm.update(Given(rows), 4)
    moved = (learner.critics.q1.net.heads[0].weight != before).tolist()
    assert moved == [[False, False, False], [True, False, False]]  # the action taken in state 0


# norms ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("space", KINDS)
def test_a_critic_step_moves_the_statistics_once_and_the_actors_not(space: Spaces) -> None:
    keys = {"agent.algorithm.training_iter": 3, "agent.algorithm.policy_delay": 5, "agent.critic_net": CRITIC}
    agent = make("CrossQ", space, **keys)
    learner, rows = learner_of(agent), batch(space)
    before = statistics(learner.policy)
    agent.algorithm.update(Given(rows), 4)
    assert len(norms(learner.critics)) == 4  # two a critic: of the input and of the hidden layer
    assert [norm.steps.item() for norm in norms(learner.critics)] == [3, 3, 3, 3]
    assert same(statistics(learner.policy), before)
    # the input's mean is that of states and successors; after three halves of the way an eighth is missing
    assert isinstance(rows.obs, Tensor)
    assert isinstance(rows.next_obs, Tensor)
    mean = torch.cat([rows.obs, rows.next_obs]).mean(0)
    torch.testing.assert_close(norms(learner.critics.q1)[0].running_mean[:3], mean * 7 / 8)


@pytest.mark.parametrize("space", KINDS)
def test_a_policy_step_moves_the_actors_statistics_and_leaves_the_critics_alone(space: Spaces) -> None:
    agent = make("CrossQ", space, **{"agent.critic_net": CRITIC})
    learner, before = learner_of(agent), weights(agent)
    critics = statistics(learner.critics)
    learner.policy_step(batch(space), agent.algorithm.rng.noise, alpha=0.0, share=0.6)
    assert same(statistics(learner.critics), critics)
    assert [norm.steps.item() for norm in norms(learner.policy)] == [1, 1]
    assert changed(agent, before) == {"policy", "temperature"}


@pytest.mark.parametrize("space", KINDS)
def test_acting_changes_nothing(space: Spaces) -> None:
    agent = make("CrossQ", space)
    live(agent, 6)
    before = weights(agent)
    for frame in (0, 10_000):
        agent.act(agent.see(np.ones((4, 3), np.float32)), frame)
    agent.decide(np.ones((4, 3), np.float32))
    assert changed(agent, before) == set()
    assert not any(module.training for module in learner_of(agent).policy.modules())
    assert not any(module.training for module in learner_of(agent).critics.modules())


# settings ---------------------------------------------------------------------------------------------------------


def test_critics_are_built_from_their_own_section() -> None:
    agent = make("CrossQ", BOX, **{"agent.critic_net": CRITIC | {"optim_spec": {"name": "SGD", "lr": 0.3}}})
    learner = learner_of(agent)
    shapes = [module.weight.shape for module in learner.critics.q2.modules() if isinstance(module, nn.Linear)]
    assert shapes == [(5, 4), (1, 5)]
    assert [norm.momentum for norm in norms(learner.critics)] == [0.5] * 4
    assert [norm.momentum for norm in norms(learner.policy)] == [0.01] * 2
    assert next(module for module in learner.policy.modules() if isinstance(module, nn.Linear)).weight.shape == (16, 3)
    assert (learner.optim.lr_of("q1"), learner.optim.lr_of("actor")) == (0.3, 0.01)


def test_the_loss_is_that_of_the_critics_section() -> None:
    agent = make(
        "CrossQ", **LINEAR | {"agent.critic_net": {"type": "MLPNet", "hid_layers": [], "loss_spec": {"name": "L1Loss"}}}
    )
    learner = learner_of(agent)
    set_table(learner.critics.q1, [[0, 0, 0], [3, 0, 0]])
    set_table(learner.critics.q2, [[0, 0, 0], [-4, 0, 0]])
    ended = Batch(
        one_hot([0]), torch.tensor([1]), torch.ones(1), one_hot([1]), torch.ones(1).bool(), torch.zeros(1).bool()
    )
    assert agent.algorithm.update(Given(ended), 4)["loss"] == pytest.approx(2 + 5)


def test_critics_without_batch_renorm_are_remarked_upon() -> None:
    assert make("CrossQ").algorithm.notes == []
    assert ["batch_renorm" in note for note in make("CrossQ", **LINEAR).algorithm.notes] == [True]
    plain = {"agent.critic_net": {"type": "MLPNet", "hid_layers": [5]}}  # the actor's alone are not enough
    assert ["batch_renorm" in note for note in make("CrossQ", **plain).algorithm.notes] == [True]


def test_there_are_no_target_nets() -> None:
    assert list(make("CrossQ").algorithm.nets) == ["soft"]


# state ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("space", KINDS)
def test_an_agent_brought_back_learns_the_very_same(space: Spaces) -> None:
    keys: dict[str, Any] = {
        "agent.algorithm.policy_delay": 3,
        "agent.critic_net": CRITIC | {"batch_renorm": {"warmup_steps": 15}},  # it ends after the agent is brought back
    }
    agent, other = make("CrossQ", space, **keys), make("CrossQ", space, 1, **keys)
    live(agent, 12)
    other.load_state_dict(copy.deepcopy(agent.state_dict()))
    expected = live(agent, 20, seed=1, frame=48)
    assert live(other, 20, seed=1, frame=48) == expected
    assert changed(other, weights(agent)) == set()
    assert len(expected) == 20
