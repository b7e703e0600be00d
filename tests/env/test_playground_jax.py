"""MuJoCo Playground through JAX: the engine on an env of a few lines, configs, and real tasks (slow: they compile)."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from specs_for_tests import assert_trains

from slm_lab.env import check_env, make_env
from slm_lab.env import playground as playground_module
from slm_lab.env import playground_config as config_module
from slm_lab.env.envpool_task import PoolTask
from slm_lab.env.playground import DM_CONTROL, PORTS, chosen_task
from slm_lab.env.playground_config import JaxTask, gpu_ready, jax_task
from slm_lab.env.playground_jax import JaxEngine
from slm_lab.env.vec_env import GymVecEnv
from slm_lab.lib.errors import SpecError
from slm_lab.spec.schema import EnvSpec
from slm_lab.types import Array, Obs, VecEnv

jax = pytest.importorskip("jax")

KEY = (0, 0, 0)
SEEDS = [7, 8, 2**32 - 1]


class WalkState(NamedTuple):
    obs: Any
    reward: Any
    done: Any
    t: Any


class Walk:
    """x starts in [-0.5, 0.5], moves by the action and scores itself; beyond 2 it ends, an action of 0.5 breaks it."""

    action_size = 1

    def __init__(self) -> None:
        self.traced = {"reset": 0, "step": 0}

    def reset(self, key: Any) -> WalkState:
        self.traced["reset"] += 1
        x = jax.random.uniform(key, minval=-0.5, maxval=0.5)
        return WalkState(self._show(x, 0), 0.0 * x, 0.0 * x, 0)

    def step(self, state: WalkState, action: Any) -> WalkState:
        self.traced["step"] += 1
        x = state.obs["state"][0] + action[0]
        x = jax.numpy.where(action[0] == 0.5, jax.numpy.nan, x)
        return WalkState(self._show(x, state.t + 1), x, (abs(x) > 2).astype(float), state.t + 1)

    @staticmethod
    def _show(x: Any, t: Any) -> dict[str, Any]:
        return {"state": jax.numpy.stack([x, x * 0 + t]), "privileged_state": jax.numpy.stack([x, x * x, x + 1])}


def walk(limit: int = 1000, seeds: list[int] = SEEDS, **rest: Any) -> GymVecEnv:
    return GymVecEnv(JaxEngine(Walk(), seeds, limit, **rest), exact="exact")


def act(env: VecEnv, *actions: float) -> Any:
    return env.step(np.array(actions, np.float32)[:, None])


def rows(obs: Obs) -> Array:
    assert isinstance(obs, np.ndarray)
    return obs


def test_successors_are_true_and_an_ended_env_starts_anew_in_the_same_step() -> None:
    env = walk()
    start = rows(env.obs).copy()
    assert start.shape == (3, 2)
    assert start.dtype == np.float32
    first = act(env, 1, 1, 0)
    assert first.next_obs[:, 0].tolist() == pytest.approx((start[:, 0] + [1, 1, 0]).tolist())
    assert not first.terminated.any()
    second = act(env, 1.75, -1, 0)  # the first goes beyond 2
    assert second.terminated.tolist() == [True, False, False]
    assert second.next_obs[0].tolist() == pytest.approx([start[0, 0] + 2.75, 2])
    assert second.reward[0] == pytest.approx(start[0, 0] + 2.75)
    assert second.returns == pytest.approx((2 * start[0, 0] + 3.75,))
    now = rows(env.obs)
    assert abs(now[0, 0]) <= 0.5
    assert now[0, 1] == 0
    assert np.array_equal(now[1:], second.next_obs[1:])


def test_an_env_draws_its_episodes_from_its_own_seed_whatever_the_others_do() -> None:
    first, others = walk(seeds=[7, 8]), walk(seeds=[7, 9])
    starts: list[list[float]] = [[], []]
    for t in range(1, 7):
        act(first, 3, 0)
        act(others, 3, 3 if t % 2 else 0)
        for env, seen in zip((first, others), starts, strict=True):
            seen.append(float(rows(env.obs)[0, 0]))
    assert starts[0] == starts[1]
    assert len(set(starts[0])) == 6  # none is a start that was kept


def test_the_time_limit_truncates_and_a_real_end_there_is_one_too() -> None:
    env = walk(limit=2)
    act(env, 0, 0, 1.4)
    step = act(env, 0, 3, 0)
    assert step.truncated.tolist() == [True, True, True]
    assert step.terminated.tolist() == [False, True, False]
    assert not act(env, 0, 0, 0).truncated.any()  # counted from the new start


def test_a_repeated_action_sums_rewards_up_to_the_end() -> None:
    env = walk(repeat=3)
    x = rows(env.obs)[:, 0].copy()
    step = act(env, 0.25, 2, 1.25)
    assert step.next_obs[0].tolist() == pytest.approx([x[0] + 0.75, 3])
    assert step.reward[0] == pytest.approx(3 * x[0] + 0.25 + 0.5 + 0.75)
    ends = 1 if x[1] > 0 else 2
    assert step.next_obs[1].tolist() == pytest.approx([x[1] + 2 * ends, ends])
    assert step.reward[1] == pytest.approx(sum(x[1] + 2 * k for k in range(1, ends + 1)))
    assert step.next_obs[2].tolist() == pytest.approx([x[2] + 2.5, 2])
    assert step.terminated.tolist() == [False, True, True]


def test_physics_that_blow_up_cut_their_episode_and_nothing_learns_from_them() -> None:
    env = walk()
    before = rows(env.obs).copy()
    step = act(env, 0.5, 0.25, 0.25)
    assert step.truncated.tolist() == [True, False, False]
    assert step.reward[0] == 0
    assert np.array_equal(step.next_obs[0], before[0])
    assert step.returns == ()
    assert np.isfinite(rows(env.obs)).all()
    assert np.isfinite(act(env, 0.25, 0.25, 0.25).next_obs).all()


@pytest.mark.parametrize("repeat", [1, 2])
def test_nothing_is_compiled_again_for_other_numbers_of_ended_envs(repeat: int) -> None:
    task = Walk()
    env = GymVecEnv(JaxEngine(task, SEEDS, 50, repeat))
    for actions in ((0, 0, 0), (3, 0, 0), (3, 3, 0), (3, 3, 3), (0, 3, 0)):
        act(env, *actions)
    env.load_state_dict(env.state_dict())
    act(env, 0, 0, 3)
    assert task.traced == {"reset": 1, "step": 1}


def test_a_saved_episode_goes_on_bit_for_bit() -> None:
    drawn = np.random.default_rng(0).uniform(-1, 1, (40, 3)).astype(np.float32)
    env = walk(limit=15)
    for actions in drawn[:10]:
        act(env, *actions)
    state = env.state_dict()
    said = [(*act(env, *actions), env.obs) for actions in drawn[10:]]
    other = walk(limit=15, seeds=[1, 2, 3])
    other.load_state_dict(state)
    np.testing.assert_equal([(*act(other, *actions), other.obs) for actions in drawn[10:]], said)
    assert sum(step[2].sum() for step in said) > 0  # of either kind of end
    assert sum(step[3].sum() for step in said) > 0


def test_the_policy_sees_its_own_entry_alone_unless_privileged_is_asked_for() -> None:
    assert walk().spaces.obs_shape == (2,)
    env = walk(privileged=True)
    assert env.spaces.obs_shape == {"state": (2,), "privileged_state": (3,)}
    obs = act(env, 0, 0, 0).next_obs
    assert {key: entry.shape for key, entry in obs.items()} == {"state": (3, 2), "privileged_state": (3, 3)}


def test_arrays_are_what_torch_takes_without_a_word() -> None:
    env = walk()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for obs in (env.obs, act(env, 0, 0, 0).next_obs):
            assert torch.from_numpy(rows(obs)).dtype == torch.float32


def spec(name: str, num_envs: int = 2, **rest: Any) -> EnvSpec:
    return EnvSpec(name=f"playground/{name}", num_envs=num_envs, max_frame=1, **{"backend": "jax", **rest})


@pytest.fixture
def library() -> Iterator[None]:
    pytest.importorskip("mujoco_playground")  # takes seconds to import
    yield
    jax.clear_caches()  # what is compiled for one task takes hundreds of MB


def settled(name: str, **rest: Any) -> JaxTask:
    return jax_task(spec(name, **rest), name)


@pytest.mark.usefixtures("library")
def test_a_task_has_its_own_length_and_repeat_unless_the_spec_has() -> None:
    task = settled("CartpoleBalance")
    assert (task.limit, task.repeat, task.config.impl, task.on_cpu) == (1000, 1, "jax", True)
    assert settled("CartpoleBalance", max_t=20).limit == 20
    task = settled("PendulumSwingup", action_repeat=4)
    assert (task.limit, task.repeat) == (250, 4)  # 1000 steps of the task
    task = settled("CartpoleBalance", episode_length=10, action_repeat=4)
    assert (task.limit, task.config.episode_length) == (3, 10)
    assert settled("CartpoleBalance", sim_dt=0.005).config.sim_dt == 0.005
    assert not settled("CartpoleBalance", impl="warp").on_cpu


@pytest.mark.usefixtures("library")
def test_the_library_has_the_same_tasks() -> None:
    playground = config_module.library()
    assert set(playground.registry.ALL_ENVS) == set(PORTS)
    assert set(playground.dm_control_suite.ALL_ENVS) == set(DM_CONTROL)


@pytest.mark.usefixtures("library")
def test_robots_keep_their_lengths_where_their_models_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_module, "_check_models", lambda name: None)
    tasks = {name: settled(name) for name in PORTS}
    assert len(tasks) == 54
    assert tasks["PandaPickCube"].limit == 150
    assert (tasks["AlohaSinglePegInsertion"].limit, tasks["AlohaSinglePegInsertion"].repeat) == (500, 2)
    assert (tasks["PandaRobotiqPushCube"].limit, tasks["PandaRobotiqPushCube"].repeat) == (750, 4)
    assert settled("Go1Getup", privileged=True).privileged
    task = settled("Go1Getup", noise_config={"level": 0})
    assert task.config.noise_config.level == 0
    assert task.config.noise_config.scales.gyro == tasks["Go1Getup"].config.noise_config.scales.gyro


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("name", "rest", "message"),
    [
        ("CheetaRun", {}, r"^env.name: unknown MuJoCo Playground task 'CheetaRun'. Did you mean 'CheetahRun'\?"),
        ("CheetahRun", {"ctrl_dtt": 1}, r"^env.ctrl_dtt: unknown key. Did you mean 'ctrl_dt'\?"),
        ("CheetahRun", {"privileged": True}, r"^env.privileged: unknown key"),
        ("CheetahRun", {"vision": True}, r"^env.vision: the lab takes Playground's tasks as vectors"),
        ("CheetahRun", {"episode_length": 0}, r"^env.episode_length: got 0; allowed: a number of steps"),
        ("CheetahRun", {"action_repeat": 1.5}, r"^env.action_repeat: got 1.5; allowed: a number of steps"),
        ("CheetahRun", {"ctrl_dt": "fast"}, r"^env: the config of CheetahRun does not take .*'fast'"),
        ("Go1Getup", {"privileged": 1}, r"^env.privileged: got 1; allowed: true or false"),
        ("Go1Getup", {"noise_config": {"scales": {"giro": 1}}}, r"^env.noise_config.scales.giro: .*mean 'gyro'\?"),
        ("Go1Getup", {"noise_config": 1}, r"^env.noise_config: got 1; allowed: a mapping of level, scales\.$"),
    ],
)
def test_what_cannot_be_had_is_told(name: str, rest: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        check_env(spec(name, **rest))


@pytest.mark.usefixtures("library")
def test_missing_robots_are_not_fetched_but_told_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    from mujoco_playground._src import mjx_env

    monkeypatch.setattr(mjx_env, "MENAGERIE_PATH", tmp_path / "none")
    with pytest.raises(SpecError, match=r"robot models .*Go1Getup.* where there is a network, run .*backend: envpool"):
        check_env(spec("Go1Getup"))


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mujoco_playground", None)
    with pytest.raises(SpecError, match=r"^env.backend: jax needs .*slm-lab\[playground\].*backend: envpool"):
        check_env(spec("CheetahRun"))


@pytest.mark.usefixtures("library")
def test_auto_takes_the_library_where_jax_has_a_gpu_and_ports_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("envpool")
    auto = spec("CheetahRun", backend="auto")
    if not gpu_ready():
        assert isinstance(chosen_task(auto, True), PoolTask)
    for module in (playground_module, config_module):
        monkeypatch.setattr(module, "gpu_ready", lambda: True)
    task = chosen_task(auto, True)
    assert isinstance(task, JaxTask)
    assert (task.config.impl, task.on_cpu) == ("warp", False)
    assert isinstance(chosen_task(spec("CheetahRun", backend="envpool"), True), PoolTask)


def random_returns(env: VecEnv, episodes: int) -> Array:
    rng, n, dim = np.random.default_rng(1), env.spaces.num_envs, env.spaces.action_dim
    returns: list[float] = []
    while len(returns) < episodes:
        returns += env.step(rng.uniform(-1, 1, (n, dim)).astype(np.float32)).returns
    env.close()
    return np.array(returns)


@pytest.mark.slow
@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("name", ["CartpoleBalance", "PendulumSwingup", "AcrobotSwingup"])
def test_random_returns_agree_with_those_of_the_port(name: str) -> None:
    pytest.importorskip("envpool")
    ours, theirs = (
        random_returns(make_env(spec(name, 64, backend=backend), 0.99, KEY, training=False), 128)
        for backend in ("jax", "envpool")
    )
    error = np.sqrt((ours.var() + theirs.var()) / 128)
    assert abs(ours.mean() - theirs.mean()) < 4 * error


@pytest.mark.slow
@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("name", ["CartpoleBalance", "CheetahRun", "ReacherEasy"])
def test_a_real_task_comes_back_in_mid_episode(name: str) -> None:
    env = make_env(spec(name, 3, max_t=12), 0.99, KEY)
    assert env.exact == "exact"
    drawn = np.random.default_rng(0).uniform(-1, 1, (30, 3, env.spaces.action_dim)).astype(np.float32)
    for actions in drawn[:7]:
        env.step(actions)
    state = env.state_dict()
    said = [(*env.step(actions), env.obs) for actions in drawn[7:]]
    other = make_env(spec(name, 3, max_t=12), 0.99, (5, 0, 0))
    other.load_state_dict(state)
    np.testing.assert_equal([(*other.step(actions), other.obs) for actions in drawn[7:]], said)


@pytest.mark.slow
@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("name", DM_CONTROL)
def test_every_task_of_dm_control_steps_as_its_port_is_shaped(name: str) -> None:
    pytest.importorskip("envpool")
    env = make_env(spec(name), 0.99, KEY)
    port = make_env(spec(name, backend="envpool"), 0.99, KEY)
    assert env.spaces.obs_shape == port.spaces.obs_shape
    assert env.spaces.action_dim == port.spaces.action_dim
    for _ in range(3):
        obs = env.step(np.zeros((2, env.spaces.action_dim), np.float32)).next_obs
        assert np.isfinite(rows(obs)).all()


@pytest.mark.slow
@pytest.mark.usefixtures("library")
def test_a_session_learns_for_40_frames() -> None:
    assert_trains("playground/CartpoleBalance", **{"env.backend": "jax"})
