from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slm_lab.env import choose
from slm_lab.env.choose import choose_vectorization, random_action, step_seconds
from slm_lab.env.engine import SyncEngine
from slm_lab.env.vec_env import GymVecEnv
from slm_lab.spec.schema import EnvSpec

KEY = (0, 0, 0)


def spec(name: str, num_envs: int = 4) -> EnvSpec:
    return EnvSpec(name=name, num_envs=num_envs, max_frame=1)


class Engine:
    """Stands for an engine and remembers that it was asked for."""

    def __init__(self, built: list[str], name: str) -> None:
        self.built, self.name = built, name

    def __call__(self, *_: Any) -> str:
        self.built.append(self.name)
        return self.name


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, float], list[str]]:
    """Seconds a step takes in each engine, to be set by the test, and the engines that were built."""
    seconds: dict[str, float] = {}
    built: list[str] = []
    monkeypatch.setattr(choose, "SyncEngine", Engine(built, "sync"))
    monkeypatch.setattr(choose, "AsyncEngine", Engine(built, "async"))
    monkeypatch.setattr(choose, "step_seconds", lambda engine, rng: seconds[engine])
    monkeypatch.setattr(choose, "cores", lambda: 4)
    return seconds, built


@pytest.mark.parametrize(
    ("sync", "in_workers", "expected"), [(0.010, 0.004, "async"), (0.010, 0.011, "sync"), (0.0019, 0.001, "sync")]
)
def test_the_faster_engine_is_taken_where_a_step_is_slow(
    measured: Any, sync: float, in_workers: float, expected: str
) -> None:
    seconds, built = measured
    seconds.update({"sync": sync, "async": in_workers})
    assert choose_vectorization(spec("LunarLander-v3"), KEY, jobs=1) == expected
    assert built == (["sync"] if sync < 0.002 else ["sync", "async"])


@pytest.mark.parametrize(("num_envs", "jobs"), [(1, 1), (4, 3)])
def test_nothing_is_built_for_one_env_or_when_sessions_take_all_cores(measured: Any, num_envs: int, jobs: int) -> None:
    assert choose_vectorization(spec("LunarLander-v3", num_envs), KEY, jobs) == "sync"
    assert measured[1] == []


@pytest.mark.parametrize("name", ["CartPole-v1", "Humanoid-v5"])
def test_nothing_is_measured_where_all_envs_are_stepped_at_once(measured: Any, name: str) -> None:
    assert choose_vectorization(spec(name), KEY, jobs=1) == "sync"
    assert measured[1] == []


def test_quick_envs_are_stepped_in_turn() -> None:
    assert choose_vectorization(spec("CartPole-v1"), KEY, jobs=1) == "sync"


def test_a_measured_step_takes_a_plausible_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "MEASURE_SECONDS", 0.02)
    assert 1e-6 < step_seconds(SyncEngine(spec("Pendulum-v1"), [1, 2]), np.random.default_rng(0)) < 0.1


def test_random_actions_keep_to_the_mask() -> None:
    env = GymVecEnv(SyncEngine(spec("tiny_envs:Infos"), [1, 2, 3]))  # allows action 0 only at first
    assert all(not random_action(env, np.random.default_rng(seed)).any() for seed in range(5))
