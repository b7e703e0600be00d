from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from specs_for_tests import assert_trains

from slm_lab.env import check_env, make_env
from slm_lab.env.playground import FIXED_LENGTH, PORTS, playground_task
from slm_lab.lib.errors import SpecError
from slm_lab.spec.schema import EnvSpec
from slm_lab.types import Array, Obs, VecEnv

envpool = pytest.importorskip("envpool")

KEY = (0, 0, 0)
LENGTHS = {
    "AeroCubeRotateZAxis": 500,
    "AlohaHandOver": 250,
    "Go1Footstand": 500,
    "Go1Getup": 300,
    "Go1Handstand": 500,
    "LeapCubeRotateZAxis": 500,
    "PandaOpenCabinet": 150,
    "PandaPickCube": 150,
    "PandaPickCubeCartesian": 200,
    "PandaPickCubeOrientation": 150,
    "PandaRobotiqPushCube": 3000,
    "SpotGetup": 300,
}
"""Steps of an episode, where not 1000."""


def spec(name: str, num_envs: int = 2, **rest: Any) -> EnvSpec:
    return EnvSpec(name=f"playground/{name}", num_envs=num_envs, max_frame=1, **rest)


def rows(obs: Obs) -> Array:
    assert isinstance(obs, np.ndarray)
    return obs


def steps(env: VecEnv, count: int) -> list[Array]:
    rng, n, dim = np.random.default_rng(0), env.spaces.num_envs, env.spaces.action_dim
    return [rows(env.step(rng.uniform(-1, 1, (n, dim)).astype(np.float32)).next_obs) for _ in range(count)]


def test_all_54_tasks_have_a_port_with_its_own_length() -> None:
    assert len(PORTS) == 54
    limits = {name: playground_task(spec(name), True).limit for name in PORTS}
    assert limits == dict.fromkeys(PORTS, 1000) | LENGTHS
    repeats = {name: playground_task(spec(name), True).arguments.get("action_repeat") for name in PORTS}
    assert set(repeats.values()) == {None}  # EnvPool's own stand


@pytest.mark.parametrize("name", ["CheetahRun", "BallInCup", "FingerSpin", "BarkourJoystick", "LeapCubeReorient"])
def test_a_task_steps(name: str) -> None:
    assert_steps(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PORTS))
def test_every_task_steps(name: str) -> None:
    assert_steps(name)


def assert_steps(name: str) -> None:
    env = make_env(spec(name, 1), 0.99, KEY)
    assert env.spaces.action_kind == "continuous"
    assert env.exact == "restarts"
    for obs in steps(env, 5):
        assert obs.shape == (1, *env.spaces.obs_shape)
        assert obs.dtype == np.float32
        assert np.isfinite(obs).all()
    env.close()


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("CheetahRun", 17),  # 8 positions, 9 velocities
        ("FingerSpin", 9),  # 4, 3 and 2 of touch; no target
        ("FingerTurnEasy", 12),  # and 3 of the target
        ("HumanoidRun", 67),  # 21 joints, height, 12 extremities, 3 of the torso, 3 and 27 velocities
        ("WalkerRun", 24),  # 14 orientations, height, 9 velocities
    ],
)
def test_dm_control_observations_are_one_array_without_what_the_task_leaves_empty(name: str, size: int) -> None:
    env = make_env(spec(name), 0.99, KEY)
    assert env.spaces.obs_shape == (size,)
    assert (np.ptp(np.concatenate(steps(env, 30)), axis=0) > 0).mean() > 0.7  # touch may stay zero


def test_the_actor_gets_the_state_alone_unless_privileged_is_asked_for() -> None:
    assert make_env(spec("Go1Getup"), 0.99, KEY).spaces.obs_shape == (42,)
    env = make_env(spec("Go1Getup", privileged=True), 0.99, KEY)
    assert env.spaces.obs_shape == {"state": (42,), "privileged_state": (91,)}
    obs = env.step(np.zeros((2, 12), np.float32)).next_obs
    assert isinstance(obs, dict)
    assert {key: x.shape for key, x in obs.items()} == {"state": (2, 42), "privileged_state": (2, 91)}


def test_length_and_repeat_can_be_set() -> None:
    assert playground_task(spec("PandaPickCube", max_t=20), True).limit == 20
    assert playground_task(spec("PandaPickCube", max_t=2000), True).limit == 150
    assert playground_task(spec("PandaPickCube", episode_length=1000), True).limit == 1000
    assert playground_task(spec("PandaPickCube", episode_length=1000, max_t=30), True).limit == 30
    assert playground_task(spec("AlohaHandOver", action_repeat=3), True).arguments["action_repeat"] == 3
    env = make_env(spec("CheetahRun", max_t=4), 0.99, KEY, training=False)
    ends = [env.step(np.zeros((2, 6), np.float32)).truncated.tolist() for _ in range(9)]
    assert ends == [[t % 4 == 0] * 2 for t in range(1, 10)]


def test_sessions_have_their_own_seeds_and_repeat_them() -> None:
    first, again, other = (steps(make_env(spec("CheetahRun"), 0.99, (0, 0, s)), 3) for s in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.isclose(first[0], other[0]).all(1).any()
    assert not np.isclose(first[0][0], first[0][1]).all()


def test_resets_are_drawn_anew_and_first_episodes_are_spread() -> None:
    env = make_env(spec("CheetahRun", 8, max_t=30), 0.99, KEY)
    starts, ends = list[Array](), np.zeros(8, int)
    for t in range(1, 61):
        step = env.step(np.zeros((8, 6), np.float32))
        ends[(ends == 0) & step.truncated] = t
        starts += list(rows(env.obs)[step.truncated])
    assert len(set(ends.tolist())) > 4
    assert len(np.unique(starts, axis=0)) == len(starts) > 8
    assert set(PORTS) > FIXED_LENGTH


def test_reward_scale_stays_outside_the_reported_return() -> None:
    plain, scaled = (make_env(spec("CartpoleBalance", 1, max_t=5, reward_scale=x), 0.99, KEY) for x in (1.0, 10.0))
    for t in range(5):
        left, right = (env.step(np.zeros((1, 1), np.float32)) for env in (plain, scaled))
        assert right.reward.tolist() == pytest.approx((10 * left.reward).tolist())
        assert left.returns == right.returns
        assert len(left.returns) == (t == 4)


@pytest.mark.parametrize("rest", [{}, {"env.privileged": True}])
def test_a_session_learns_for_40_frames(rest: dict[str, Any]) -> None:
    assert_trains("playground/Go1Getup", **rest)


@pytest.mark.parametrize(
    ("name", "rest", "message"),
    [
        ("CheetaRun", {}, r"^env.name: unknown MuJoCo Playground task 'CheetaRun'. Did you mean 'CheetahRun'\?"),
        ("CheetahRun", {"backend": "gymnasium"}, r"^env.backend: Gymnasium has no playground/CheetahRun. .* jax"),
        ("PendulumSwingup", {"action_repeat": 4}, r"^env.action_repeat: EnvPool's port of PendulumSwingup has no such"),
        ("CheetahRun", {"episode_length": 0}, r"^env.episode_length: got 0; allowed: a number of steps"),
        ("Go1Getup", {"ctrl_dtt": 1}, r"^env.ctrl_dtt: unknown key. Did you mean 'ctrl_dt'\?"),
        ("BarkourJoystick", {"privileged": True}, r"^env.privileged: unknown key"),
    ],
)
def test_what_cannot_be_had_is_told(name: str, rest: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        check_env(spec(name, **rest))
