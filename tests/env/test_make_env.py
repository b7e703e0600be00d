from __future__ import annotations

import random
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from slm_lab.env import make_env
from slm_lab.lib.rng import Consumer, seed_of
from slm_lab.spec.schema import EnvSpec
from slm_lab.types import Array, VecEnv

KEY = (0, 0, 0)


def spec(name: str, num_envs: int = 4, **rest: Any) -> EnvSpec:
    return EnvSpec(name=name, num_envs=num_envs, max_frame=1, **rest)


def obs_of(env: VecEnv) -> Array:
    assert isinstance(env.obs, np.ndarray)
    return env.obs


def random_action(env: VecEnv, rng: np.random.Generator) -> Array:
    n, dim = env.spaces.num_envs, env.spaces.action_dim
    return rng.integers(0, dim, n) if env.spaces.action_kind == "discrete" else rng.uniform(-1.2, 1.2, (n, dim))


def test_every_env_has_its_own_seed_and_a_key_repeats_them() -> None:
    first, again, session = (obs_of(make_env(spec("CartPole-v1"), 0.99, key)) for key in (KEY, KEY, (0, 0, 1)))
    evaluation = obs_of(make_env(spec("CartPole-v1"), 0.99, KEY, training=False))
    rows = np.concatenate([first, session, evaluation])
    assert np.array_equal(first, again)
    assert len(np.unique(rows, axis=0)) == 12


@pytest.mark.parametrize(("training", "consumer"), [(True, Consumer.ENV), (False, Consumer.EVAL)])
def test_env_i_is_a_plain_env_with_the_ith_seed_of_its_consumer(training: bool, consumer: Consumer) -> None:
    obs = obs_of(make_env(spec("CartPole-v1"), 0.99, (3, 1, 2), training))
    plain = gym.make("CartPole-v1")
    assert np.array_equal(obs, [plain.reset(seed=seed_of(3, 1, 2, consumer, i))[0] for i in range(4)])


def first_ends(env: VecEnv, steps: int) -> tuple[list[int], list[float]]:
    """Step of each env's first end, and all returns that were counted."""
    rng, ends, returns = np.random.default_rng(0), np.zeros(env.spaces.num_envs, int), list[float]()
    for t in range(1, steps + 1):
        step = env.step(random_action(env, rng))
        ends[(ends == 0) & (step.terminated | step.truncated)] = t
        returns += step.returns
    return ends.tolist(), returns


def test_first_episodes_of_fixed_length_are_spread_and_not_counted() -> None:
    ends, returns = first_ends(make_env(spec("Pendulum-v1", num_envs=8, max_t=50), 0.99, KEY), 50)
    assert len(set(ends)) > 4
    assert all(1 <= end <= 50 for end in ends)
    assert len(returns) == sum(end == 50 for end in ends)
    again, _ = first_ends(make_env(spec("Pendulum-v1", num_envs=8, max_t=50), 0.99, KEY), 50)
    other, _ = first_ends(make_env(spec("Pendulum-v1", num_envs=8, max_t=50), 0.99, (0, 0, 1)), 50)
    assert again == ends
    assert other != ends


@pytest.mark.parametrize(
    ("name", "num_envs", "training"),
    [("Pendulum-v1", 8, False), ("Pendulum-v1", 1, True), ("MountainCar-v0", 8, True)],
)
def test_evaluation_single_envs_and_other_ids_are_not_staggered(name: str, num_envs: int, training: bool) -> None:
    ends, returns = first_ends(make_env(spec(name, num_envs, max_t=20), 0.99, KEY, training), 20)
    assert ends == [20] * num_envs
    assert len(returns) == num_envs


def test_learning_rewards_follow_the_spec_and_evaluation_keeps_them_raw() -> None:
    pushed = spec("CartPole-v1", reward_scale=3.0, clip_reward=2.0)
    assert make_env(pushed, 0.99, KEY).step(np.zeros(4, np.int64)).reward.tolist() == [2] * 4
    assert make_env(pushed, 0.99, KEY, training=False).step(np.zeros(4, np.int64)).reward.tolist() == [1] * 4


def test_normalised_rewards_are_clipped_at_ten_by_default() -> None:
    env = make_env(spec("tiny_envs:Countdown", num_envs=1, normalize_reward=True, length=500), 0.99, KEY)
    # one discounted return so far: its variance is next to nothing, and reward / deviation far above 10
    assert env.step(np.zeros(1, np.int64)).reward.tolist() == [10]


def test_constructor_keys_reach_the_env() -> None:
    assert make_env(spec("LunarLander-v3", continuous=True), 0.99, KEY).spaces.action_kind == "continuous"
    env = make_env(spec("tiny_envs:Countdown", num_envs=1, length=1), 0.99, KEY)
    assert env.step(np.zeros(1, np.int64)).terminated.tolist() == [True]


def test_auto_is_sync_here_and_async_gives_the_same_numbers() -> None:
    envs = [make_env(spec("Pendulum-v1", 3, max_t=9, vectorization=kind), 0.99, KEY) for kind in ("auto", "async")]
    rng = np.random.default_rng(0)
    for _ in range(20):
        action = rng.uniform(-1, 1, (3, 1)).astype(np.float32)
        left, right = (env.step(action) for env in envs)
        for x, y in zip(left[:4], right[:4], strict=True):
            np.testing.assert_equal(x, y, strict=True)
        assert left.returns == right.returns
    envs[1].close()


def test_ids_with_a_proof_are_exact_and_others_unverified() -> None:
    assert make_env(spec("CartPole-v1"), 0.99, KEY).exact == "exact"
    assert make_env(spec("FrozenLake-v1"), 0.99, KEY).exact == "unverified"


@pytest.mark.parametrize("name", ["CartPole-v1", "LunarLander-v3", "HalfCheetah-v5", "Pendulum-v1"])
def test_stepping_moves_no_global_random_state(name: str) -> None:
    before = np.random.get_state(), random.getstate(), torch.get_rng_state()
    env = make_env(spec(name, num_envs=2, max_t=10), 0.99, KEY)
    rng = np.random.default_rng(0)
    for _ in range(15):
        env.step(random_action(env, rng))
    env.load_state_dict(env.state_dict())
    after = np.random.get_state(), random.getstate(), torch.get_rng_state()
    np.testing.assert_equal(before[0], after[0])
    assert before[1] == after[1]
    assert torch.equal(before[2], after[2])
