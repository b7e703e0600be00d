"""Frames a second of stepping alone: ours through make_env, against Gymnasium's sync vector env and ALE's own.

Random actions, ended episodes restarted in the same step; rounds of both alternate. MuJoCo and ALE are also offered
a thread a core; small simulations leave it alone.
Run: python -m perf.stepping
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from ale_py import AtariVectorEnv
from gymnasium.vector import AutoresetMode

from perf.compare import compare, quiet
from slm_lab.env import make_env
from slm_lab.env.atari_settings import ale_arguments
from slm_lab.lib.cores import cores
from slm_lab.spec.schema import EnvSpec
from slm_lab.types import Array

ROUND = 0.4  # seconds that one round of one side should take, at the rate in CASES
BATCHES = 64  # different vector actions, taken in turn


class Case(NamedTuple):
    """An env, how many of them, and about how many frames a second Gymnasium steps."""

    name: str
    num_envs: int
    rate: int
    threads: tuple[int, ...] = (1,)


BOTH = tuple(sorted({1, cores()}))
CASES = (
    Case("CartPole-v1", 16, 60_000),
    Case("Acrobot-v1", 16, 20_000),
    Case("Pendulum-v1", 16, 30_000),
    Case("MountainCar-v0", 16, 60_000),
    Case("LunarLander-v3", 16, 10_000),
    Case("Hopper-v5", 16, 8_000, BOTH),
    Case("HalfCheetah-v5", 16, 8_000, BOTH),
    Case("Ant-v5", 16, 2_500, BOTH),
    Case("Humanoid-v5", 16, 2_000, BOTH),
    Case("ALE/Pong-v5", 8, 2_000, BOTH),
)


class Stepper:
    """Takes the same random actions in turn, so that nothing is drawn while time runs."""

    def __init__(self, step: Callable[[Array], Any], actions: Array) -> None:
        self._step, self._actions, self._num_envs = step, itertools.cycle(actions), actions.shape[1]

    def run(self, frames: int) -> None:
        for action in itertools.islice(self._actions, frames // self._num_envs):
            self._step(action)


def ours(spec: EnvSpec, threads: int) -> Stepper:
    env = make_env(spec, 0.99, (0, 0, 0), training=False, threads=threads)
    rng, shape = np.random.default_rng(0), (BATCHES, spec.num_envs)
    if env.spaces.action_kind == "discrete":
        return Stepper(env.step, rng.integers(0, env.spaces.action_dim, shape))
    return Stepper(env.step, rng.uniform(-1, 1, (*shape, env.spaces.action_dim)).astype(np.float32))


def theirs(spec: EnvSpec, threads: int) -> Stepper:
    """The peer, with actions of the same distribution in the env's own range."""
    env: Any
    if spec.name.startswith("ALE/"):
        arguments = ale_arguments(spec, threads) | {"autoreset_mode": AutoresetMode.SAME_STEP}
        env = AtariVectorEnv(num_envs=spec.num_envs, **arguments)
    else:
        kwargs = {"autoreset_mode": AutoresetMode.SAME_STEP}
        env = gym.make_vec(spec.name, spec.num_envs, vectorization_mode="sync", vector_kwargs=kwargs)
    env.reset(seed=0)
    rng, space, shape = np.random.default_rng(0), env.single_action_space, (BATCHES, spec.num_envs)
    if isinstance(space, gym.spaces.Discrete):
        return Stepper(env.step, rng.integers(0, space.n, shape))
    return Stepper(env.step, rng.uniform(space.low, space.high, (*shape, *space.shape)).astype(np.float32))


def main() -> None:
    quiet()
    for case in CASES:
        for threads in case.threads:
            atari = case.name.startswith("ALE/")
            kwargs: dict[str, Any] = {"num_threads": threads} if atari else {}
            spec = EnvSpec(name=case.name, num_envs=case.num_envs, max_frame=1, **kwargs)
            title = f"{case.name:15} {case.num_envs:2} envs {threads} {'thread ' if threads == 1 else 'threads'}"
            frames = int(case.rate * ROUND)
            other = "ALE" if atari else "Gymnasium"
            compare(title, ours(spec, threads), theirs(spec, threads), other, frames, warm_up=frames // 4)


if __name__ == "__main__":
    main()
