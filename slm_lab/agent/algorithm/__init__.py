"""Algorithms by name."""

from __future__ import annotations

from collections.abc import Mapping

from slm_lab.agent.algorithm.actor_critic import ActorCritic
from slm_lab.agent.algorithm.base import Algorithm
from slm_lab.agent.algorithm.ppo import PPO
from slm_lab.agent.algorithm.random import Random
from slm_lab.agent.algorithm.reinforce import Reinforce
from slm_lab.lib.plugin import component

ALGORITHMS: Mapping[str, type[Algorithm]] = {
    "ActorCritic": ActorCritic,
    "PPO": PPO,
    "Random": Random,
    "Reinforce": Reinforce,
}


def algorithm_class(name: object, path: str) -> type[Algorithm]:
    """The algorithm a spec names: one of ours, or `module:Class` of the user's own."""
    return component(ALGORITHMS, name, path, "algorithm", Algorithm)
