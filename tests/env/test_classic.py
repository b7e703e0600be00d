from __future__ import annotations

import math
from copy import deepcopy
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from slm_lab.env.classic import CLASSIC, ClassicEngine, can_vectorise
from slm_lab.env.classic_physics import c_cos, c_square, c_square_float32
from slm_lab.env.engine import SyncEngine
from slm_lab.env.vec_env import GymVecEnv
from slm_lab.experiment.checkpoint import load, save
from slm_lab.spec.schema import EnvSpec
from slm_lab.types import Array

every_env = pytest.mark.parametrize("name", sorted(CLASSIC))


def env_spec(name: str, **rest: Any) -> EnvSpec:
    return EnvSpec(name=name, max_frame=1, **rest)


def started(name: str, n: int, first_seed: int = 0) -> ClassicEngine:
    engine = ClassicEngine(env_spec(name), range(first_seed, first_seed + n))
    engine.reset(np.arange(n))
    return engine


def actions(space: gym.Space[Any], obs: Array, rng: np.random.Generator) -> Array:
    """Random actions [N, ...], also out of bounds; three envs mostly push as they move, to reach goals."""
    n = len(obs)
    pushing = (np.arange(n) < 3) & (rng.random(n) < 0.8)
    forward = obs[:, -1] > 0
    if isinstance(space, gym.spaces.Discrete):
        return np.where(pushing, forward * (space.n - 1), rng.integers(0, space.n, n))
    assert isinstance(space, gym.spaces.Box)
    drawn, pushed = rng.uniform(-1.5, 1.5, n), np.where(forward, 1.0, -1.2)
    return (space.high * np.where(pushing, pushed, drawn)[:, None]).astype(np.float32)


def bits(*arrays: Any) -> list[Any]:
    """Dtype, shape and bytes: tells -0.0 from 0.0."""
    return [(array.dtype, array.shape, array.tobytes()) for array in arrays]


def play(engine: ClassicEngine, steps: int, seed: int) -> list[Any]:
    """The bits of everything an engine says, with ended envs reset."""
    rng, said = np.random.default_rng(seed), []
    obs: Any = engine.current()[0]
    for _ in range(steps):
        obs, reward, terminated, truncated = engine.step(actions(engine.action_space, obs, rng))[:4]
        said.append(bits(obs, reward, terminated, truncated))
        index = (terminated | truncated).nonzero()[0]
        if len(index):
            obs = obs.copy()
            obs[index] = engine.reset(index)[0]
    return said


@every_env
@pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*You are calling 'step:UserWarning")
def test_steps_and_resets_have_the_bits_of_single_gymnasium_envs(name: str) -> None:
    n = 7
    engine = ClassicEngine(env_spec(name), range(n))
    singles = [gym.make(name, disable_env_checker=True) for _ in range(n)]
    obs: Any = engine.reset(np.arange(n))[0]
    assert bits(obs) == bits(np.stack([env.reset(seed=seed)[0] for seed, env in enumerate(singles)]))
    rng, goals, limits, beyond = np.random.default_rng(1), 0, 0, 0
    for _ in range(10_000):
        action = actions(engine.action_space, obs, rng)
        results = [env.step(row) for env, row in zip(singles, action, strict=True)]
        step = engine.step(action)
        obs, reward, terminated, truncated = step[:4]
        theirs = np.stack([result[0] for result in results])
        flags = np.array([result[2:4] for result in results]).T.copy()
        assert bits(obs, reward) == bits(theirs, np.array([float(result[1]) for result in results]))
        assert bits(terminated, truncated) == bits(*flags)
        assert step.mask is None
        ended = terminated | truncated
        ended[5:] = truncated[5:]  # the last two go on beyond a termination
        goals, limits, beyond = goals + terminated.sum(), limits + truncated.sum(), beyond + terminated[5:].sum()
        index = ended.nonzero()[0]
        if len(index):
            rows: Any = engine.reset(index)[0]
            assert bits(rows) == bits(np.stack([singles[i].reset()[0] for i in index]))
            obs = obs.copy()
            obs[index] = rows
    assert limits > 0
    assert (goals > 0) == (name != "Pendulum-v1")
    assert beyond > 100 or "CartPole" not in name


@every_env
def test_the_numbers_of_an_env_do_not_depend_on_how_many_there_are(name: str) -> None:
    space, rng = started(name, 1).action_space, np.random.default_rng(3)
    acts = [actions(space, np.ones((17, 1)), rng) for _ in range(300)]

    def said(n: int) -> list[Any]:
        engine = started(name, n)
        return [engine.step(action[:n])[:4] for action in acts]

    most = said(17)
    for n in (1, 2, 3, 5, 8):
        for few, many in zip(said(n), most, strict=True):
            assert bits(*few) == bits(*(array[:n] for array in many))


@every_env
def test_a_checkpoint_brings_the_engine_back_in_mid_episode(name: str, tmp_path: Path) -> None:
    engine, other = started(name, 5), started(name, 5, first_seed=50)
    play(engine, 230, seed=1)
    engine.reset(np.array([1, 3]))  # what follows a reset is computed in another precision by some envs
    save(tmp_path / "state.safetensors", engine.state_dict())
    assert other.load_state_dict(load(tmp_path / "state.safetensors")) == []
    assert bits(other.current()[0]) == bits(engine.current()[0])
    assert play(other, 600, seed=2) == play(engine, 600, seed=2)


@every_env
def test_current_shows_what_reset_and_step_gave(name: str) -> None:
    engine = ClassicEngine(env_spec(name), range(40))
    first = engine.reset(np.arange(40))[0]
    assert bits(engine.current()[0]) == bits(first)
    obs: Any = engine.step(actions(engine.action_space, np.ones((40, 1)), np.random.default_rng(0))).obs
    assert bits(engine.current()[0]) == bits(obs)
    obs[[7, 2]] = engine.reset(np.array([7, 2]))[0]
    assert bits(engine.current()[0]) == bits(obs)


@every_env
def test_a_vector_env_is_the_same_over_this_engine_and_over_single_envs(name: str) -> None:
    spec, limits = env_spec(name, max_t=60), np.array([10, 60, 35])
    ours, theirs = (GymVecEnv(engine(spec, [4, 5, 6]), limits) for engine in (ClassicEngine, SyncEngine))
    rng = np.random.default_rng(2)
    for _ in range(200):
        action = actions(ours.action_space, np.asarray(ours.obs), rng)
        step, expected = ours.step(action), theirs.step(action)
        assert bits(*step[:4], ours.obs) == bits(*expected[:4], theirs.obs)
        assert step.returns == expected.returns
    assert ours.spaces == theirs.spaces


def test_a_reset_draws_only_from_the_envs_at_the_index_and_in_its_order() -> None:
    engine, single = started("CartPole-v1", 3), gym.make("CartPole-v1")
    before = np.asarray(engine.current()[0])
    rows = np.asarray(engine.reset(np.array([2, 0]))[0])
    for row, seed in ((0, 2), (1, 0)):
        single.reset(seed=seed)
        assert rows[row].tolist() == single.reset()[0].tolist()
    assert np.asarray(engine.current()[0]).tolist() == [rows[1].tolist(), before[1].tolist(), rows[0].tolist()]
    assert np.asarray(engine.reset(np.array([], np.int64))[0]).shape == (0, 4)


def test_max_t_truncates_where_smaller_than_the_registered_limit() -> None:
    for max_t, expected in ((7, 7), (10_000, 200), (None, 200)):
        engine = ClassicEngine(env_spec("Pendulum-v1", max_t=max_t), [0, 1])
        engine.reset(np.arange(2))
        engine.step(np.zeros((2, 1), np.float32))
        engine.reset(np.array([1]))  # one step behind from here on
        cut = [engine.step(np.zeros((2, 1), np.float32)).truncated.tolist() for _ in range(expected)]
        assert cut == [[False, False]] * (expected - 2) + [[True, False], [True, True]]


def test_only_the_first_fall_of_the_pole_is_rewarded() -> None:
    engine = started("CartPole-v1", 2)
    left = [engine.step(np.zeros(2, np.int64)) for _ in range(12)]  # always left ends an episode after 8 to 10 steps
    falls = [int(sum(~step.terminated[i] for step in left)) for i in range(2)]
    assert [sum(step.reward[i] for step in left) for i in range(2)] == [fall + 1 for fall in falls]
    engine.reset(np.array([1]))
    again = [engine.step(np.zeros(2, np.int64)).reward.tolist() for _ in range(3)]
    assert again == [[0, 1]] * 3


def test_returned_arrays_and_saved_states_are_never_written_again() -> None:
    engine = started("CartPole-v1", 2)
    rows = engine.reset(np.array([1]))[0]
    given = (rows, engine.step(np.array([0, 1]))[:4], engine.current()[0], engine.state_dict())
    kept = deepcopy(given)
    for _ in range(30):
        engine.step(np.array([1, 1]))
    engine.reset(np.arange(2))
    np.testing.assert_equal(given, kept)


def test_a_loaded_state_may_be_loaded_again() -> None:
    engine = started("CartPole-v1", 2)
    state = engine.state_dict()
    first = play(engine, 50, seed=1)
    for _ in range(2):
        engine.load_state_dict(state)
        assert play(engine, 50, seed=1) == first


def test_only_known_ids_with_their_own_settings_are_vectorised() -> None:
    assert all(can_vectorise(env_spec(name, max_t=9, num_envs=12)) for name in CLASSIC)
    assert not can_vectorise(env_spec("CartPole-v1", num_envs=2))  # faster in turn
    assert not can_vectorise(env_spec("CartPole-v1", num_envs=12, sutton_barto_reward=True))
    assert not can_vectorise(env_spec("Pendulum-v1", num_envs=12, g=9.81))
    assert not can_vectorise(env_spec("LunarLander-v3", num_envs=12))
    assert not can_vectorise(env_spec("tiny_envs:Countdown", num_envs=12))


def test_cosines_and_squares_are_those_of_single_numbers() -> None:
    x = np.random.default_rng(0).uniform(-30, 30, 20_000)
    assert bits(c_cos(x)) == bits(np.array([math.cos(value) for value in x.tolist()]))
    assert bits(c_square(x)) == bits(np.array([value**2 for value in x]))
    short = x.astype(np.float32)
    assert bits(c_square_float32(short)) == bits(np.array([value**2 for value in short]))
