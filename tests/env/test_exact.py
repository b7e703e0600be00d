"""Every id that is recorded as exact: saved in mid-episode, loaded elsewhere, compared bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slm_lab.env import make_env
from slm_lab.env.known import EXACT
from slm_lab.spec.schema import EnvSpec
from slm_lab.types import Array, VecEnv

NATURAL = {"BipedalWalker-v3", "BipedalWalkerHardcore-v3", "LunarLander-v3", "LunarLanderContinuous-v3"}
CASES = [*((name, {}) for name in sorted(EXACT)), ("LunarLander-v3", {"continuous": True})]


def is_plain(value: Any) -> bool:
    """Only what a checkpoint may hold: no object that would need a pickle."""
    if type(value) is dict:
        return all(type(key) is str and is_plain(item) for key, item in value.items())
    if type(value) in (list, tuple):
        return all(is_plain(item) for item in value)
    if type(value) is np.ndarray:
        return bool(value.dtype != object)
    return value is None or type(value) in (int, float, str, bool)


def actions(env: VecEnv, steps: int, seed: int) -> Array:
    """Random actions [steps, N, ...]; continuous ones are held for a while, which makes walkers fall."""
    rng, spaces = np.random.default_rng(seed), env.spaces
    if spaces.action_kind == "discrete":
        return rng.integers(0, spaces.action_dim, (steps, spaces.num_envs))
    drawn = rng.uniform(-1.2, 1.2, (steps // 20, spaces.num_envs, spaces.action_dim)).astype(np.float32)
    return np.repeat(drawn, 20, axis=0)


def play(env: VecEnv, acts: Array) -> tuple[list[Any], int]:
    """Everything the env says, and how many episodes ended."""
    said: list[Any] = []
    ended = 0
    for action in acts:
        step = env.step(action)
        said.append((step.reward, step.next_obs, step.terminated, step.truncated, step.returns, env.obs))
        ended += int((step.terminated | step.truncated).sum())
    return said, ended


@pytest.mark.parametrize(("name", "kwargs"), CASES, ids=[f"{name}{kwargs or ''}" for name, kwargs in CASES])
def test_an_exact_env_comes_back_in_mid_episode(name: str, kwargs: dict[str, Any]) -> None:
    # Box2D episodes end by themselves, and a world that outlives them shows after several; the others get a limit
    steps, max_t = (400, None) if name in NATURAL else (60, 37)
    spec = EnvSpec(name=name, num_envs=2, max_frame=1, max_t=max_t, normalize_reward=True, **kwargs)
    env = make_env(spec, 0.99, (0, 0, 0))
    assert env.exact == "exact"
    before, after = actions(env, steps, seed=1), actions(env, steps, seed=2)
    play(env, before[:9])
    early = env.state_dict()
    first_said, first_ended = play(env, before[9:])
    late = env.state_dict()
    late_said, late_ended = play(env, after)
    assert first_ended >= 1
    assert late_ended >= 1
    assert is_plain(early)
    assert is_plain(late)
    for state, acts, said in ((early, before[9:], first_said), (late, after, late_said)):
        other = make_env(spec, 0.99, (5, 0, 0))
        other.load_state_dict(state)
        np.testing.assert_equal(play(other, acts)[0], said)
        other.close()
    env.close()


def test_the_check_for_plain_data_sees_objects() -> None:
    assert not is_plain({"rng": np.random.default_rng()})
    assert not is_plain([np.float64(1)])
    assert not is_plain({"a": np.array([None])})
