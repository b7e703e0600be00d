from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest

from slm_lab.env import ENVS, check_env, family
from slm_lab.env.source import build
from slm_lab.lib.errors import SpecError
from slm_lab.spec.schema import EnvSpec


def check(name: str, **kwargs: Any) -> None:
    check_env(EnvSpec(name=name, max_frame=1, **kwargs))


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("CartPole-v1", {}),
        ("LunarLander-v3", {"continuous": True, "gravity": -9.0}),
        ("HalfCheetah-v5", {"ctrl_cost_weight": 0.2, "width": 64}),  # its own argument, and one of its base class
        ("gymnasium:CartPole-v1", {"sutton_barto_reward": True}),
        ("tiny_envs:Countdown", {"length": 4}),
        ("tiny_envs:takes_anything", {"length": 4, "whatever": 1}),
    ],
)
def test_what_can_be_made_passes(name: str, kwargs: dict[str, Any]) -> None:
    check(name, **kwargs)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Cartpole-v1", r"^env.name: unknown env 'Cartpole-v1'. Did you mean 'CartPole-v1'\? Allowed: an id in"),
        ("HalfCheetah", r"unknown env 'HalfCheetah'. Did you mean 'HalfCheetah-v5'\?"),
        ("gymnasium:LunarLander-v9", r"Did you mean 'LunarLander-v3'\?"),
        ("tiny_envs:CountDown", r"unknown env 'tiny_envs:CountDown'. Did you mean 'Countdown'\?"),
        ("no_such_module:Env-v0", r"^env.name: cannot import 'no_such_module': ModuleNotFoundError: No module named"),
    ],
)
def test_an_unknown_id_is_told_with_the_near_one(name: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        check(name)


@pytest.mark.parametrize(
    ("name", "key", "near"),
    [
        ("LunarLander-v3", "continous", "continuous"),
        ("CartPole-v1", "normalise_obs", "normalize_obs"),
        ("HalfCheetah-v5", "ctrl_cost", "ctrl_cost_weight"),
        ("tiny_envs:Countdown", "lenght", "length"),
    ],
)
def test_an_unknown_key_is_told_with_the_near_one(name: str, key: str, near: str) -> None:
    with pytest.raises(SpecError, match=rf"^env.{key}: unknown key. Did you mean '{near}'\? Known: .*num_envs"):
        check(name, **{key: 1})


def test_all_unknown_keys_are_told_at_once() -> None:
    with pytest.raises(SpecError, match=r"(?s)env.continous: .*\nenv.gravty: .*'gravity'"):
        check("LunarLander-v3", continous=True, gravty=1)


def test_a_registered_env_whose_package_is_missing_is_told() -> None:
    gym.register("Absent-v0", entry_point="no_such_module:Env")
    with pytest.raises(
        SpecError, match=r"env.name: 'Absent-v0' needs a package that is not installed: No module named"
    ):
        check("Absent-v0")
    del gym.registry["Absent-v0"]


def test_a_callable_that_returns_something_else_is_told() -> None:
    with pytest.raises(SpecError, match=r"'tiny_envs:not_an_env' must return a gymnasium.Env, got int"):
        build(EnvSpec(name="tiny_envs:not_an_env", max_frame=1))


def test_the_family_with_the_longest_prefix_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    other = ENVS[""]._replace(check=lambda spec: asked.append(spec.name))
    monkeypatch.setitem(ENVS, "moon/", other)
    check("moon/Crater-v0")
    check("CartPole-v1")
    assert asked == ["moon/Crater-v0"]
    assert family("CartPole-v1") is ENVS[""]
