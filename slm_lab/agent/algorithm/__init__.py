"""Algorithms by name."""

from __future__ import annotations

from collections.abc import Mapping

from slm_lab.agent.algorithm.actor_critic import ActorCritic
from slm_lab.agent.algorithm.base import Algorithm
from slm_lab.agent.algorithm.crossq import CrossQ
from slm_lab.agent.algorithm.double_dqn import DoubleDQN
from slm_lab.agent.algorithm.dqn import DQN
from slm_lab.agent.algorithm.ppo import PPO
from slm_lab.agent.algorithm.ppo_sil import PPOSIL
from slm_lab.agent.algorithm.random import Random
from slm_lab.agent.algorithm.reinforce import Reinforce
from slm_lab.agent.algorithm.sarsa import SARSA
from slm_lab.agent.algorithm.sil import SIL
from slm_lab.agent.algorithm.soft_actor_critic import SoftActorCritic
from slm_lab.agent.algorithm.vanilla_dqn import VanillaDQN
from slm_lab.lib.plugin import component

ALGORITHMS: Mapping[str, type[Algorithm]] = {
    "ActorCritic": ActorCritic,
    "CrossQ": CrossQ,
    "DQN": DQN,
    "DoubleDQN": DoubleDQN,
    "PPO": PPO,
    "PPOSIL": PPOSIL,
    "Random": Random,
    "Reinforce": Reinforce,
    "SARSA": SARSA,
    "SIL": SIL,
    "SoftActorCritic": SoftActorCritic,
    "VanillaDQN": VanillaDQN,
}


def algorithm_class(name: object, path: str) -> type[Algorithm]:
    """The algorithm a spec names: one of ours, or `module:Class` of the user's own."""
    return component(ALGORITHMS, name, path, "algorithm", Algorithm)
