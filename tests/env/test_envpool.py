from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box
from loguru import logger
from specs_for_tests import assert_trains

from slm_lab.env import check_env, make_env
from slm_lab.env.envpool import EnvPoolEngine
from slm_lab.env.envpool_task import pool_task
from slm_lab.lib.errors import LabError, SpecError
from slm_lab.lib.rng import Consumer, seed_of
from slm_lab.spec.schema import EnvSpec
from slm_lab.types import Array, Obs, VecEnv

envpool = pytest.importorskip("envpool")

KEY = (0, 0, 0)
ENDS = 0.2095  # radians: a pole that leans more has fallen
EDGE = 2.4  # metres: where the track ends
SEEDS = [5, 2**32 - 1, 7]  # the second has more bits than EnvPool takes


def spec(name: str, num_envs: int = 4, backend: str = "envpool", **rest: Any) -> EnvSpec:
    return EnvSpec.model_validate({"name": name, "num_envs": num_envs, "max_frame": 1, "backend": backend, **rest})


def engine(name: str, seeds: list[int], training: bool = True, **rest: Any) -> EnvPoolEngine:
    made = EnvPoolEngine(pool_task(spec(name, **rest), training), seeds)
    made.reset(np.arange(len(seeds)))
    return made


def rows(obs: Obs) -> Array:
    assert isinstance(obs, np.ndarray)
    return obs


def random_action(env: VecEnv, rng: np.random.Generator) -> Array:
    n, dim = env.spaces.num_envs, env.spaces.action_dim
    return rng.integers(0, dim, n) if env.spaces.action_kind == "discrete" else rng.uniform(-1, 1, (n, dim))


def fallen(obs: Array) -> Array:
    """Where a CartPole observation is out of bounds."""
    return np.asarray((np.abs(obs[:, 2]) > ENDS) | (np.abs(obs[:, 0]) > EDGE))


def play(env: VecEnv, episodes: int) -> tuple[Array, Array]:
    """Returns and lengths of the first `episodes` episodes of each env under random actions."""
    rng, n = np.random.default_rng(0), env.spaces.num_envs
    score, length, done = np.zeros(n), np.zeros(n), list[tuple[float, float]]()
    left = np.full(n, episodes)
    while left.any():
        step = env.step(random_action(env, rng))
        score, length = score + step.reward, length + 1
        for i in (step.terminated | step.truncated).nonzero()[0]:
            if left[i]:
                done.append((score[i], length[i]))
                left[i] -= 1
            score[i] = length[i] = 0
    env.close()
    returns, lengths = np.array(done).T
    return returns, lengths


def agree(left: Array, right: Array) -> bool:
    """Means within 4 standard errors of their difference."""
    error = np.sqrt(left.var(ddof=1) / len(left) + right.var(ddof=1) / len(right))
    return bool(abs(left.mean() - right.mean()) <= 4 * error)


SMALL = [
    ("CartPole-v1", 30, {}),
    ("Acrobot-v1", 4, {}),
    ("Pendulum-v1", 10, {}),
    ("LunarLander-v3", 10, {}),
    ("Hopper-v5", 15, {}),
    ("HalfCheetah-v5", 3, {"max_t": 150}),
]


@pytest.mark.parametrize(("name", "episodes", "rest"), SMALL)
def test_spaces_and_random_scores_are_those_of_gymnasium(name: str, episodes: int, rest: dict[str, Any]) -> None:
    pool, gym = (make_env(spec(name, 8, kind, **rest), 0.99, KEY, training=False) for kind in ("envpool", "gymnasium"))
    assert pool.spaces == gym.spaces
    assert rows(pool.obs).dtype == rows(gym.obs).dtype
    (scores, lengths), (gym_scores, gym_lengths) = play(pool, episodes), play(gym, episodes)
    assert agree(scores, gym_scores)
    assert agree(lengths, gym_lengths)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*(name for name, _, _ in SMALL), "Walker2d-v5", "Ant-v5", "BipedalWalker-v3"])
def test_random_scores_of_many_episodes_are_those_of_gymnasium(name: str) -> None:
    pool, gym = (play(make_env(spec(name, 8, kind), 0.99, KEY, False), 25) for kind in ("envpool", "gymnasium"))
    assert agree(pool[0], gym[0])
    assert agree(pool[1], gym[1])


@pytest.mark.parametrize("name", ["CartPole-v1", "LunarLanderContinuous-v3", "Pendulum-v1", "Humanoid-v5", "Pusher-v5"])
def test_actions_have_the_bounds_of_gymnasium(name: str) -> None:
    pool, plain = engine(name, [1]).action_space, gymnasium.make(name).action_space
    assert type(pool) is type(plain)
    assert pool.shape == plain.shape
    if isinstance(pool, Box) and isinstance(plain, Box):
        assert np.allclose(pool.low, plain.low)
        assert np.allclose(pool.high, plain.high)


def test_the_successor_of_an_end_is_the_last_observation_and_the_next_row_starts_anew() -> None:
    env, rng, ends = make_env(spec("CartPole-v1"), 0.99, KEY), np.random.default_rng(0), 0
    for _ in range(200):
        step = env.step(random_action(env, rng))
        out = fallen(rows(step.next_obs))
        assert out.tolist() == step.terminated.tolist()
        assert (np.abs(rows(env.obs)[out]) <= 0.05).all()  # CartPole starts within this
        ends += out.sum()
    assert ends > 20


def test_every_row_is_a_real_step_from_what_was_acted_on() -> None:
    env, rng, steps, returns = make_env(spec("CartPole-v1"), 0.99, KEY), np.random.default_rng(0), 0, list[float]()
    while len(returns) < 40:
        before = rows(env.obs)
        step = env.step(random_action(env, rng))
        steps += 4
        assert step.reward.tolist() == [1, 1, 1, 1]
        # the cart moves by its velocity times 0.02 s
        np.testing.assert_allclose(rows(step.next_obs)[:, 0], before[:, 0] + 0.02 * before[:, 1], atol=1e-6)
        returns += step.returns
    assert steps - 4 * 100 < sum(returns) <= steps  # all steps but those of the four open episodes were scored


def test_an_end_at_the_time_limit_is_both_and_the_limit_alone_is_truncation() -> None:
    env = make_env(spec("CartPole-v1", 32, max_t=9), 0.99, KEY)
    flags = set()
    for t in range(1, 10):
        before, step = rows(env.obs), env.step(np.zeros(32, np.int64))
        assert np.array_equal(step.terminated, fallen(rows(step.next_obs)))
        if t == 9:  # those that fell before are in another episode
            started = (np.abs(before) > 0.5).any(1)
            assert np.array_equal(step.truncated, started)
            flags = set(zip(step.terminated[started].tolist(), step.truncated[started].tolist(), strict=True))
    assert flags == {(True, True), (False, True)}


def test_only_a_smaller_max_t_changes_the_limit() -> None:
    assert pool_task(spec("CartPole-v1", max_t=9), True).limit == 9
    assert pool_task(spec("CartPole-v1", max_t=900), True).limit == 500
    assert pool_task(spec("CartPole-v1"), True).limit == 500


def test_rewards_are_raw_float64_and_the_arrays_given_out_stay_as_they_are() -> None:
    made = engine("CartPole-v1", [1, 2])
    first, kept = made.current()[0], list[tuple[Array, Array]]()
    kept.append((rows(first), rows(first).copy()))
    for _ in range(30):
        step = made.step(np.array([0, 1]))
        assert step.reward.dtype == np.float64
        kept += [(x, x.copy()) for x in (rows(step.obs), step.reward, step.terminated)]
        made.reset((step.terminated | step.truncated).nonzero()[0]) if step.terminated.any() else None
    assert all(np.array_equal(given, copy) for given, copy in kept)


def test_current_shows_all_envs_after_some_were_reset() -> None:
    made = engine("CartPole-v1", [1, 2, 3])
    step = made.step(np.array([0, 1, 0]))
    new, _ = made.reset(np.array([1]))
    now = rows(made.current()[0])
    assert np.array_equal(now[[0, 2]], rows(step.obs)[[0, 2]])
    assert np.array_equal(now[[1]], rows(new))
    assert not np.array_equal(now[1], rows(step.obs)[1])
    new, _ = made.reset(np.array([2, 0, 1]))
    assert np.array_equal(rows(made.current()[0])[[2, 0, 1]], rows(new))


def trace(env: VecEnv, steps: int = 60) -> Array:
    rng = np.random.default_rng(0)
    return np.stack([rows(env.step(random_action(env, rng)).next_obs) for _ in range(steps)])


def test_a_key_repeats_the_numbers_and_another_key_gives_others() -> None:
    first, again, session = (trace(make_env(spec("Hopper-v5"), 0.99, key)) for key in (KEY, KEY, (0, 0, 1)))
    evaluation = trace(make_env(spec("Hopper-v5"), 0.99, KEY, training=False))
    assert np.array_equal(first, again)
    assert not np.isclose(first[0], session[0]).all(1).any()
    assert not np.isclose(first[0], evaluation[0]).all(1).any()


@pytest.mark.parametrize("name", ["CartPole-v1", "LunarLander-v3", "Hopper-v5"])
def test_env_i_of_many_is_a_single_env_with_the_ith_seed(name: str) -> None:
    starts = rows(engine(name, SEEDS).current()[0])
    for i, seed in enumerate(SEEDS):
        assert np.array_equal(starts[[i]], rows(engine(name, [seed & (2**31 - 1)]).current()[0]))
    env = make_env(spec(name, 2), 0.99, KEY)
    seeds = [seed_of(*KEY, Consumer.ENV, i) for i in range(2)]
    assert np.array_equal(rows(env.obs), rows(engine(name, seeds).current()[0]))


def test_numbers_do_not_depend_on_threads() -> None:
    one, two = (make_env(spec("Hopper-v5", num_threads=count), 0.99, KEY) for count in (1, 2))
    assert np.array_equal(trace(one), trace(two))


def test_loading_starts_new_episodes_that_follow_from_seeds_and_steps() -> None:
    said: list[str] = []
    sink = logger.add(said.append, level="WARNING", format="{message}")
    env = make_env(spec("CartPole-v1"), 0.99, KEY)
    fresh = rows(env.obs)
    trace(env, 5)
    early = env.state_dict()
    trace(env, 5)
    late = env.state_dict()
    starts = []
    for state in (early, early, late):
        other = make_env(spec("CartPole-v1"), 0.99, KEY)
        other.load_state_dict(state)
        starts.append(trace(other, 20))
    logger.remove(sink)
    assert np.array_equal(starts[0], starts[1])
    assert not np.array_equal(starts[0], starts[2])
    assert not np.array_equal(starts[0][0], fresh)
    assert env.exact == "restarts"
    assert (
        said == ["EnvPool's episodes cannot be saved: new ones start, and the run is not an exact continuation\n"] * 3
    )


def test_derived_seeds_are_of_the_saved_seed_and_step() -> None:
    made = engine("CartPole-v1", [11, 12])
    for _ in range(3):
        made.step(np.zeros(2, np.int64))
    state = made.state_dict()
    assert state == {"seeds": [11, 12], "steps": 3}
    other = engine("CartPole-v1", [1, 2])
    assert other.load_state_dict(state) == []
    derived = [seed_of(11, 3), seed_of(12, 3)]
    assert np.array_equal(rows(other.current()[0]), rows(engine("CartPole-v1", derived).current()[0]))
    assert other.state_dict() == state


def test_a_loaded_episode_has_scored_nothing_yet() -> None:
    env = make_env(spec("CartPole-v1", 1), 0.99, KEY)
    for _ in range(5):
        env.step(np.zeros(1, np.int64))
    env.load_state_dict(env.state_dict())
    steps, returns = 0, ()
    while not returns:
        returns, steps = env.step(np.zeros(1, np.int64)).returns, steps + 1
    assert returns == (steps,)


def first_ends(env: VecEnv, steps: int) -> list[int]:
    ends, rng = np.zeros(env.spaces.num_envs, int), np.random.default_rng(0)
    for t in range(1, steps + 1):
        step = env.step(random_action(env, rng))
        ends[(ends == 0) & step.truncated] = t
    return ends.tolist()


def test_first_episodes_of_fixed_length_are_spread_also_after_loading() -> None:
    env = make_env(spec("Pendulum-v1", 8, max_t=40), 0.99, KEY)
    state = env.state_dict()
    ends = first_ends(env, 40)
    env.load_state_dict(state)
    loaded = first_ends(env, 40)
    assert len(set(ends)) > 4
    assert len(set(loaded)) > 4
    assert loaded != ends
    assert first_ends(make_env(spec("Pendulum-v1", 8, max_t=40), 0.99, KEY, training=False), 40) == [40] * 8


def test_a_lost_life_ends_what_is_learnt_from_and_the_game_goes_on() -> None:
    made, rng, ends = engine("ALE/Breakout-v5", [3], life_loss_info=True), np.random.default_rng(0), list[bool]()
    while not any(ends):
        step = made.step(rng.integers(0, 4, 1))
        assert step.over is not None
        assert step.truncated.tolist() == [False]
        ends += step.over[step.terminated].tolist()
    assert ends == [False, False, False, False, True]  # five lives


def test_lost_lives_change_neither_games_nor_scores_and_evaluation_plays_whole_games() -> None:
    def breakout(training: bool, counted: bool) -> tuple[list[float], int, Array]:
        env = make_env(spec("ALE/Breakout-v5", 2, life_loss_info=counted), 0.99, KEY, training)
        steps = [env.step(np.array([t % 4, t // 3 % 4])) for t in range(400)]
        ends = sum(int(step.terminated.sum()) for step in steps)
        return (
            [x for step in steps for x in step.returns],
            ends,
            np.stack([rows(step.next_obs)[:, -1] for step in steps]),
        )

    (scores, ends, frames), (whole, games, same) = breakout(True, True), breakout(True, False)
    assert np.array_equal(frames, same)
    assert scores == whole
    assert len(whole) == games > 0
    assert ends >= 5 * games
    evaluated, again, _ = breakout(False, True)
    assert len(evaluated) == again > 0


def test_atari_ids_keep_their_sticky_actions_and_learning_rewards_are_clipped() -> None:
    assert pool_task(spec("ALE/Pong-v5"), True).arguments["repeat_action_probability"] == 0.25
    assert (
        pool_task(spec("ALE/Pong-v5", repeat_action_probability=0.0), True).arguments["repeat_action_probability"] == 0
    )
    assert "repeat_action_probability" not in pool_task(spec("Pong-v5"), True).arguments
    learnt, raw = (scored(make_env(spec("ALE/SpaceInvaders-v5", 2), 0.99, KEY, training)) for training in (True, False))
    assert learnt == {0, 1}
    assert max(raw) >= 5  # the least an alien is worth


def scored(env: VecEnv) -> set[float]:
    rng = np.random.default_rng(0)
    return {float(x) for _ in range(100) for x in env.step(random_action(env, rng)).reward}


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("FrozenLake-v1", (16,)),  # one of 16 squares
        ("CheetahRun-v1", {"position": (8,), "velocity": (9,)}),
        ("Snake-v1", {"grid": (12, 12, 5), "step_count": (4000,)}),
        ("ALE/Pong-v5", (4, 84, 84)),
    ],
)
def test_observations_of_every_kind_fit_their_space(name: str, shape: Any) -> None:
    env = make_env(spec(name, 2), 0.99, KEY)
    rng = np.random.default_rng(0)
    assert env.spaces.obs_shape == shape
    for _ in range(5):
        obs = env.step(random_action(env, rng)).next_obs
        found = {key: x.shape[1:] for key, x in obs.items()} if isinstance(obs, dict) else obs.shape[1:]
        assert found == shape


def test_squares_are_one_of_many_and_masks_are_shown() -> None:
    env = make_env(spec("FrozenLake-v1", 2), 0.99, KEY)
    assert rows(env.obs).tolist() == [[1.0] + [0.0] * 15] * 2
    snake = make_env(spec("Snake-v1", 2), 0.99, KEY)
    assert snake.action_mask is not None
    assert snake.action_mask.shape == (2, 4)
    assert snake.action_mask.any(1).all()
    assert snake.spaces.mask_size == 4


CONV: dict[str, Any] = {
    "type": "ConvNet",
    "conv_hid_layers": [[4, 8, 4]],
    "fc_hid_layers": [8],
    "normalize": True,
    "optim_spec": {"name": "Adam", "lr": 0.01},
}


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("CartPole-v1", {}),
        ("LunarLanderContinuous-v3", {}),
        ("HalfCheetah-v5", {}),
        ("CheetahRun-v1", {}),
        ("ALE/Breakout-v5", {"agent.net": CONV, "env.life_loss_info": True}),
    ],
)
def test_a_session_learns_for_40_frames(name: str, rest: dict[str, Any]) -> None:
    assert_trains(name, backend="envpool", **rest)


@pytest.mark.parametrize(
    ("name", "rest", "message"),
    [
        ("Cartpole-v1", {}, r"^env.name: EnvPool has no 'Cartpole-v1'. Did you mean 'CartPole-v1'\?"),
        ("ALE/Pongg-v5", {}, r"EnvPool has no 'ALE/Pongg-v5'. Did you mean 'Pong-v5'\?"),
        (
            "Hopper-v5",
            {"ctrl_cost": 1},
            r"^env.ctrl_cost: unknown key. Did you mean 'ctrl_cost_weight'\? Known: .*num_e",
        ),
        ("CartPole-v1", {"max_episode_steps": 9}, r"^env.max_episode_steps: write max_t"),
        (
            "CartPole-v1",
            {"seed": 9, "batch_sise": 1},
            r"^env.seed: seeds follow from meta.random_seed.\nenv.batch_sise",
        ),
        ("CartPole-v1", {"privileged": True}, r"^env.privileged: unknown key"),
        (
            "CartPole-v1",
            {"backend": "jax"},
            r"^env.backend: jax does not run CartPole-v1. Allowed: auto, gymnasium, en",
        ),
        ("ALE/Pong-v5", {"episodic_life": True}, r"^env.episodic_life: .*with life_loss_info a lost life"),
        ("ALE/Pong-v5", {"reward_clip": True}, r"^env.reward_clip: .*clip_reward"),
        ("ALE/Pong-v5", {"life_loss_info": "yes"}, r"^env.life_loss_info: got 'yes'; allowed: true or false"),
        ("TicTacToe-v1", {}, r"TicTacToe-v1 is a game of 2 players"),
    ],
)
def test_what_cannot_be_had_is_told(name: str, rest: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        check_env(spec(name, **rest))


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(SpecError, match=r"^env.backend: EnvPool is not installed .*pip install 'slm-lab\[envpool\]'"):
        check_env(spec("CartPole-v1"))


def test_without_egl_nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slm_lab.env.envpool_task.load_egl", lambda: (_ for _ in ()).throw(OSError("no libEGL")))
    with pytest.raises(LabError, match=r"EnvPool draws by EGL, which is not installed \(no libEGL\)"):
        make_env(spec("CartPole-v1"), 0.99, KEY, watch=lambda picture, rate, first: None)
