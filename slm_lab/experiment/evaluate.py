"""Evaluation: whole episodes with frozen statistics, in envs of their own."""

from __future__ import annotations

import numpy as np

from slm_lab.agent import Agent, Player
from slm_lab.agent.algorithm.base import Key
from slm_lab.env import make_env
from slm_lab.lib.rng import Consumer, Rng, seed_of
from slm_lab.spec.schema import EnvSpec
from slm_lab.types import VecEnv


def evaluate(agent: Agent, spec: EnvSpec, key: Key, frame: int, episodes: int, deterministic: bool) -> list[float]:
    """Raw returns of `episodes` episodes whose seeds follow from (key, frame)."""
    seeds = (seed_of(*key, Consumer.EVAL, frame), key[1], key[2])
    slots = spec.in_process(min(episodes, spec.num_envs))
    env = make_env(slots, gamma=0.99, key=seeds, training=False)
    try:
        return play(Player(agent, slots.num_envs), env, episodes, None if deterministic else Rng(*seeds, Consumer.ACT))
    finally:
        env.close()


def play(player: Player, env: VecEnv, episodes: int, rng: Rng | None) -> list[float]:
    """Play a fixed share of the episodes in each env: counting the first to finish would favour short ones."""
    count = env.spaces.num_envs
    share = np.full(count, episodes // count) + (np.arange(count) < episodes % count)
    returns = list[float]()
    while share.any():
        step = env.step(player(env.obs, env.action_mask, rng))
        ended = step.terminated | step.truncated
        player.ended(ended)
        for index, total in zip(np.flatnonzero(ended), step.returns, strict=True):
            if share[index] > 0:
                share[index] -= 1
                returns.append(total)
    return returns
