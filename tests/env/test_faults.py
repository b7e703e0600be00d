"""Envs that raise, exit, sleep or give numbers that are none, in this process and in workers."""

from __future__ import annotations

import os
import re
import signal
import time
from typing import Any

import numpy as np
import psutil
import pytest
from tiny_envs import rows

from slm_lab.env import async_engine
from slm_lab.env.async_engine import AsyncEngine
from slm_lab.env.engine import SyncEngine
from slm_lab.env.vec_env import GymVecEnv, check_finite
from slm_lab.lib.errors import RunError
from slm_lab.lib.rng import seed_of
from slm_lab.spec.schema import EnvSpec

NO = np.zeros(2, np.int64)
SEEDS = [11, 12]
FIRST = {"who": SEEDS[0]}  # one env fails, and not with another seed


@pytest.fixture(autouse=True)
def two_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker for each env, unless a test says otherwise."""
    monkeypatch.setattr(async_engine, "cores", lambda: 2)


@pytest.fixture
def one_worker(two_workers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """All envs in the same worker."""
    monkeypatch.setattr(async_engine, "cores", lambda: 1)


def spec(fault: str, **keys: Any) -> EnvSpec:
    return EnvSpec(name="fault_env:Fault", max_frame=1, fault=fault, **keys)


def pids(engine: AsyncEngine) -> list[int]:
    return [remote.process.pid or 0 for remote in engine._remotes]


SHOWN = {
    "raise": r" failed:\nTraceback.*fault_env.py.*ZeroDivisionError: the rod broke",
    "exit": r" ended with exit code 7",
    "sys.exit": r" failed:\nTraceback.*RunError: the env called sys.exit\(0\)",
    "sleep": r" did not answer within 2 s:.*File .*fault_env.py., line \d+ in step",
}
"""What is said of each fault of a worker."""


def test_workers_that_fail_in_a_step_are_replaced_and_their_episodes_are_not_counted(
    warnings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_engine, "cores", lambda: 5)
    seeds, no = [11, 12, 13, 14, 15], np.zeros(5, np.int64)
    others = {str(seed): fault for seed, fault in zip(seeds[1:], SHOWN, strict=True)}  # the first env is sound
    engine = AsyncEngine(spec("raise", at_step=2, who=0, others=others, worker_restarts=4, worker_timeout=2), seeds)
    env, before = GymVecEnv(engine), pids(engine)
    steps = [env.step(no) for _ in range(2)]
    after = pids(engine)
    assert rows(steps[1].next_obs) == [[2], [1], [1], [1], [1]]  # those that failed are where they were
    assert steps[1].reward.tolist() == [2, 0, 0, 0, 0]
    assert not steps[1].terminated.any()
    assert steps[1].truncated.tolist() == [False, True, True, True, True]
    assert rows(env.obs) == [[2], [0], [0], [0], [0]]
    seeds_now = [slot["seed"] for slot in env.state_dict()["engine"]["slots"]]
    assert seeds_now == [11, *(seed_of(seed, 1) for seed in seeds[1:])]  # one whole step was taken
    # 1 + 2 + 3 + 4 + 5: in step 5 where an episode went on, and 5 steps after the new ones began
    assert [step.returns for step in steps] == [(), ()]
    assert [env.step(no).returns for _ in range(5)] == [(), (), (15.0,), (), (15.0,) * 4]
    assert len(warnings) == 4
    for i, (text, warning) in enumerate(zip(SHOWN.values(), warnings, strict=True)):
        assert re.search(rf"^The worker process of envs \[{i + 1}\]{text}", warning, re.DOTALL)
        assert warning.endswith(f"\nA new one takes its place; restarts left: {3 - i}")
    assert after[0] == before[0]
    assert not any(psutil.pid_exists(pid) for pid in before[1:])
    env.close()


@pytest.mark.parametrize(("fault", "restarts"), [("raise", 1), ("exit", 0), ("sleep", 0)])
def test_a_worker_that_fails_once_too_often_ends_the_run_and_leaves_no_process(
    fault: str, restarts: int, warnings: list[str]
) -> None:
    engine = AsyncEngine(spec(fault, at_step=2, worker_restarts=restarts, worker_timeout=2), SEEDS[:1])
    env, seen = GymVecEnv(engine), pids(engine)
    for _ in range(1 + 2 * restarts):  # the second step of each env fails
        env.step(NO[:1])
    seen += pids(engine)
    with pytest.raises(RunError) as error:
        env.step(NO[:1])
    assert re.search(rf"^The worker process of envs \[0\]{SHOWN[fault]}", str(error.value), re.DOTALL)
    assert str(error.value).endswith("\nNo restart is left (env.worker_restarts).")
    assert len(warnings) == restarts
    assert not any(psutil.pid_exists(pid) for pid in seen)
    env.close()


def test_a_fault_in_the_env_of_a_worker_takes_its_other_envs_along(one_worker: None) -> None:
    env = GymVecEnv(AsyncEngine(spec("exit", at_step=2, **FIRST), SEEDS))
    env.step(NO)
    step = env.step(NO)
    assert rows(step.next_obs) == [[1], [1]]
    assert step.truncated.tolist() == [True, True]
    env.close()


def stepped(env: GymVecEnv, count: int) -> list[tuple[list[bool], tuple[float, ...]]]:
    """Ends by a cut, and returns."""
    steps = [env.step(NO) for _ in range(count)]
    return [(step.truncated.tolist(), step.returns) for step in steps]


def test_a_fault_in_a_reset_breaks_episodes_of_other_envs_in_the_next_step(
    one_worker: None, warnings: list[str]
) -> None:
    limits = np.array([2, 9])
    env = GymVecEnv(AsyncEngine(spec("raise", at_reset=2, **FIRST), SEEDS), limits)
    assert stepped(env, 2) == [([False, False], ()), ([True, False], ())]
    assert len(warnings) == 1  # the reset of the first env after its cut
    assert rows(env.obs) == [[0], [2]]
    saved = env.state_dict()
    broken = env.step(NO)
    assert rows(broken.next_obs) == [[1], [2]]  # the second env stands still
    assert broken.reward.tolist() == [1, 0]
    assert broken.truncated.tolist() == [False, True]
    assert rows(env.obs) == [[1], [0]]
    # five steps each, the second env begins one step later
    end = [([False, False], returns) for returns in [(), (), (), (15.0,), (15.0,)]]
    assert stepped(env, 5) == end
    env.load_state_dict(saved)
    assert stepped(env, 6) == [([False, True], ()), *end]  # the broken episode is not counted after a resume either
    env.close()


def test_a_worker_that_died_is_replaced_when_episodes_are_brought_back(one_worker: None, warnings: list[str]) -> None:
    engine = AsyncEngine(spec("raise"), SEEDS)
    env = GymVecEnv(engine)
    for _ in range(2):
        env.step(NO)
    saved = env.state_dict()
    os.kill(pids(engine)[0], signal.SIGKILL)
    env.load_state_dict(saved)
    assert "envs [0, 1] ended with exit code -9" in warnings[0]
    assert rows(env.obs) == [[2], [2]]
    np.testing.assert_equal(env.state_dict(), saved)
    step = env.step(NO)
    assert rows(step.next_obs) == [[3], [3]]
    assert not step.truncated.any()
    os.kill(pids(engine)[0], signal.SIGKILL)
    with pytest.raises(RunError, match=r"ended with exit code -9\nWhat it held cannot be had from a new one"):
        env.state_dict()


def test_a_worker_that_takes_too_long_to_start_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_engine, "START_SECONDS", 0.01)
    with pytest.raises(RunError, match=r"envs \[0\] did not answer within 0.02 s"):
        AsyncEngine(spec("raise", worker_timeout=0.02, worker_restarts=0), SEEDS[:1])


def test_the_time_for_an_answer_is_not_that_for_bringing_back_long_episodes(one_worker: None) -> None:
    engine = AsyncEngine(spec("sleep", at_step=200, seconds=0.6, length=1000), SEEDS)
    env = GymVecEnv(engine)
    for _ in range(200):
        env.step(NO)
    saved = env.state_dict()
    engine._timeout = 1.0
    env.load_state_dict(saved)  # two envs sleep one after the other: 1.2 s of 1 * (1 + 400 / 100)
    assert rows(env.obs) == [[200], [200]]
    env.close()


# in this process


@pytest.mark.parametrize(
    ("fault", "error", "text"),
    [("raise", ZeroDivisionError, "^the rod broke$"), ("sys.exit", RunError, r"^the env called sys\.exit\(0\)$")],
)
@pytest.mark.parametrize("where", ["at_step", "at_reset"])
def test_a_fault_in_this_process_is_the_error_of_the_step(
    fault: str, error: type[Exception], text: str, where: str
) -> None:
    env = GymVecEnv(SyncEngine(spec(fault, **{where: 2}, length=2), SEEDS))
    env.step(NO)
    with pytest.raises(error, match=text):
        env.step(NO)


def test_a_slow_env_in_this_process_is_waited_for() -> None:
    env = GymVecEnv(SyncEngine(spec("sleep", at_step=2, seconds=0.15, worker_timeout=0.1), SEEDS))
    env.step(NO)
    began = time.monotonic()
    assert env.step(NO).reward.tolist() == [2, 2]
    assert time.monotonic() - began >= 0.3  # one after the other


# numbers that are none


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize(
    ("fault", "where", "text"),
    [
        ("nan", "at_step", r"^env 1: observation\[0\] is nan; only finite numbers can be learnt from$"),
        ("-inf", "at_step", r"^env 1: observation\[0\] is -inf;"),
        ("inf reward", "at_step", r"^env 1: reward is inf;"),
        ("1e300 reward", "at_step", r"^env 1: reward is inf;"),  # as float32
        ("nan", "at_reset", r"^env 1: observation\[0\] is nan;"),
    ],
)
def test_what_is_not_finite_is_an_error_before_anybody_sees_it(fault: str, where: str, text: str) -> None:
    env = GymVecEnv(SyncEngine(spec(fault, **{where: 2}, who=SEEDS[1], length=2), SEEDS))
    env.step(NO)
    with pytest.raises(RunError, match=text):
        env.step(NO)


def test_a_worker_whose_env_gives_nan_is_not_replaced(one_worker: None, warnings: list[str]) -> None:
    env = GymVecEnv(AsyncEngine(spec("nan", at_step=2, who=SEEDS[1]), SEEDS))
    env.step(NO)
    with pytest.raises(RunError, match=r"^env 1: observation\[0\] is nan;"):
        env.step(NO)
    assert warnings == []
    env.close()


def test_the_first_observation_must_be_finite_too() -> None:
    with pytest.raises(RunError, match=r"^env 0: observation\[0\] is inf;"):
        GymVecEnv(SyncEngine(spec("inf", at_reset=1), SEEDS))


def test_what_is_not_finite_is_named_by_env_entry_and_place() -> None:
    speed = np.zeros((3, 2, 2), np.float32)
    speed[2, 0, 1] = np.nan
    check_finite({"image": np.zeros((3, 4), np.uint8), "speed": np.zeros_like(speed)})
    with pytest.raises(RunError, match=r"^env 2: observation 'speed'\[0, 1\] is nan;"):
        check_finite({"image": np.zeros((3, 4), np.uint8), "speed": speed})
    with pytest.raises(RunError, match=r"^env 9: observation\[0, 1\] is nan;"):
        check_finite(speed, np.array([4, 7, 9]))
    largest = np.full((2, 2), np.finfo(np.float32).max)
    check_finite(largest)  # though their sum is none
