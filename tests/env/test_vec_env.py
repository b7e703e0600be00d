from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from loguru import logger
from tiny_envs import rows

from slm_lab.env.engine import SyncEngine
from slm_lab.env.vec_env import GymVecEnv
from slm_lab.spec.schema import EnvSpec

NO = np.zeros(2, np.int64)


def countdown(limits: list[int] | None = None, n: int = 2, **kwargs: Any) -> GymVecEnv:
    engine = SyncEngine(EnvSpec(name="tiny_envs:Countdown", max_frame=1, **kwargs), list(range(n)))
    return GymVecEnv(engine, None if limits is None else np.array(limits))


@pytest.mark.parametrize("truncates", [False, True])
def test_the_successor_of_an_ended_episode_is_its_last_observation(truncates: bool) -> None:
    env = countdown(length=2, truncates=truncates)
    first = env.step(NO)
    assert rows(first.next_obs) == [[1], [1]]
    assert env.obs is first.next_obs
    last = env.step(NO)
    assert rows(last.next_obs) == [[99], [99]]
    assert rows(env.obs) == [[0], [0]]
    assert last.terminated.tolist() == [not truncates] * 2
    assert last.truncated.tolist() == [truncates] * 2
    assert rows(env.step(NO).next_obs) == [[1], [1]]


def test_no_observation_to_act_on_is_ever_a_terminal_one() -> None:
    env = countdown(length=3)
    seen: list[float] = []
    for _ in range(12):
        seen += [row[0] for row in rows(env.obs)]
        env.step(NO)
    assert set(seen) == {0, 1, 2}


def test_returns_are_the_raw_sums_of_the_episodes_that_ended_in_this_step() -> None:
    env = countdown(length=3)
    assert [env.step(NO).returns for _ in range(6)] == [(), (), (6.0, 6.0), (), (), (6.0, 6.0)]  # 1 + 2 + 3
    assert env.step(NO).reward.dtype == np.float32


def test_a_first_episode_is_cut_at_its_limit_and_not_counted() -> None:
    env = countdown(length=4, limits=[2, 4])
    steps = [env.step(NO) for _ in range(6)]
    # env 0 is cut after 2 steps and ends after 4 more; env 1 has a limit that its own end comes up to
    assert [step.truncated.tolist() for step in steps[:4]] == [
        [False, False],
        [True, False],
        [False, False],
        [False, False],
    ]
    assert [step.terminated.tolist() for step in steps[3:]] == [[False, True], [False, False], [True, False]]
    assert [step.returns for step in steps] == [(), (), (), (10.0,), (), (10.0,)]
    assert rows(steps[1].next_obs) == [[2], [2]]


def test_a_first_episode_that_ends_by_itself_has_no_limit_left() -> None:
    env = countdown(length=2, limits=[3, 2])
    assert not any(env.step(NO).truncated.any() for _ in range(8))


def test_limits_and_returns_so_far_come_back() -> None:
    env, other = countdown(length=9, limits=[3, 5]), countdown(length=9)
    env.step(NO)
    other.load_state_dict(env.state_dict())
    for _ in range(20):
        ours, theirs = env.step(NO), other.step(NO)
        assert ours.truncated.tolist() == theirs.truncated.tolist()
        assert ours.returns == theirs.returns
    assert rows(ours.next_obs) == rows(theirs.next_obs)


def test_an_env_that_comes_back_different_is_a_warning() -> None:
    said: list[str] = []
    sink = logger.add(said.append, level="WARNING", format="{message}")
    engines = [SyncEngine(EnvSpec(name="tiny_envs:Unrepeatable", max_frame=1), [1, 2]) for _ in range(2)]
    env, other = (GymVecEnv(engine) for engine in engines)
    env.step(NO)
    other.load_state_dict(env.state_dict())
    logger.remove(sink)
    assert len(said) == 1
    assert "replayed observation differs from the saved one in envs [0, 1]" in said[0]
    assert rows(other.obs) == rows(engines[1].current()[0])  # the agent acts on what the env shows


def test_masks_follow_the_reset() -> None:
    env = GymVecEnv(SyncEngine(EnvSpec(name="tiny_envs:Infos", max_frame=1, length=2), [1]))
    assert env.action_mask is not None
    assert env.action_mask.tolist() == [[True, False]]
    env.step(NO[:1])
    assert env.action_mask.tolist() == [[True, True]]
    step = env.step(NO[:1])
    assert step.next_mask is not None
    assert step.next_mask.tolist() == [[True, True]]
    assert env.action_mask.tolist() == [[True, False]]
