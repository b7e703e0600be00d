"""`vectorization: auto`: step throw-away envs at random and take the faster engine."""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import Literal

import numpy as np

from slm_lab.env.async_engine import AsyncEngine
from slm_lab.env.classic import can_vectorise
from slm_lab.env.engine import Engine, SyncEngine
from slm_lab.env.mujoco import can_simulate
from slm_lab.env.vec_env import GymVecEnv
from slm_lab.lib.cores import cores
from slm_lab.lib.rng import Consumer, Rng, seed_of
from slm_lab.spec.schema import EnvSpec
from slm_lab.types import Array

WORTH_PROCESSES = 2e-3  # seconds: below this, pipes and scheduling cost more than a second core gives
MEASURE_SECONDS = 0.25


def choose_vectorization(spec: EnvSpec, key: tuple[int, ...], jobs: int) -> Literal["sync", "async"]:
    """The faster engine for this env on this machine, with `jobs` sessions sharing it."""
    if spec.num_envs == 1 or cores() // jobs < 2 or can_vectorise(spec) or can_simulate(spec):
        return "sync"
    seeds = [seed_of(*key, Consumer.PROBE, i) for i in range(spec.num_envs)]
    rng = Rng(*key, Consumer.PROBE).numpy
    sync = step_seconds(SyncEngine(spec, seeds), rng)
    if sync < WORTH_PROCESSES:
        return "sync"
    return "async" if step_seconds(AsyncEngine(spec, seeds), rng) < sync else "sync"


def step_seconds(engine: Engine, rng: np.random.Generator) -> float:
    """Seconds of one vector step under random actions; the engine is closed afterwards."""
    env = GymVecEnv(engine)
    env.action_space.seed(int(rng.integers(2**31)))
    try:
        env.step(random_action(env, rng))  # the first step pays for what is built lazily
        seconds: list[float] = []
        while len(seconds) < 3 or sum(seconds) < MEASURE_SECONDS:
            action = random_action(env, rng)
            start = perf_counter()
            env.step(action)
            seconds.append(perf_counter() - start)
        return median(seconds)  # a busy machine stretches some steps
    finally:
        env.close()


def random_action(env: GymVecEnv, rng: np.random.Generator) -> Array:
    """Random actions [N, ...] of the env's own space, allowed ones where a discrete env has a mask."""
    mask = env.action_mask
    if mask is not None and env.spaces.action_kind == "discrete":
        return np.asarray((mask * rng.random(mask.shape)).argmax(1))
    return np.stack([env.action_space.sample() for _ in range(env.spaces.num_envs)])
