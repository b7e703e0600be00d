from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from made_up import SGD, changed, fill, learner_of, make, spaces, update, weights

from slm_lab.agent import Agent
from slm_lab.agent.memory.onpolicy import OnPolicyCrossEntropy, OnPolicyReplay
from slm_lab.types import Act, Array, Step

LINEAR: dict[str, Any] = {
    "agent.net.hid_layers": [],
    "agent.net.optim_spec": SGD,
    "agent.algorithm.entropy_coef_spec": None,
}


def play(agent: Agent, rewards: Array, ended: Array, truncates: bool = False) -> tuple[Array, Array]:
    """Add rows of rewards [T, N]; the observations and actions [T, N, ...] that went with them."""
    rng, (steps, n) = np.random.default_rng(0), rewards.shape
    obs, action = rng.normal(size=(steps, n, 3)).astype(np.float32), rng.integers(0, 2, (steps, n))
    no = np.zeros(n, bool)
    assert agent.memory is not None
    for t in range(steps):
        ends = (no, ended[t]) if truncates else (ended[t], no)
        agent.memory.add(obs[t], Act(action[t], action[t], {}), Step(rewards[t].astype(np.float32), obs[t], *ends))
    return obs, action


@pytest.mark.parametrize("truncates", [False, True])
@pytest.mark.parametrize("center", [False, True])
def test_one_step_of_two_envs_by_hand(truncates: bool, center: bool) -> None:
    agent = make(
        "Reinforce",
        spaces(num_envs=2),
        **LINEAR,
        **{
            "agent.algorithm.gamma": 0.5,
            "agent.algorithm.training_frequency": 4,
            "agent.algorithm.center_return": center,
        },
    )
    # env 0: episodes of rewards (1, 2) and (4, 8). env 1: (3, 5, 7), then a tail that has not ended
    rewards = np.array([[1, 3], [2, 5], [4, 7], [8, 100]])
    ended = np.array([[False, False], [True, False], [False, True], [True, False]])
    obs, action = play(agent, rewards, ended, truncates)
    rows = [(0, 0), (1, 0), (0, 1), (1, 1), (2, 1), (2, 0), (3, 0)]
    returns = torch.tensor([1 + 1.0, 2, 3 + 0.5 * 8.5, 8.5, 7, 4 + 4, 8])
    weight = (returns - returns.mean()) / returns.std(correction=0)

    linear = learner_of(agent).net.actor.net.heads[0]
    w, b = linear.weight.detach().clone().requires_grad_(), linear.bias.detach().clone().requires_grad_()
    x = torch.from_numpy(np.stack([obs[row] for row in rows]))
    log_probs = (x @ w.T + b).log_softmax(-1)[torch.arange(7), torch.tensor([int(action[row]) for row in rows])]
    dw, db = torch.autograd.grad(-(weight * log_probs).mean(), (w, b))

    metrics = update(agent)
    torch.testing.assert_close(linear.weight, w - 0.1 * dw)
    torch.testing.assert_close(linear.bias, b - 0.1 * db)
    assert metrics["loss"] == pytest.approx(-(weight * log_probs).mean().item(), abs=1e-6)
    assert metrics["opt_steps"] == 1


def test_an_unfinished_tail_is_learnt_from_when_it_ends() -> None:
    agent = make(
        "Reinforce", spaces(num_envs=1), **{"agent.algorithm.training_frequency": 2, "agent.algorithm.gamma": 1.0}
    )
    play(agent, np.array([[1.0], [1.0], [1.0]]), np.array([[False], [True], [False]]))
    assert agent.memory is not None
    assert agent.memory.ready()
    assert agent.memory.sample().reward.flatten().tolist() == [1, 1]
    play(agent, np.array([[5.0], [6.0]]), np.array([[False], [True]]))
    assert agent.memory.ready()
    assert agent.memory.sample().reward.flatten().tolist() == [1, 5, 6]


@pytest.mark.parametrize(
    ("name", "keys", "cls"),
    [
        ("OnPolicyReplay", {}, OnPolicyReplay),
        ("OnPolicyBatchReplay", {}, OnPolicyReplay),  # counted in steps, but whole episodes all the same
        ("OnPolicyCrossEntropy", {"cross_entropy": 0.5}, OnPolicyCrossEntropy),
    ],
)
def test_every_memory_of_the_registry_gives_it_whole_episodes(name: str, keys: dict[str, Any], cls: type[Any]) -> None:
    agent = make("Reinforce", **{"agent.memory": {"name": name, **keys}, "agent.algorithm.training_frequency": 10})
    assert type(agent.memory) is cls
    before = weights(agent)
    fill(agent)
    assert agent.memory is not None
    state = agent.memory.state_dict()
    batch = agent.memory.sample()
    assert batch.ended[-1].all()
    agent.memory.load_state_dict(state)
    update(agent)
    assert changed(agent, before) == {"actor"}


def test_a_batch_of_one_row_does_not_divide_by_zero() -> None:
    agent = make("Reinforce", spaces(num_envs=1), **{"agent.algorithm.training_frequency": 1})
    play(agent, np.array([[3.0]]), np.array([[True]]))
    assert np.isfinite(update(agent)["loss"])
    assert all(torch.isfinite(tensor).all() for tensor in weights(agent).values())
