"""Agents without envs, and made-up experience for them to learn from."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from specs_for_tests import tiny_spec
from torch import Tensor

from slm_lab.agent import Agent, make_agent
from slm_lab.agent.algorithm.actor_critic import ActorCritic
from slm_lab.agent.algorithm.ppo import PPO
from slm_lab.agent.algorithm.reinforce import Reinforce
from slm_lab.agent.plan import plan_agent
from slm_lab.types import Act, ActionKind, Array, Shape, Spaces, Step

SGD = {"name": "SGD", "lr": 0.1}


def spaces(kind: ActionKind = "discrete", dim: int = 2, num_envs: int = 4, nvec: Shape = ()) -> Spaces:
    """Observations of three numbers."""
    return Spaces((3,), np.dtype(np.float32), kind, dim, num_envs, nvec)


def make(name: str, space: Spaces | None = None, session: int = 0, /, **overrides: Any) -> Agent:
    """The agent of a tiny spec; overrides as in tiny_spec."""
    space = space or spaces()
    spec = tiny_spec(name, "none", num_envs=space.num_envs, **overrides)
    return make_agent(plan_agent(spec.agent, space.num_envs, []), spec.env, space, (0, 0, session))


def learner_of(agent: Agent) -> Any:
    assert isinstance(agent.algorithm, ActorCritic | PPO | Reinforce)
    return agent.algorithm.learner


def weights(agent: Agent) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in agent.algorithm.nets.state_dict().items()}


def changed(agent: Agent, before: dict[str, Tensor]) -> set[str]:
    """Which nets hold other numbers than before: actor, critic, log_std, ..."""
    after = agent.algorithm.nets.state_dict()
    names = [name for name, tensor in before.items() if not torch.equal(tensor, after[name])]
    return {name.removeprefix("net.").split(".")[0] for name in names}


def random_step(rng: np.random.Generator, num_envs: int, end: float = 0.2) -> Step:
    """Rewards, observations and both kinds of ends."""
    terminated, truncated = rng.random((2, num_envs)) < end / 2
    obs = rng.normal(size=(num_envs, 3)).astype(np.float32)
    return Step(rng.normal(size=num_envs).astype(np.float32), obs, terminated, truncated)


def fill(agent: Agent, seed: int = 0, end: float = 0.2) -> None:
    """Made-up experience of the agent's own actions, until its memory is ready."""
    rng, memory = np.random.default_rng(seed), agent.memory
    assert memory is not None
    num_envs = learner_of(agent).policy.spaces.num_envs
    obs: Array = rng.normal(size=(num_envs, 3)).astype(np.float32)
    while not memory.ready():
        act: Act = agent.act(obs, 0)
        step = random_step(rng, num_envs, end)
        memory.add(obs, act, step)
        obs = rng.normal(size=(num_envs, 3)).astype(np.float32)


def update(agent: Agent, frame: int = 0) -> dict[str, float]:
    assert agent.memory is not None
    return agent.algorithm.update(agent.memory, frame)
