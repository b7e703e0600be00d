from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from made_up import SGD, changed, fill, learner_of, make, spaces, update, weights

from slm_lab.agent import Agent
from slm_lab.agent.algorithm.actor_critic import ActorCritic
from slm_lab.agent.algorithm.returns import bootstrapped_returns, gae
from slm_lab.types import Array, Batch, Cadence


def algorithm_of(agent: Agent) -> ActorCritic:
    assert isinstance(agent.algorithm, ActorCritic)
    return agent.algorithm


def targets(agent: Agent) -> tuple[Batch, Batch]:
    """A rollout of the agent's memory, and its flat form with advantages and targets."""
    fill(agent)
    assert agent.memory is not None
    rollout = agent.memory.sample()
    return rollout, algorithm_of(agent)._with_targets(rollout, rollout.flat())


class Numbers(NamedTuple):
    """A rollout as arrays [T, N], with the values of its rows and their successors."""

    reward: Array
    value: Array
    next_value: Array
    terminated: Array
    ended: Array


def numbers(agent: Agent, rollout: Batch) -> Numbers:
    learner, shape = learner_of(agent), rollout.reward.shape
    assert isinstance(rollout.obs, torch.Tensor)
    assert isinstance(rollout.next_obs, torch.Tensor)
    value, next_value = (learner.values(obs.flatten(0, 1)).reshape(shape) for obs in (rollout.obs, rollout.next_obs))
    return Numbers(rollout.reward.numpy(), value, next_value, rollout.terminated.numpy(), rollout.ended.numpy())


PLAIN = {"agent.algorithm.normalize_advantages": "none"}
NO_LAMBDA = {"agent.algorithm.lam": None, **PLAIN}


def test_with_lambda_advantages_are_generalised_estimates() -> None:
    agent = make("ActorCritic", **PLAIN)
    rollout, batch = targets(agent)
    rows = numbers(agent, rollout)
    adv = gae(*rows, gamma=0.99, lam=0.95)
    assert np.allclose(batch.extra["adv"], adv.flatten(), atol=1e-5)
    assert np.allclose(batch.extra["v_target"], (adv + rows.value).flatten(), atol=1e-5)


@pytest.mark.parametrize("keys", [{"agent.algorithm.num_step_returns": 5}, {}])
def test_without_lambda_they_are_returns_to_the_end_of_the_rollout_minus_values(keys: dict[str, Any]) -> None:
    agent = make("ActorCritic", **NO_LAMBDA, **keys)
    rollout, batch = targets(agent)
    assert len(rollout) == keys.get("agent.algorithm.num_step_returns", 16)
    rows = numbers(agent, rollout)
    total = bootstrapped_returns(rows.reward, rows.next_value, rows.terminated, rows.ended, 0.99)
    assert np.allclose(batch.extra["v_target"], total.flatten(), atol=1e-5)
    assert np.allclose(batch.extra["adv"], (total - rows.value).flatten(), atol=1e-5)


@pytest.mark.parametrize(
    ("keys", "every"),
    [
        ({"lam": 0.95, "training_frequency": 7}, 7),
        ({"lam": 0.95, "training_frequency": 7, "num_step_returns": 3}, 7),  # lambda wins
        ({"lam": None, "training_frequency": 7, "num_step_returns": 3}, 3),
        ({"lam": None, "training_frequency": None, "num_step_returns": 3}, 3),
        ({"lam": None, "training_frequency": 7}, 7),
    ],
)
def test_when_it_updates(keys: dict[str, Any], every: int) -> None:
    agent = make("ActorCritic", **{f"agent.algorithm.{key}": value for key, value in keys.items()})
    assert agent.algorithm.cadence("step") == Cadence(every, "step")


@pytest.mark.parametrize("mode", ["standardize", "batch"])
def test_advantages_are_standardised_over_the_batch(mode: str) -> None:
    agent = make("ActorCritic", **{"agent.algorithm.normalize_advantages": mode})
    adv = targets(agent)[1].extra["adv"]
    assert adv.mean().item() == pytest.approx(0, abs=1e-6)
    assert adv.std(correction=0).item() == pytest.approx(1, rel=1e-4)


def test_percentiles_scale_advantages_without_shifting_them() -> None:
    plain, scaled = (
        make("ActorCritic", **PLAIN),
        make("ActorCritic", **{"agent.algorithm.normalize_advantages": "percentile"}),
    )
    # a batch of small advantages: the range at rate .01 is below 1, by which nothing is divided
    torch.testing.assert_close(targets(plain)[1].extra["adv"], targets(scaled)[1].extra["adv"])


def test_normalised_targets_shrink_the_value_loss_by_their_variance() -> None:
    algorithm = algorithm_of(
        make("ActorCritic", **{"agent.algorithm.normalize_v_targets": True, "agent.algorithm.val_loss_coef": 0.5})
    )
    zeros = torch.zeros(1)
    batch = Batch(zeros, zeros, zeros, zeros, zeros.bool(), zeros.bool()).with_extra(v_target=torch.tensor([30.0]))
    algorithm.v_scale.update(torch.tensor([-10.0, 10.0]))
    assert algorithm._value_loss(torch.tensor([10.0]), batch).item() == pytest.approx(0.5 * 2.0**2)


def test_the_critic_takes_its_further_passes_alone() -> None:
    agents = [
        make("ActorCritic", **{"agent.algorithm.critic_training_epoch": n, "agent.net.optim_spec": SGD}) for n in (1, 4)
    ]
    for agent in agents:
        fill(agent)
    before = weights(agents[0])
    assert [update(agent)["opt_steps"] for agent in agents] == [1, 4]
    assert changed(agents[0], before) == {"actor", "critic"}
    assert changed(agents[1], weights(agents[0])) == {"critic"}


def test_whole_episodes_of_several_envs_will_do_for_a_batch() -> None:
    agent = make("ActorCritic", **{"agent.memory.name": "OnPolicyReplay", "agent.algorithm.training_frequency": 3})
    before = weights(agent)
    fill(agent)
    update(agent)
    assert changed(agent, before) == {"actor", "critic"}


@pytest.mark.parametrize("name", ["PPO", "ActorCritic", "Reinforce"])
@pytest.mark.parametrize("kind", ["discrete", "continuous", "multi_discrete", "multi_binary"])
def test_the_entropy_bonus_raises_entropy(name: str, kind: Any) -> None:
    keys: dict[str, Any] = {
        "agent.algorithm.policy_loss_coef": 0.0,
        "agent.algorithm.entropy_coef_spec": {"start_val": 1.0},
        "agent.net.init_fn": "normal_",  # far from uniform
        "agent.net.hid_layers": [],
    }
    if name != "Reinforce":
        keys["agent.algorithm.val_loss_coef"] = 0.0
    agent = make(name, spaces(kind, 2, nvec=(2, 3) if kind == "multi_discrete" else ()), **keys)
    entropies = list[float]()
    for _ in range(10):
        fill(agent)  # the same observations each time
        entropies.append(update(agent)["entropy"])
    assert entropies[-1] > entropies[0]


@pytest.mark.parametrize("name", ["PPO", "ActorCritic", "Reinforce"])
def test_coefficients_follow_their_schedules(name: str) -> None:
    schedule = {"name": "linear_decay", "start_val": 0.2, "end_val": 0.0, "end_step": 1000}
    learning_rate = {"name": "LinearToZero", "frame": 1000}
    agent = make(name, **{"agent.algorithm.entropy_coef_spec": schedule, "agent.net.lr_scheduler_spec": learning_rate})
    fill(agent)
    metrics = update(agent, frame=250)
    assert metrics.get("entropy_coef", 0.15) == pytest.approx(0.15)
    assert learner_of(agent).optim.lr == pytest.approx(0.0075)
    fill(agent)
    before = weights(agent)
    update(agent, frame=1000)
    assert changed(agent, before) == set()  # a learning rate of exactly 0


@pytest.mark.parametrize("name", ["PPO", "ActorCritic", "Reinforce"])
def test_an_algorithm_restored_in_mid_run_makes_the_very_same_update(name: str) -> None:
    agent, restored = make(name), make(name, None, 1)
    fill(agent, 0)
    update(agent)
    state = copy.deepcopy(agent.state_dict())
    assert changed(restored, weights(agent))
    restored.load_state_dict(state)
    for one in (agent, restored):
        fill(one, 1)
    assert update(agent) == update(restored)
    assert changed(restored, weights(agent)) == set()
