"""Envs that somebody looks at: every family can be drawn, and being looked at changes nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from ctypes.util import find_library
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slm_lab.env import make_adapter, make_env
from slm_lab.env.watch import Picture, enlarged
from slm_lab.env.window import Window
from slm_lab.lib.errors import RunError
from slm_lab.spec.schema import EnvSpec
from slm_lab.types import Array, VecEnv

KEY = (0, 0, 0)
NO_EGL = find_library("EGL") is None
MUJOCO = pytest.param("Hopper-v5", marks=pytest.mark.skipif(NO_EGL, reason="MuJoCo draws by EGL"))
FAMILIES = ["Acrobot-v1", "LunarLander-v3", MUJOCO, "ALE/Breakout-v5", "CartPole-v1"]
POOLED = ["CartPole-v1", "Hopper-v5", "ALE/Breakout-v5", "playground/CartpoleBalance"]


class Album:
    """Keeps what it sees."""

    def __init__(self) -> None:
        self.pictures: list[Array] = []
        self.firsts: list[bool] = []
        self.rate = 0.0

    def __call__(self, picture: Picture, rate: float, first: bool) -> None:
        self.pictures.append(picture())
        self.firsts.append(first)
        self.rate = rate


def env_spec(name: str, **kwargs: Any) -> EnvSpec:
    return EnvSpec(**{"name": name, "num_envs": 4, "max_frame": 1, "max_t": 5, **kwargs})


def constant_actions(env: VecEnv) -> Array:
    shape = (env.spaces.num_envs, *env.spaces.action_shape)
    return np.ones(shape, env.spaces.action_dtype)


def assert_same_when_watched(spec: EnvSpec) -> Album:
    album = Album()
    seen, unseen = make_env(spec, 0.99, KEY, watch=album), make_env(spec, 0.99, KEY)
    for _ in range(7):
        ours, theirs = seen.step(constant_actions(seen)), unseen.step(constant_actions(unseen))
        np.testing.assert_array_equal(ours.next_obs, theirs.next_obs)
        np.testing.assert_array_equal(ours.reward, theirs.reward)
        np.testing.assert_array_equal(ours.truncated, theirs.truncated)
    seen.close()
    unseen.close()
    height, width, colours = album.pictures[0].shape
    assert min(height, width) >= 160
    assert colours == 3
    assert all(picture.dtype == np.uint8 for picture in album.pictures)
    assert len(np.unique(album.pictures[0].reshape(-1, 3), axis=0)) > 1  # something is drawn
    assert (album.pictures[1] != album.pictures[5]).any()  # and it moves
    return album


@pytest.mark.parametrize("name", FAMILIES)
def test_what_is_watched_steps_as_what_is_not(name: str) -> None:
    album = assert_same_when_watched(env_spec(name))
    # a start, five steps to the limit, a new start, two steps; an episode is drawn to its very end
    assert album.firsts == [True, *[False] * 5, True, *[False] * 2]
    assert album.rate == {"Acrobot-v1": 15, "LunarLander-v3": 50, "Hopper-v5": 125, "ALE/Breakout-v5": 15}.get(name, 50)


@pytest.mark.skipif(NO_EGL or find_spec("envpool") is None, reason="EnvPool or what it draws by is not installed")
def test_envpool_draws_its_envs() -> None:
    """In a process of its own: where a test imported EnvPool before us, its MuJoCo cannot draw."""
    code = f"""
import sys
sys.path.append({str(Path(__file__).parent)!r})
from test_watch import POOLED, assert_same_when_watched, env_spec
for name in POOLED:
    album = assert_same_when_watched(env_spec(name, backend="envpool", num_envs=1))
    assert album.firsts[0] and album.firsts.count(True) == 2, album.firsts
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("name", ["CartPole-v1", MUJOCO, "LunarLander-v3"])
def test_a_checkpoint_of_unseen_envs_goes_on_in_sight_and_back(name: str) -> None:
    spec = env_spec(name, max_t=50)
    envs = [make_env(spec, 0.99, KEY), make_env(spec, 0.99, KEY, watch=Album()), make_env(spec, 0.99, KEY)]
    for _ in range(3):
        envs[0].step(constant_actions(envs[0]))
    envs[1].load_state_dict(envs[0].state_dict())
    envs[2].load_state_dict(envs[1].state_dict())
    steps = [env.step(constant_actions(env)) for env in envs]
    np.testing.assert_array_equal(steps[0].next_obs, steps[1].next_obs)
    np.testing.assert_array_equal(steps[0].next_obs, steps[2].next_obs)
    for env in envs:
        env.close()


def test_small_pictures_are_enlarged_by_whole_pixels() -> None:
    screen = np.arange(210 * 160 * 3, dtype=np.uint32).reshape(210, 160, 3)
    large = enlarged(screen)
    assert large.shape == (420, 320, 3)
    np.testing.assert_array_equal(large[::2, ::2], screen)
    np.testing.assert_array_equal(large[1::2, 1::2], screen)
    assert enlarged(np.zeros((400, 600, 3))).shape == (400, 600, 3)


@pytest.fixture
def no_screen(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    return lambda: monkeypatch.setenv("SDL_VIDEODRIVER", "nowhere")


def test_a_window_shows_each_picture_until_it_is_closed(no_screen: Callable[[], None]) -> None:
    import pygame

    drawn = list[int]()

    def picture() -> Array:
        drawn.append(1)
        return np.full((210, 160, 3), (10, 20, 30), np.uint8)

    window = Window("a game", paced=False)
    window(picture, 15, first=True)
    surface = pygame.display.get_surface()
    assert surface is not None
    assert surface.get_size() == (320, 420)
    assert surface.get_at((5, 5))[:3] == (10, 20, 30)
    assert pygame.display.get_caption()[0] == "a game"
    pygame.event.post(pygame.event.Event(pygame.QUIT))
    window(picture, 15, first=False)
    window(picture, 15, first=False)  # closed: nothing is drawn any more
    assert len(drawn) == 2
    assert not pygame.display.get_init()


def test_without_a_screen_the_error_names_the_video(no_screen: Callable[[], None]) -> None:
    no_screen()
    with pytest.raises(RunError, match=r"--render: no window can be opened here .* --video FILE"):
        Window("a game", paced=False)(lambda: np.zeros((400, 600, 3), np.uint8), 15, first=True)


@pytest.mark.parametrize("name", ["ALE/Pong-v5", "CartPole-v1", "Hopper-v5"])
def test_an_adapter_knows_the_spaces_of_every_family(name: str) -> None:
    spec = env_spec(name, num_envs=1)
    env, adapter = make_env(spec, 0.99, KEY), make_adapter(spec)
    assert adapter.spaces == env.spaces
    row = np.asarray(env.obs)[0]
    np.testing.assert_array_equal(adapter.encode(row), np.asarray(env.obs))
    env.close()


def test_a_joystick_is_told_its_position_as_ale_takes_it() -> None:
    adapter = make_adapter(env_spec("ALE/Pong-v5", continuous=True))
    radius, angle, fire = adapter.action(np.array([[0.0, 0.5, 1.0]], np.float32))
    assert (radius, fire) == (0.5, 1.0)
    assert angle == pytest.approx(np.pi / 2)


def test_entries_of_envpool_are_read_as_the_lab_shows_them() -> None:
    envpool = pytest.importorskip("envpool")
    spec = env_spec("playground/CartpoleBalance", num_envs=1)
    adapter = make_adapter(spec)
    raw, _ = envpool.make_gymnasium("CartpoleBalance-v1", num_envs=1, seed=[3]).reset()
    encoded = adapter.encode({key: rows[0] for key, rows in raw.items()})
    assert np.asarray(encoded).shape == (1, *np.atleast_1d(adapter.spaces.obs_shape))
    shown = np.concatenate([np.ravel(raw[key]) for key in ("position", "velocity")])
    np.testing.assert_allclose(np.asarray(encoded)[0], shown, rtol=1e-6)
