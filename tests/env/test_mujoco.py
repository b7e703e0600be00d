from __future__ import annotations

import subprocess
import sys
import threading
from copy import deepcopy
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from slm_lab.env.engine import SyncEngine
from slm_lab.env.known import MUJOCO
from slm_lab.env.mujoco import MujocoEngine, can_simulate
from slm_lab.env.mujoco_envs import TASKS
from slm_lab.env.vec_env import GymVecEnv
from slm_lab.experiment.checkpoint import load, save
from slm_lab.experiment.control import RunOptions, read_saved
from slm_lab.experiment.run import run
from slm_lab.lib.cores import cores
from slm_lab.spec.schema import EnvSpec
from slm_lab.types import Array

MAX_T = 45
NEVER_FALL = {"HalfCheetah-v5", "HumanoidStandup-v5", "Pusher-v5", "Reacher-v5", "Swimmer-v5"}
SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("Ant-v5", {"include_cfrc_ext_in_observation": False, "main_body": 3, "forward_reward_weight": 2}),
    ("Ant-v5", {"exclude_current_positions_from_observation": False, "contact_force_range": [-0.3, 0.4]}),
    ("HalfCheetah-v5", {"exclude_current_positions_from_observation": False, "ctrl_cost_weight": 0.3}),
    ("Hopper-v5", {"terminate_when_unhealthy": False, "healthy_reward": 3, "frame_skip": 2}),
    ("Hopper-v5", {"exclude_current_positions_from_observation": False, "healthy_state_range": [-1.5, 1.5]}),
    ("Humanoid-v5", {"include_cinert_in_observation": False, "contact_cost_range": [0.001, 0.002]}),
    ("Humanoid-v5", {"exclude_current_positions_from_observation": False, "include_cvel_in_observation": False}),
    ("HumanoidStandup-v5", {"include_qfrc_actuator_in_observation": False, "impact_cost_weight": 1e-3}),
    ("HumanoidStandup-v5", {"include_cfrc_ext_in_observation": False, "uph_cost_weight": 3}),
    ("InvertedDoublePendulum-v5", {"healthy_reward": 7}),
    ("Pusher-v5", {"reward_near_weight": 0.7, "reward_dist_weight": 1.3, "reward_control_weight": 0.2}),
    ("Reacher-v5", {"reward_dist_weight": 0.7, "reward_control_weight": 0.3}),
    ("Swimmer-v5", {"exclude_current_positions_from_observation": False, "forward_reward_weight": 3}),
    ("Walker2d-v5", {"healthy_angle_range": [-0.2, 0.2], "reset_noise_scale": 0.05}),
]

every_env = pytest.mark.parametrize("name", sorted(TASKS))


def env_spec(name: str, **rest: Any) -> EnvSpec:
    return EnvSpec(name=name, max_frame=1, **rest)


def started(name: str, n: int, first_seed: int = 0, threads: int = 1) -> MujocoEngine:
    engine = MujocoEngine(env_spec(name, max_t=MAX_T), range(first_seed, first_seed + n), threads, worth=0)
    engine.reset(np.arange(n))
    return engine


def actions(space: Any, n: int, rng: np.random.Generator) -> Array:
    """Random actions [n, A], some of them out of bounds."""
    drawn: Array = (space.high * rng.uniform(-1.2, 1.2, (n, *space.shape))).astype(np.float32)
    return drawn


def bits(*arrays: Any) -> list[Any]:
    """Dtype, shape and bytes: tells -0.0 from 0.0."""
    return [(array.dtype, array.shape, array.tobytes()) for array in arrays]


def play(engine: MujocoEngine, steps: int, seed: int) -> list[Any]:
    """The bits of everything an engine says, with ended envs reset."""
    rng, said = np.random.default_rng(seed), []
    for _ in range(steps):
        obs, reward, terminated, truncated = engine.step(actions(engine.action_space, engine.num_envs, rng))[:4]
        said.append(bits(obs, reward, terminated, truncated))
        index = (terminated | truncated).nonzero()[0]
        if len(index):
            said.append(bits(engine.reset(index)[0]))
    return said


def compare(name: str, steps: int, engines: list[MujocoEngine], kwargs: dict[str, Any]) -> tuple[int, int]:
    """Compare engines of two envs with single Gymnasium envs, bit by bit; how many episodes fell, and were cut."""
    singles = [gym.make(name, max_episode_steps=MAX_T, **kwargs) for _ in range(2)]
    firsts = np.stack([env.reset(seed=seed)[0] for seed, env in enumerate(singles)]).astype(np.float32)
    assert all(bits(engine.reset(np.arange(2))[0]) == bits(firsts) for engine in engines)
    rng, fallen, cut = np.random.default_rng(1), 0, 0
    for _ in range(steps):
        action = actions(singles[0].action_space, 2, rng)
        results = [env.step(row) for env, row in zip(singles, action, strict=True)]
        obs = np.stack([result[0] for result in results]).astype(np.float32)
        reward = np.array([float(result[1]) for result in results])
        flags = np.array([result[2:4] for result in results], bool).T.copy()
        expected = bits(obs, reward, *flags)
        assert all(bits(*engine.step(action)[:4]) == expected for engine in engines)
        fallen, cut = fallen + int(flags[0].sum()), cut + int(flags[1].sum())
        index = flags.any(0).nonzero()[0]
        if len(index):
            rows = np.stack([singles[i].reset()[0] for i in index]).astype(np.float32)
            assert all(bits(engine.reset(index)[0]) == bits(rows) for engine in engines)
    for env in [*singles, *engines]:
        env.close()
    return fallen, cut


def test_all_mujoco_envs_are_known() -> None:
    assert set(TASKS) == {f"{name}-v5" for name in MUJOCO}


@every_env
def test_a_thousand_steps_and_resets_have_the_bits_of_single_gymnasium_envs(name: str) -> None:
    engines = [MujocoEngine(env_spec(name, max_t=MAX_T), [0, 1], threads, worth=0) for threads in (1, 2)]
    fallen, cut = compare(name, 1000, engines, {})
    assert (fallen > 0) == (name not in NEVER_FALL)
    assert cut > 0 or "Pendulum" in name  # a random policy drops these long before


@pytest.mark.parametrize(("name", "kwargs"), SETTINGS)
def test_settings_of_the_constructor_keep_the_bits(name: str, kwargs: dict[str, Any]) -> None:
    spec = env_spec(name, max_t=MAX_T, **kwargs)
    assert can_simulate(spec)
    fallen, cut = compare(name, 120, [MujocoEngine(spec, [0, 1])], kwargs)
    assert fallen + cut > 0


@every_env
def test_the_numbers_of_an_env_do_not_depend_on_how_many_there_are_or_on_threads(name: str) -> None:
    space, rng = started(name, 1).action_space, np.random.default_rng(3)
    acts = [actions(space, 9, rng) for _ in range(20)]

    def said(n: int, threads: int) -> list[Any]:
        engine = started(name, n, threads=threads)
        steps = [engine.step(action[:n])[:4] for action in acts]
        engine.close()
        return steps

    most = said(9, 4)
    for n, threads in ((1, 1), (2, 3), (5, 1)):
        for few, many in zip(said(n, threads), most, strict=True):
            assert bits(*few) == bits(*(array[:n] for array in many))


@every_env
def test_a_checkpoint_brings_the_engine_back_in_mid_episode(name: str, tmp_path: Path) -> None:
    engine, other = started(name, 3), started(name, 3, first_seed=50, threads=2)
    play(engine, MAX_T + 7, seed=1)
    play(other, 5, seed=9)
    engine.reset(np.array([1]))  # positions are of the last step in some envs, of the reset in one
    save(tmp_path / "state.safetensors", engine.state_dict())
    assert other.load_state_dict(load(tmp_path / "state.safetensors")) == []
    assert bits(other.current()[0]) == bits(engine.current()[0])
    assert play(other, MAX_T + 10, seed=2) == play(engine, MAX_T + 10, seed=2)
    other.close()


@every_env
def test_a_vector_env_is_the_same_over_this_engine_and_over_single_envs(name: str) -> None:
    spec, limits = env_spec(name, max_t=20), np.array([10, 20, 15])
    ours, theirs = (GymVecEnv(engine(spec, [4, 5, 6]), limits) for engine in (MujocoEngine, SyncEngine))
    rng = np.random.default_rng(2)
    for _ in range(50):
        action = actions(ours.action_space, 3, rng)
        step, expected = ours.step(action), theirs.step(action)
        assert bits(*step[:4], ours.obs) == bits(*expected[:4], theirs.obs)
        assert step.returns == expected.returns
    assert ours.spaces == theirs.spaces
    theirs.close()


@every_env
def test_current_shows_what_reset_and_step_gave(name: str) -> None:
    engine = MujocoEngine(env_spec(name), range(3))
    assert bits(engine.reset(np.arange(3))[0]) == bits(engine.current()[0])
    obs: Any = engine.step(actions(engine.action_space, 3, np.random.default_rng(0))).obs
    assert bits(engine.current()[0]) == bits(obs)
    obs[[2, 0]] = engine.reset(np.array([2, 0]))[0]
    assert bits(engine.current()[0]) == bits(obs)
    assert np.asarray(engine.reset(np.array([], np.int64))[0]).shape == (0, *obs.shape[1:])


def test_max_t_truncates_where_smaller_than_the_registered_limit() -> None:
    for max_t, expected in ((7, 7), (10_000, 50), (None, 50)):
        engine = MujocoEngine(env_spec("Reacher-v5", max_t=max_t), [0, 1])
        engine.reset(np.arange(2))
        engine.step(np.zeros((2, 2), np.float32))
        engine.reset(np.array([1]))  # one step behind from here on
        cut = [engine.step(np.zeros((2, 2), np.float32)).truncated.tolist() for _ in range(expected)]
        assert cut == [[False, False]] * (expected - 2) + [[True, False], [True, True]]


def test_returned_arrays_and_saved_states_are_never_written_again() -> None:
    engine = started("Ant-v5", 2)
    action = np.ones((2, 8), np.float32)
    given = (engine.reset(np.array([1]))[0], engine.step(action)[:4], engine.current()[0], engine.state_dict())
    kept = deepcopy(given)
    for _ in range(5):
        engine.step(action)
    engine.reset(np.arange(2))
    np.testing.assert_equal(given, kept)


def test_a_loaded_state_may_be_loaded_again() -> None:
    engine = started("Hopper-v5", 2)
    play(engine, 10, seed=0)
    state = engine.state_dict()
    first = play(engine, 50, seed=1)
    for _ in range(2):
        engine.load_state_dict(state)
        assert play(engine, 50, seed=1) == first


def test_threads_help_and_end_with_the_engine() -> None:
    before = threading.active_count()
    engine = started("Humanoid-v5", 4, threads=3)
    play(engine, 3, seed=0)
    assert before < threading.active_count() <= before + 2  # the caller works, too
    engine.close()
    assert threading.active_count() == before


def test_threads_are_left_alone_where_they_would_cost_more_than_they_save() -> None:
    before = threading.active_count()
    small = MujocoEngine(env_spec("Hopper-v5"), range(16), threads=2)  # 16 envs * 4 steps * 6 joint speeds = 384
    large = MujocoEngine(env_spec("Hopper-v5"), range(42), threads=2)  # 42 * 4 * 6 = 1008
    for engine, helpers in ((small, 0), (started("Hopper-v5", 1, threads=3), 0), (large, 1)):
        engine.reset(np.arange(engine.num_envs))
        play(engine, 2, seed=0)
        assert threading.active_count() == before + helpers
        engine.close()


def test_what_fails_in_a_thread_fails_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, caller = started("Hopper-v5", 8, threads=2), threading.current_thread()
    barrier = threading.Barrier(2, timeout=10)

    def advance(left: Any, action: Array) -> None:
        barrier.wait()  # so that both have begun
        if threading.current_thread() is not caller:
            raise ValueError("from a helper")

    monkeypatch.setattr(engine, "_advance", advance)
    with pytest.raises(ValueError, match="from a helper"):
        engine.step(np.zeros((8, 3), np.float32))
    engine.close()


def test_another_robot_and_other_versions_are_left_to_gymnasium() -> None:
    assert all(can_simulate(env_spec(name, max_t=9, num_envs=1)) for name in TASKS)
    assert not can_simulate(env_spec("Ant-v5", xml_file="ant.xml"))
    assert not can_simulate(env_spec("Ant-v5", render_mode="rgb_array"))
    assert not can_simulate(env_spec("Ant-v4"))
    assert not can_simulate(env_spec("CartPole-v1"))


def test_nothing_is_said_on_the_console() -> None:
    code = f"""
import numpy as np
from slm_lab.env import make_env
from slm_lab.spec.schema import EnvSpec
for name in {sorted(TASKS)}:
    env = make_env(EnvSpec(name=name, num_envs=2, max_frame=1, max_t=9), 0.99, (0, 0, 0), threads=2)
    for _ in range(20):
        env.step(np.ones((2, env.spaces.action_dim), np.float32))
    env.close()
"""
    said = subprocess.run([sys.executable, "-W", "default", "-c", code], capture_output=True, text=True, timeout=120)
    assert (said.returncode, said.stdout, said.stderr) == (0, "", "")


def test_a_run_records_the_threads_of_its_envs(tmp_path: Path) -> None:
    spec = {
        "name": "few",
        "agent": {"algorithm": {"name": "Random"}},
        "env": {"name": "Hopper-v5", "num_envs": 2, "max_frame": 40},
        "meta": {"max_session": 1, "log_frequency": 20},
    }
    predir = run(spec, mode="train", options=RunOptions(tmp_path)).predir
    record = read_saved(predir / "few_t0_spec.json").meta.record
    assert (record["env_threads"], record["threads"], record["vectorization"]) == (cores(), 1, "sync")
