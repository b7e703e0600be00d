from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from slm_lab.env.async_engine import AsyncEngine
from slm_lab.env.engine import SyncEngine
from slm_lab.env.vec_env import GymVecEnv
from slm_lab.lib.errors import RunError
from slm_lab.spec.schema import EnvSpec

ROOT = Path(__file__).parents[2]
SEEDS = [11, 12, 13, 14]


def spec(name: str, **rest: Any) -> EnvSpec:
    return EnvSpec(name=name, max_frame=1, **rest)


def workers(engine: AsyncEngine) -> list[int]:
    return [remote.process.pid or 0 for remote in engine._remotes]


def gone(pids: list[int], seconds: float = 10) -> bool:
    """Whether all processes end within some time."""
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], timeout=seconds)
    return not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


def same_step(left: GymVecEnv, right: GymVecEnv, action: Any) -> bool:
    """Step both and compare everything, bit by bit; True when an episode ended."""
    ours, theirs = left.step(action), right.step(action)
    for x, y in [*zip(ours[:4], theirs[:4], strict=True), (left.obs, right.obs)]:
        np.testing.assert_equal(x, y, strict=True)
    assert ours.returns == theirs.returns
    np.testing.assert_equal(ours.next_mask, theirs.next_mask)
    np.testing.assert_equal(left.action_mask, right.action_mask)
    return bool((ours.terminated | ours.truncated).any())


def test_workers_give_the_bits_of_one_process_and_their_states_can_be_swapped() -> None:
    cartpole = spec("CartPole-v1")
    inside, outside = GymVecEnv(SyncEngine(cartpole, SEEDS)), GymVecEnv(AsyncEngine(cartpole, SEEDS))
    rng = np.random.default_rng(0)
    assert sum(same_step(inside, outside, rng.integers(0, 2, 4)) for _ in range(300)) > 20
    saved_inside, saved_outside = inside.state_dict(), outside.state_dict()
    np.testing.assert_equal(saved_inside, saved_outside)
    for _ in range(20):
        inside.step(rng.integers(0, 2, 4))
    inside.load_state_dict(saved_outside)
    outside.load_state_dict(saved_inside)
    assert sum(same_step(inside, outside, rng.integers(0, 2, 4)) for _ in range(60)) > 3
    outside.close()


@pytest.mark.parametrize("name", ["Mixed", "Infos"])
def test_workers_give_dicts_and_masks(name: str) -> None:
    own = spec(f"tiny_envs:{name}", length=3)
    inside, outside = GymVecEnv(SyncEngine(own, SEEDS[:3])), GymVecEnv(AsyncEngine(own, SEEDS[:3]))
    assert outside.action_mask is not None
    rng = np.random.default_rng(0)
    assert sum(same_step(inside, outside, rng.integers(0, 2, 3)) for _ in range(7)) == 2
    outside.close()


def test_an_env_that_raises_in_a_worker_brings_its_traceback_and_leaves_no_process() -> None:
    engine = AsyncEngine(spec("tiny_envs:Broken", worker_restarts=0), SEEDS[:2])
    pids = workers(engine)
    env = GymVecEnv(engine)
    env.step(np.zeros(2, np.int64))
    with pytest.raises(RunError, match=r"(?s)worker process.*Traceback.*tiny_envs.py.*the pole is on fire"):
        env.step(np.zeros(2, np.int64))
    assert gone(pids)
    env.close()


def test_a_worker_that_is_killed_is_an_error_and_leaves_no_process() -> None:
    engine = AsyncEngine(spec("CartPole-v1", worker_restarts=0), SEEDS[:2])
    pids = workers(engine)
    env = GymVecEnv(engine)
    os.kill(pids[0], signal.SIGKILL)
    with pytest.raises(RunError, match=r"worker process of envs \[0\] ended with exit code -9\nNo restart is left"):
        env.step(np.zeros(2, np.int64))
    assert gone(pids)


def test_workers_outlive_signals_to_the_group_and_end_with_close() -> None:
    engine = AsyncEngine(spec("CartPole-v1"), SEEDS[:2])
    env = GymVecEnv(engine)
    pids = workers(engine)
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
    time.sleep(0.1)
    assert len(env.state_dict()["engine"]["slots"]) == 2
    env.close()
    env.close()
    assert gone(pids)


CHILD = """
import sys, time
import numpy as np
from slm_lab.env.async_engine import AsyncEngine
from slm_lab.env.vec_env import GymVecEnv
from slm_lab.spec.schema import EnvSpec

if __name__ == "__main__":
    engine = AsyncEngine(EnvSpec(name="CartPole-v1", max_frame=1), [1, 2])
    env = GymVecEnv(engine)
    print(*(remote.process.pid for remote in engine._remotes), flush=True)
    if sys.argv[1] == "wait":
        time.sleep(60)
"""


@pytest.mark.parametrize("end", ["exit", "wait"])
def test_workers_end_with_a_parent_that_forgets_to_close_or_is_killed(end: str, tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(CHILD)
    with subprocess.Popen([sys.executable, script, end], stdout=subprocess.PIPE, text=True, cwd=ROOT) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        if end == "wait":
            parent.kill()
        assert parent.wait(30) == (-signal.SIGKILL if end == "wait" else 0)
    assert gone(pids)


def rewards_of_a_session(queue: Any) -> None:
    """What a session does in a process of its own."""
    env = GymVecEnv(AsyncEngine(spec("CartPole-v1"), SEEDS[:2]))
    queue.put(env.step(np.zeros(2, np.int64)).reward.tolist())
    env.close()


def test_a_session_in_a_spawned_process_can_have_workers() -> None:
    context = get_context("spawn")
    queue = context.Queue()
    session = context.Process(target=rewards_of_a_session, args=(queue,))
    session.start()
    assert queue.get(timeout=60) == [1, 1]
    session.join(30)
    assert session.exitcode == 0


def test_workers_do_not_import_torch() -> None:
    code = "import sys, slm_lab.env.async_engine; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
