from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from loguru import logger

from slm_lab.env import check_env, make_env
from slm_lab.env.atari import AtariEngine, polar
from slm_lab.env.seeds import LARGEST
from slm_lab.env.vec_env import GymVecEnv
from slm_lab.lib.errors import SpecError
from slm_lab.lib.rng import Consumer, seed_of
from slm_lab.spec.schema import EnvSpec
from slm_lab.types import Array, Obs, VecEnv

ale_py = pytest.importorskip("ale_py")

KEY = (0, 0, 0)
GAMES = sorted(name for name in gym.registry if name.startswith("ALE/"))
SEEDS = [5, 2**32 - 1]  # the second has more bits than ALE takes


def spec(game: str, num_envs: int = 1, **rest: Any) -> EnvSpec:
    return EnvSpec(name=f"ALE/{game}-v5", num_envs=num_envs, max_frame=1, **rest)


def images(obs: Obs) -> Array:
    assert isinstance(obs, np.ndarray)
    return obs


def actions(env: VecEnv, steps: int) -> Array:
    return np.random.default_rng(0).integers(0, env.spaces.action_dim, (steps, env.spaces.num_envs))


class Plain:
    """One game on the bare emulator: no vector env, no preprocessing, four frames for each action."""

    def __init__(self, game: str, seed: int, sticky: float, cap: int) -> None:
        self.ale = ale_py.ALEInterface()
        self.ale.setLoggerMode(ale_py.LoggerMode.Error)
        self.ale.setFloat("repeat_action_probability", sticky)
        self.ale.setInt("random_seed", seed)
        self.ale.loadROM(ale_py.roms.get_rom_path(game))
        self.actions, self.cap = self.ale.getMinimalActionSet(), cap
        self.start()

    def start(self) -> None:
        self.ale.reset_game()
        self.ale.act(ale_py.Action.FIRE)
        self.steps, self.score = 0, 0.0

    def step(self, action: int) -> float | None:
        """The score of a game that is over, which is followed by another."""
        for _ in range(4):
            self.score += self.ale.act(self.actions[action])
            if self.ale.game_over():
                break
        self.steps += 1
        if not self.ale.game_over() and self.steps < self.cap:
            return None
        score = self.score
        self.start()
        return score


@pytest.mark.parametrize(
    ("game", "sticky", "max_t", "steps"),
    [("Pong", 0.0, 100, 200), ("Tennis", 0.0, 100, 200), ("Breakout", 0.0, None, 400), ("Breakout", 0.25, 60, 240)],
)
def test_returns_are_the_scores_of_whole_games_on_the_bare_emulator(
    game: str, sticky: float, max_t: int | None, steps: int
) -> None:
    given = {"repeat_action_probability": sticky, "noop_max": 0, "max_t": max_t}
    envs = [make_env(spec(game, life_loss_info=lives, **given), 0.99, KEY) for lives in (False, True)]
    plain = Plain(game.lower(), seed_of(*KEY, Consumer.ENV, 0) & LARGEST, sticky, max_t or 27_000)
    scores = list[float]()
    for action in actions(envs[0], steps):
        score = plain.step(int(action[0]))
        ended = () if score is None else (score,)
        assert [env.step(action).returns for env in envs] == [ended, ended]
        scores += ended
    assert len(scores) >= 2
    assert any(scores)


@pytest.mark.slow
@pytest.mark.parametrize(("game", "steps"), [("Pong", 2000), ("Tennis", 6000)])
def test_games_without_lives_are_scored_at_their_own_end(game: str, steps: int) -> None:
    env = make_env(spec(game, noop_max=0, life_loss_info=True), 0.99, KEY)
    plain = Plain(game.lower(), seed_of(*KEY, Consumer.ENV, 0) & LARGEST, 0.25, 27_000)
    scores, returns = list[float](), list[float]()
    for action in actions(env, steps):
        score = plain.step(int(action[0]))
        scores += [] if score is None else [score]
        returns += env.step(action).returns
    assert returns == scores
    assert scores


def test_each_game_of_a_vector_is_the_game_alone() -> None:
    vector = GymVecEnv(AtariEngine(spec("Breakout", life_loss_info=True, max_t=80), SEEDS))
    alone = [GymVecEnv(AtariEngine(spec("Breakout", life_loss_info=True, max_t=80), [seed])) for seed in SEEDS]
    assert [images(env.obs)[0].tolist() for env in alone] == images(vector.obs).tolist()
    ended = np.zeros(2, bool)
    for action in actions(vector, 110):
        together, single = vector.step(action), [env.step(action[[i]]) for i, env in enumerate(alone)]
        for name in ("reward", "next_obs", "terminated", "truncated"):
            rows = np.concatenate([images(step._asdict()[name]) for step in single])
            np.testing.assert_array_equal(images(together._asdict()[name]), rows, strict=True)
        np.testing.assert_array_equal(images(vector.obs), np.concatenate([images(env.obs) for env in alone]))
        assert list(together.returns) == [score for step in single for score in step.returns]
        ended |= together.terminated | together.truncated
    assert ended.all()


def test_games_do_not_depend_on_the_number_of_threads() -> None:
    one, two = (GymVecEnv(AtariEngine(spec("Breakout"), SEEDS, threads=threads)) for threads in (1, 2))
    for action in actions(one, 60):
        np.testing.assert_array_equal(images(one.step(action).next_obs), images(two.step(action).next_obs))


def test_frames_are_four_grey_bytes_images_and_actions_those_of_the_game() -> None:
    spaces = make_env(spec("Pong", 2), 0.99, KEY).spaces
    assert (spaces.obs_shape, spaces.obs_dtype) == ((4, 84, 84), np.uint8)
    assert (spaces.action_kind, spaces.action_dim) == ("discrete", 6)
    assert make_env(spec("Pong", full_action_space=True), 0.99, KEY).spaces.action_dim == 18


def test_a_lost_life_ends_what_is_learnt_from_and_the_game_goes_on() -> None:
    env = make_env(spec("Breakout", life_loss_info=True), 0.99, KEY)
    bare = ale_py.AtariVectorEnv(
        "breakout", 1, num_threads=1, reward_clipping=False, repeat_action_probability=0.25, life_loss_info=True
    )
    seed = seed_of(*KEY, Consumer.ENV, 0) & LARGEST
    bare.reset(seed=np.array([seed]))
    lives, fire = list[int](), np.ones(1, np.int64)
    while not lives or lives[-1]:  # one game of five lives
        step, (obs, _, terminated, _, info) = env.step(fire), bare.step(fire)
        assert step.terminated.tolist() == terminated.tolist()
        np.testing.assert_array_equal(images(step.next_obs), obs)
        if step.terminated[0]:
            lives.append(int(info["lives"][0]))
            assert (env.obs is step.next_obs) == (lives[-1] > 0)  # only a game's end is followed by another start
            assert len(step.returns) == (lives[-1] == 0)
        assert len(lives) <= 5
    assert lives == [4, 3, 2, 1, 0]
    following = images(env.step(fire).next_obs)
    assert (following[:, :3] == images(env.obs)[:, :3]).all()


def test_evaluation_plays_whole_games() -> None:
    env = make_env(spec("Breakout", life_loss_info=True), 0.99, KEY, training=False)
    ends, returns = 0, 0
    while not returns:
        step = env.step(np.ones(1, np.int64))
        ends, returns = ends + int(step.terminated[0]), len(step.returns)
    assert ends == 1


@pytest.mark.slow
@pytest.mark.parametrize("game", ["BankHeist", "DonkeyKong"])  # both play their last life with 0 left
def test_lost_lives_are_those_that_ale_names(game: str) -> None:
    seeds = np.arange(1, 9)
    engine = AtariEngine(spec(game, life_loss_info=True), seeds.tolist())
    settings = {"num_threads": 1, "reward_clipping": False, "repeat_action_probability": 0.25}
    name = gym.registry[f"ALE/{game}-v5"].kwargs["game"]
    bare = ale_py.AtariVectorEnv(name, 8, life_loss_info=True, **settings)
    engine.reset(np.arange(8))
    lives = bare.reset(seed=seeds)[1]["lives"]
    rng, playing = np.random.default_rng(0), np.ones(8, bool)
    lost, last = 0, 0  # lives that ALE names, and last ones that begin, which it does not name
    for _ in range(500):
        action = rng.integers(0, int(bare.single_action_space.n), 8)
        ours, (_, _, terminated, _, info) = engine.step(action), bare.step(action)
        assert ours.terminated[playing].tolist() == terminated[playing].tolist()
        assert ours.over is not None
        going_on = playing & ~ours.over
        lost += int((ours.terminated & going_on).sum())
        last += int(((info["lives"] < lives) & (info["lives"] == 0) & going_on).sum())
        lives, playing = info["lives"], going_on  # after its end the bare env starts another game by itself
    assert lost > 0
    assert last > 0


def test_rewards_are_clipped_for_learning_only() -> None:
    learnt: list[tuple[dict[str, Any], Callable[[float], float]]] = [
        ({}, lambda raw: min(raw, 1)),
        ({"clip_reward": 30}, lambda raw: min(raw, 30)),
        ({"reward_scale": 0.5}, lambda raw: raw / 2),
        ({"reward_scale": 0.5, "clip_reward": 20}, lambda raw: min(raw / 2, 20)),
    ]
    envs = [make_env(spec("Carnival", max_t=40, **settings), 0.99, KEY) for settings, _ in learnt]
    engine = AtariEngine(spec("Carnival"), [seed_of(*KEY, Consumer.ENV, 0)])
    engine.reset(np.arange(1))
    raws = list[float]()
    for action in actions(envs[0], 40):
        raws.append(float(engine.step(action).reward[0]))
        steps = [env.step(action) for env in envs]
        assert [step.reward.tolist() for step in steps] == [[shape(raws[-1])] for _, shape in learnt]
    assert {20.0, 60.0} <= set(raws)
    assert all(step.truncated.all() and step.returns == (sum(raws),) for step in steps)


def test_penalties_are_clipped_too() -> None:
    env = make_env(spec("Skiing", max_t=5), 0.99, KEY)  # 6 or 7 hundredths of a second for each step
    steps = [env.step(action) for action in actions(env, 5)]
    assert [step.reward.tolist() for step in steps] == [[-1.0]] * 5
    assert -35 <= steps[-1].returns[0] <= -30


def test_normalised_and_evaluation_rewards_are_not_clipped_at_one() -> None:
    normalised = make_env(spec("Carnival", normalize_reward=True), 0.99, KEY)
    evaluation = make_env(spec("Carnival", life_loss_info=True), 0.99, KEY, training=False)
    for env in (normalised, evaluation):
        assert max(float(env.step(action).reward[0]) for action in actions(env, 60)) > 1


@pytest.mark.parametrize(
    ("settings", "step"), [({"max_t": 20}, 20), ({"max_t": 20, "frameskip": 2}, 20), ({"max_t": 30_000}, None)]
)
def test_max_t_counts_steps_of_the_agent(settings: dict[str, Any], step: int | None) -> None:
    env = make_env(spec("Pong", **settings), 0.99, KEY)
    cut = [bool(env.step(action).truncated[0]) for action in actions(env, 25)]
    assert [t for t, truncated in enumerate(cut, 1) if truncated] == ([] if step is None else [step])


def test_the_emulator_cap_holds_where_it_is_smaller() -> None:
    env = make_env(spec("Pong", max_t=20, max_num_frames_per_episode=40), 0.99, KEY)
    assert [bool(env.step(action).truncated[0]) for action in actions(env, 10)] == [False] * 9 + [True]


@pytest.mark.parametrize("game", ["Adventure", "MsPacman", "Skiing", "TicTacToe3D", "UpNDown"])
def test_a_game_is_made_and_steps(game: str) -> None:
    makes_and_steps(f"ALE/{game}-v5")


@pytest.mark.slow
@pytest.mark.parametrize("name", GAMES)
def test_every_game_is_made_and_steps(name: str) -> None:
    makes_and_steps(name)


def makes_and_steps(name: str) -> None:
    env = make_env(EnvSpec(name=name, num_envs=2, max_frame=1, life_loss_info=True), 0.99, KEY)
    for action in actions(env, 12):  # the screen of Elevator Action is dark for its first 40 frames
        step = env.step(action)
        assert images(step.next_obs).shape == (2, 4, 84, 84)
        assert np.isfinite(step.reward).all()
    assert images(env.obs).max() > 0
    env.close()


def test_joystick_actions_become_radius_angle_and_fire() -> None:
    half = np.float32(np.sqrt(0.5))
    joystick = [[1, 0, 1], [-0.6, 0, -1], [0, 0.5, 0], [0, -1, 0.5], [1, 1, 0], [-half, -half, 0], [0, 0, 0]]
    expected = [
        [1, 0, 1],  # right, with fire
        [0.6, np.pi, 0],  # left, not all the way
        [0.5, np.pi / 2, 0.5],
        [1, -np.pi / 2, 0.75],
        [1, np.pi / 4, 0.5],  # a corner is outside the circle: radius sqrt(2) becomes 1
        [1, -3 * np.pi / 4, 0.5],
        [0, 0, 0.5],
    ]
    got = polar(np.array(joystick, np.float32))
    np.testing.assert_allclose(got, np.array(expected, np.float32), rtol=1e-6)
    assert got.dtype == np.float32


def paddle_row(env: VecEnv) -> float:
    """Mean row of our paddle in Pong: the bright pixels of a column, between the two borders."""
    return float(np.flatnonzero(images(env.obs)[0, -1, 14:77, 74] > 130).mean())


@pytest.mark.parametrize(("x", "moves"), [(1.0, -18), (-1.0, 18), (0.0, 0)])
def test_the_stick_moves_the_paddle_of_pong(x: float, moves: int) -> None:
    env = make_env(spec("Pong", continuous=True, repeat_action_probability=0.0), 0.99, KEY)
    assert (env.spaces.action_kind, env.spaces.action_dim) == ("continuous", 3)
    stick = np.array([[x, 0, -1]], np.float32)
    before = paddle_row(env)
    for _ in range(3):
        env.step(stick)
    assert paddle_row(env) - before == pytest.approx(moves, abs=3)


def test_the_threshold_of_the_stick_is_passed_on() -> None:
    rows = []
    for threshold in (0.5, 0.2):
        given = {"continuous": True, "continuous_action_threshold": threshold, "repeat_action_probability": 0.0}
        env = make_env(spec("Pong", **given), 0.99, KEY)
        for x in (0.3,) * 6:
            env.step(np.array([[x, 0, -1]], np.float32))
        rows.append(paddle_row(env))
    assert rows[1] < rows[0]  # a stick pushed less than half way moves it only there


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ALE/pong-v5", r"^env.name: unknown game 'ALE/pong-v5'. Did you mean 'ALE/Pong-v5'\? Allowed: one of the \d+"),
        ("ALE/MsPacMan", r"Did you mean 'ALE/MsPacman-v5'\?"),
        ("ALE/Pong-v4", r"Did you mean 'ALE/Pong-v5'\?"),
    ],
)
def test_an_unknown_game_is_told_with_the_near_one(name: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        check_env(EnvSpec(name=name, max_frame=1))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("life_loss", True, r"^env.life_loss: unknown key. Did you mean 'life_loss_info'\? Known: .*num_envs"),
        ("sticky", 0.25, r"^env.sticky: unknown key. Known: .*repeat_action_probability"),
        ("batch_size", 2, r"^env.batch_size: unknown key"),
        ("reward_clipping", True, r"^env.reward_clipping: got True; .* clip_reward clips what is learnt from"),
        ("episodic_life", True, r"^env.episodic_life: got True; it restarts the game .* life_loss_info"),
    ],
)
def test_arguments_that_cannot_be_are_told(key: str, value: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        check_env(spec("Pong", **{key: value}))


def test_all_wrong_arguments_are_told_at_once() -> None:
    with pytest.raises(SpecError, match=r"(?s)env.episodic_life: .*\nenv.noops: "):
        check_env(spec("Pong", episodic_life=True, noops=3))


def test_arguments_of_ale_pass_and_so_do_those_that_change_nothing() -> None:
    given = {"img_height": 64, "img_width": 64, "noop_max": 10, "reward_clipping": False, "episodic_life": False}
    check_env(spec("Pong", **given))
    assert make_env(spec("Pong", **given), 0.99, KEY).spaces.obs_shape == (4, 64, 64)


def test_a_missing_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(SpecError, match=r"^env.name: 'ALE/Pong-v5': Atari support is not installed .*pip install ale-"):
        check_env(spec("Pong"))


def test_loading_starts_new_games_that_repeat() -> None:
    games = spec("Carnival", max_t=60)
    env = make_env(games, 0.99, KEY)
    acts = actions(env, 60)
    for action in acts[:40]:
        env.step(action)
    state = env.state_dict()
    others = [make_env(games, 0.99, (seed, 0, 0)) for seed in (1, 2)]
    for other in others:
        other.load_state_dict(state)
    engine = AtariEngine(games, [1])
    engine.load_state_dict(state["engine"])
    first, scores = images(others[0].obs), np.zeros(1)
    np.testing.assert_array_equal(first, images(others[1].obs))
    for action in acts:
        scores += engine.step(action).reward
        left, right = (other.step(action) for other in others)
        np.testing.assert_array_equal(images(left.next_obs), images(right.next_obs))
    assert left.truncated.all()  # 60 steps after the load
    assert left.returns == right.returns == tuple(scores.tolist())  # what was scored before it does not count
    env.step(acts[0])
    others[0].load_state_dict(env.state_dict())
    assert not np.array_equal(images(others[0].obs), first)  # a later checkpoint starts other games


def test_seeds_after_loading_follow_from_the_saved_seed_and_step() -> None:
    saved, other = (AtariEngine(spec("Breakout"), [seed]) for seed in (5, 6))
    saved.reset(np.arange(1))
    for _ in range(3):
        saved.step(np.zeros(1, np.int64))
    assert other.load_state_dict(saved.state_dict()) == []
    derived = AtariEngine(spec("Breakout"), [seed_of(5, 3)])
    np.testing.assert_array_equal(images(other.current()[0]), images(derived.reset(np.arange(1))[0]))
    assert other.state_dict() == {"seeds": [5], "steps": 3}


def test_new_games_are_said() -> None:
    env = make_env(spec("Pong"), 0.99, KEY)
    assert env.exact == "restarts"
    said: list[str] = []
    sink = logger.add(said.append, level="WARNING", format="{message}")
    env.load_state_dict(env.state_dict())
    logger.remove(sink)
    assert said == ["Atari games cannot be saved: new ones start, and the run is not an exact continuation\n"]


def test_the_screen_stays_in_step_with_the_games() -> None:
    album: list[Array] = []
    games = spec("Breakout", life_loss_info=True)
    env = make_env(games, 0.99, KEY, watch=lambda picture, rate, first: album.append(picture()))
    scores, lost = list[float](), 0
    for action in actions(env, 500):
        album.clear()
        step = env.step(action)
        scores, lost = [*scores, *step.returns], lost + int(step.terminated[0])
        # the net's newest frame is the screen, smaller and gray: bricks and paddle are in the same places
        seen, shown = images(step.next_obs)[0, -1], album[0] @ [0.299, 0.587, 0.114]
        assert shown.shape == (210, 160)
        columns = shown.mean(0)[:160].reshape(80, 2).mean(1)
        assert np.corrcoef(np.interp(np.linspace(0, 83, 80), np.arange(84), seen.mean(0)), columns)[0, 1] > 0.9
        assert np.corrcoef(seen.mean(1), np.interp(np.linspace(0, 209, 84), np.arange(210), shown.mean(1)))[0, 1] > 0.95
    assert len(scores) >= 2
    assert any(scores)
    assert lost >= 10
    assert len(np.unique(album[0].reshape(-1, 3), axis=0)) > 5  # walls, bricks of several colours, background
