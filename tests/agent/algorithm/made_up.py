"""Agents without envs, and made-up experience for them to learn from."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from specs_for_tests import NET, tiny_spec
from torch import Tensor

from slm_lab.agent import Agent, make_agent
from slm_lab.agent.algorithm.acting import NetActor
from slm_lab.agent.plan import plan_agent
from slm_lab.types import Act, ActionKind, Array, Batch, Metrics, Shape, Spaces, Step

SGD = {"name": "SGD", "lr": 0.1}
REPLAY = {"name": "Replay", "batch_size": 8, "max_size": 64}
Q_LEARNING: dict[str, Any] = {
    "algorithm": {"gamma": 0.5, "training_frequency": 4, "explore_var_spec": {"start_val": 0.1}},
    "memory": REPLAY,
    "net": NET,
}
SOFT: dict[str, Any] = {
    "algorithm": {"gamma": 0.5, "training_frequency": 4, "training_iter": 1, "training_start_step": 8},
    "memory": REPLAY,
    "net": NET,
}
SECTIONS: dict[str, dict[str, Any]] = {
    "DQN": Q_LEARNING,
    "DoubleDQN": Q_LEARNING,
    "VanillaDQN": Q_LEARNING,
    "SARSA": {
        "algorithm": {
            "gamma": 0.5,
            "training_frequency": 3,
            "action_policy": "epsilon_greedy",
            "explore_var_spec": {"start_val": 0.0},
        },
        "memory": {"name": "OnPolicyBatchReplay"},
        "net": NET,
    },
    "SoftActorCritic": SOFT,
    "CrossQ": {**SOFT, "net": NET | {"batch_renorm": True}},
}
"""The agent section of value-based and soft algorithms, with few and round numbers."""


def spaces(kind: ActionKind = "discrete", dim: int = 2, num_envs: int = 4, nvec: Shape = ()) -> Spaces:
    """Observations of three numbers."""
    return Spaces((3,), np.dtype(np.float32), kind, dim, num_envs, nvec)


def make(name: str, space: Spaces | None = None, session: int = 0, /, **overrides: Any) -> Agent:
    """The agent of a tiny spec; overrides as in tiny_spec."""
    space = space or spaces()
    sections = {f"agent.{part}": copy.deepcopy(keys) for part, keys in SECTIONS.get(name, {}).items()}
    keys = {**sections, "agent.algorithm.name": name, **overrides}
    spec = tiny_spec(name, "none", num_envs=space.num_envs, **keys)
    return make_agent(plan_agent(spec.agent, space.num_envs, []), spec.env, space, (0, 0, session))


def learner_of(agent: Agent) -> Any:
    algorithm: Any = agent.algorithm
    return algorithm.learner


def weights(agent: Agent) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in agent.algorithm.nets.state_dict().items()}


def changed(agent: Agent, before: dict[str, Tensor]) -> set[str]:
    """Which nets hold other numbers than before: actor, critic, policy, target, ..."""
    after = agent.algorithm.nets.state_dict()
    # NaN stands for what is not known yet
    names = [name for name, x in before.items() if not np.array_equal(x.numpy(), after[name].numpy(), equal_nan=True)]
    return {name.removeprefix("net.").removeprefix("soft.").split(".")[0] for name in names}


def random_step(rng: np.random.Generator, num_envs: int, end: float = 0.2) -> Step:
    """Rewards, observations and both kinds of ends."""
    terminated, truncated = rng.random((2, num_envs)) < end / 2
    obs = rng.normal(size=(num_envs, 3)).astype(np.float32)
    return Step(rng.normal(size=num_envs).astype(np.float32), obs, terminated, truncated)


def fill(agent: Agent, seed: int = 0, end: float = 0.2) -> None:
    """Made-up experience of the agent's own actions, until its memory is ready."""
    rng, memory, actor = np.random.default_rng(seed), agent.memory, agent.algorithm.actor
    assert memory is not None
    assert isinstance(actor, NetActor)
    num_envs = actor.policy.spaces.num_envs
    obs: Array = rng.normal(size=(num_envs, 3)).astype(np.float32)
    while not memory.ready():
        act: Act = agent.act(agent.see(obs), 0)
        step = random_step(rng, num_envs, end)
        memory.add(obs, act, step)
        obs = _after(step, rng)


def _after(step: Step, rng: np.random.Generator) -> Array:
    """What is seen after a step: its own observations, or first ones of new episodes."""
    first = rng.normal(size=(len(step.reward), 3)).astype(np.float32)
    return np.where((step.terminated | step.truncated)[:, None], first, np.asarray(step.next_obs))


def update(agent: Agent, frame: int = 0) -> dict[str, float]:
    assert agent.memory is not None
    return agent.algorithm.update(agent.memory, frame)


def live(agent: Agent, steps: int, seed: int = 0, frame: int = 0) -> list[Metrics]:
    """Made-up life with episodes of both kinds of ends; what each update reported."""
    rng, actor, reports = np.random.default_rng(seed), agent.algorithm.actor, list[Metrics]()
    assert isinstance(actor, NetActor)
    num_envs = actor.policy.spaces.num_envs
    obs: Array = rng.normal(size=(num_envs, 3)).astype(np.float32)
    for t in range(steps):
        seen = agent.see(obs)
        act = agent.act(seen, frame + t * num_envs)
        step = random_step(rng, num_envs)
        metrics = agent.learn(seen, act, step, frame + (t + 1) * num_envs)
        reports += [] if metrics is None else [metrics]
        obs = _after(step, rng)
    return reports


class Given:
    """A memory that always hands out the same batch, and keeps what it is told."""

    def __init__(self, batch: Batch) -> None:
        self.batch, self.drawn, self.errors = batch, 0, list[Tensor]()

    def sample(self) -> Batch:
        self.drawn += 1
        return self.batch

    def feedback(self, batch: Batch, error: Tensor) -> None:
        assert batch is self.batch
        self.errors.append(error)


def one_hot(states: Any) -> Tensor:
    """Observations [..., 3] of states by number: in a linear net each has a column of weights of its own."""
    return torch.eye(3)[torch.tensor(states)]


def set_table(net: Any, *tables: list[list[float]]) -> None:
    """Make a net without hidden layers a table: a row for each output, a column for each input."""
    with torch.no_grad():
        for head, table in zip(net.net.heads, tables, strict=True):
            head.weight.copy_(torch.tensor(table))
            head.bias.zero_()


def table_of(net: Any) -> list[list[float]]:
    rows: list[list[float]] = net.net.heads[0].weight.tolist()
    return rows
