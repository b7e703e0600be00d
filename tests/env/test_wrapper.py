from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from tiny_envs import rows

from slm_lab.env.engine import SyncEngine
from slm_lab.env.vec_env import GymVecEnv
from slm_lab.env.wrapper import ActionMap, ClipReward, NormalizeReward, RewardScale, action_map
from slm_lab.spec.schema import EnvSpec

NO = np.zeros(2, np.int64)


def vec_env(name: str, n: int = 2, **kwargs: Any) -> GymVecEnv:
    return GymVecEnv(SyncEngine(EnvSpec(name=f"tiny_envs:{name}", max_frame=1, **kwargs), list(range(n))))


def test_the_env_gets_clipped_and_scaled_actions() -> None:
    inner = vec_env("Echo", n=4, length=99)
    env = ActionMap(inner, inner.action_space)
    policy = np.array([[0, 0, 0], [1, 1, 1], [-5, -5, -5], [0.5, 0.5, 70]], np.float32)
    kept = policy.copy()
    got = rows(env.step(policy).next_obs)
    # dims: [-2, 2] doubles, [0, 4] doubles and adds 2, the unbounded one passes
    assert got == [[0, 2, 0], [2, 4, 1], [-2, 0, -5], [1, 3, 70]]
    assert np.array_equal(policy, kept)


def test_bounds_of_one_are_the_identity_bit_by_bit() -> None:
    action = np.random.default_rng(0).uniform(-1, 1, (50, 2)).astype(np.float32)
    assert np.array_equal(action_map(spaces.Box(-1, 1, (2,)), 50)(action), action)


def test_mapped_actions_are_always_inside_the_space() -> None:
    space = spaces.Box(np.array([-0.4, 0.1], np.float32), np.array([0.4, 0.7], np.float32))
    action = np.random.default_rng(0).normal(0, 2, (500, 2)).astype(np.float32)
    assert all(space.contains(row) for row in action_map(space, 500)(action))


def test_half_bounded_and_boundless_dims_are_only_clipped() -> None:
    largest = np.finfo(np.float32).max
    space = spaces.Box(np.array([0, -largest], np.float32), np.array([np.inf, largest], np.float32))
    assert action_map(space, 2)(np.array([[-3, -3], [5, 5]], np.float32)).tolist() == [[0, -3], [5, 5]]


@pytest.mark.parametrize(
    ("space", "action", "expected"),
    [
        (spaces.Discrete(3), np.array([0, 2]), [0, 2]),
        (spaces.Discrete(3, start=-1), np.array([0, 2]), [-1, 1]),
        (spaces.MultiDiscrete([2, 3], start=[4, 0]), np.array([[0, 2], [1, 1]]), [[4, 2], [5, 1]]),
        (spaces.MultiBinary(2), np.array([[0, 1], [1, 1]], np.float32), [[0, 1], [1, 1]]),
        (spaces.Box(-1, 1, (1, 2)), np.array([[0, 1], [1, 1]], np.float32), [[[0, 1]], [[1, 1]]]),
        (spaces.Box(0, 10, (1,), np.int32), np.array([[-1], [0.33]], np.float32), [[0], [7]]),  # 5 + 0.33 * 5 = 6.65
    ],
)
def test_every_kind_of_action_becomes_one_of_the_space(space: Any, action: Any, expected: Any) -> None:
    mapped = action_map(space, 2)(action)
    assert mapped.tolist() == expected
    assert mapped.dtype == space.dtype
    assert all(space.contains(row) for row in mapped)


def test_an_env_whose_actions_start_elsewhere_gets_shifted_ones() -> None:
    inner = vec_env("StartsAtFive")
    env = ActionMap(inner, inner.action_space)
    assert env.spaces.action_dim == 3
    assert rows(env.step(np.array([0, 2])).next_obs) == [[5], [7]]


def test_rewards_are_scaled_or_reduced_to_their_sign_or_clipped() -> None:
    assert [RewardScale(vec_env("Countdown"), 0.5).step(NO).reward.tolist()] == [[0.5, 0.5]]
    signed, clipped = RewardScale(vec_env("Countdown"), "sign"), ClipReward(vec_env("Countdown"), -1.5, 1.5)
    assert [signed.step(NO).reward[0] for _ in range(3)] == [1, 1, 1]
    assert [clipped.step(NO).reward[0] for _ in range(3)] == [1, 1.5, 1.5]


def test_rewards_are_divided_by_the_deviation_of_the_discounted_return() -> None:
    env = NormalizeReward(vec_env("Countdown", n=1, length=2), gamma=0.5)
    mean, var, count, discounted = 0.0, 1.0, 1e-4, 0.0
    for reward, ended in [(1, False), (2, True), (1, False), (2, True)]:
        discounted = 0.5 * discounted + reward  # 1, then 2.5; anew after the end
        delta, total = discounted - mean, count + 1
        var = (var * count + delta**2 * count / total) / total  # a batch of one has no variance of its own
        mean, count = mean + delta / total, total
        step = env.step(NO[:1])
        assert step.reward.dtype == np.float32
        assert step.reward[0] == pytest.approx(reward / (var + 1e-8) ** 0.5)
        assert step.terminated[0] == ended
        discounted *= not ended
    # after the fourth step: discounted returns 1, 2.5, 1, 2.5 have variance 0.5625
    assert var == pytest.approx(0.5625, abs=1e-3)


def test_reward_statistics_are_reset_at_truncation_too() -> None:
    ends, cuts = (NormalizeReward(vec_env("Countdown", length=2, truncates=cut), 0.9) for cut in (False, True))
    for _ in range(6):
        assert np.array_equal(ends.step(NO).reward, cuts.step(NO).reward)


def test_reward_statistics_come_back() -> None:
    env, other = (NormalizeReward(vec_env("Countdown"), 0.9) for _ in range(2))
    for _ in range(4):
        env.step(NO)
    other.load_state_dict(env.state_dict())
    assert rows(env.obs) == rows(other.obs)
    for _ in range(6):
        assert np.array_equal(env.step(NO).reward, other.step(NO).reward)


def test_returns_stay_raw_and_observations_pass_under_all_wrappers() -> None:
    inner = vec_env("Countdown", length=3)
    env = ClipReward(NormalizeReward(RewardScale(ActionMap(inner, inner.action_space), 7.0), 0.9), -0.1, 0.1)
    steps = []
    for _ in range(3):
        assert rows(env.obs) == rows(inner.obs)
        steps.append(env.step(NO))
    assert [step.returns for step in steps] == [(), (), (6.0, 6.0)]
    assert max(step.reward.max() for step in steps) == np.float32(0.1)
    assert env.spaces is inner.spaces
    assert env.exact == "unverified"
