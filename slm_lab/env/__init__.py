"""From an env spec to a vector env. A new family of envs is one file and one line in ENVS."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from slm_lab.env.adapter import Adapter, Face
from slm_lab.env.async_engine import AsyncEngine
from slm_lab.env.atari import atari_face, make_atari
from slm_lab.env.atari_settings import check_atari
from slm_lab.env.check import check_gym
from slm_lab.env.classic import ClassicEngine, can_vectorise
from slm_lab.env.engine import Engine, SyncEngine
from slm_lab.env.envpool import check_envpool, envpool_face, make_envpool
from slm_lab.env.known import EXACT, FIXED_LENGTH
from slm_lab.env.mujoco import MujocoEngine, can_simulate
from slm_lab.env.playground import PREFIX, check_playground, make_playground, playground_face
from slm_lab.env.seeds import env_seeds
from slm_lab.env.source import build, episode_limit
from slm_lab.env.vec_env import GymVecEnv
from slm_lab.env.watch import Drawn, Use, Watch, WatchedEngine
from slm_lab.env.wrapper import ActionMap, ClipReward, NormalizeReward, RewardScale
from slm_lab.lib.errors import SpecError
from slm_lab.spec.schema import EnvSpec
from slm_lab.types import VecEnv

Key = tuple[int, ...]


class Family(NamedTuple):
    """How the envs of one prefix are made and checked, and the backends it chooses from itself."""

    make: Callable[[EnvSpec, Key, Use], VecEnv]
    check: Callable[[EnvSpec], None]
    face: Callable[[EnvSpec], Face]
    backends: tuple[str, ...] = ("auto", "gymnasium")


def make_gym(spec: EnvSpec, key: Key, use: Use) -> VecEnv:
    """Any single Gymnasium env as a vector env that takes the policy's actions."""
    # late: worker processes import this package, and torch would cost each of them seconds
    from slm_lab.lib.rng import Consumer, Rng

    seeds = env_seeds(spec, key, use.training)
    limit = episode_limit(spec) if use.training and spec.num_envs > 1 and spec.name in FIXED_LENGTH else None
    limits = Rng(*key, Consumer.ENV).numpy.integers(1, limit + 1, spec.num_envs) if limit else None
    env = GymVecEnv(_engine(spec, seeds, use), limits, "exact" if spec.name in EXACT else "unverified")
    return ActionMap(env, env.action_space)


def _engine(spec: EnvSpec, seeds: list[int], use: Use) -> Engine:
    """What steps the envs fastest; workers draw nothing, so envs that are watched are stepped here."""
    if spec.vectorization == "async" and use.watch is None:
        return AsyncEngine(spec, seeds)
    engine: Drawn
    if can_vectorise(spec):
        engine = ClassicEngine(spec, seeds)
    elif can_simulate(spec):
        engine = MujocoEngine(spec, seeds, use.threads)
    else:
        engine = SyncEngine(spec, seeds, "rgb_array" if use.watch else None)
    return WatchedEngine(engine, use.watch) if use.watch else engine


def gym_face(spec: EnvSpec) -> Face:
    """A Gymnasium env's own spaces."""
    env = build(spec)
    env.close()
    return Face(env.observation_space, env.action_space)


ENVS: dict[str, Family] = {
    "": Family(make_gym, check_gym, gym_face),
    "ALE/": Family(make_atari, check_atari, atari_face),
    PREFIX: Family(make_playground, check_playground, playground_face, ("auto", "gymnasium", "envpool", "jax")),
}
ENVPOOL = Family(make_envpool, check_envpool, envpool_face)


def family(name: str) -> Family:
    """The family with the longest prefix that fits."""
    return ENVS[max((prefix for prefix in ENVS if name.startswith(prefix)), key=len)]


def chosen(spec: EnvSpec) -> Family:
    """The family of the env's name, or EnvPool where the spec asks for it."""
    found = family(spec.name)
    if spec.backend in found.backends:
        return found
    if spec.backend == "envpool":
        return ENVPOOL
    raise SpecError(
        f"env.backend: {spec.backend} does not run {spec.name}. Allowed: {', '.join(found.backends)}, envpool."
    )


def has_engines(spec: EnvSpec) -> bool:
    """Whether `vectorization` has a say: what steps many envs by itself does so in its own way."""
    return chosen(spec) is ENVS[""]


def make_env(
    spec: EnvSpec, gamma: float, key: Key, training: bool = True, watch: Watch | None = None, threads: int = 1
) -> VecEnv:
    """A vector env whose seeds come from `key` (base, trial, session). Evaluation gets other seeds and raw rewards."""
    env = chosen(spec).make(spec, key, Use(training, watch, threads))
    if not training:
        return env
    if spec.reward_scale != 1.0:
        env = RewardScale(env, spec.reward_scale)
    if spec.normalize_reward:
        env = NormalizeReward(env, gamma)
    return ClipReward(env, *spec.reward_bounds) if spec.reward_bounds else env


def check_env(spec: EnvSpec) -> None:
    """SpecError when the env cannot be made as written; nothing is built."""
    chosen(spec).check(spec)


def make_adapter(spec: EnvSpec) -> Adapter:
    """What turns observations and actions of the env's own library into the lab's and back."""
    return Adapter(chosen(spec).face(spec))
