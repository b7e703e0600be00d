"""`key=value` texts of `-s`."""

from __future__ import annotations

from typing import Any

import pytest

from slm_lab.lib.errors import SpecError
from slm_lab.spec.settings import Setting, env_suffix, parse_settings, typed


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-3", -3),
        ("3e6", 3_000_000),
        ("1.0", 1),
        ("3e-4", 0.0003),
        (".5", 0.5),
        ("12345678901234567890", 12345678901234567890),
        ("true", True),
        ("False", False),
        ("null", None),
        ("[64, 32]", [64, 32]),
        ('{"name": "Adam"}', {"name": "Adam"}),
        ("none", "none"),
        ("nan", "nan"),
        ("inf", "inf"),
        ("1e999", "1e999"),
        ("[64, 32", "[64, 32"),
        ("[NaN]", "[NaN]"),
        ("CartPole-v1", "CartPole-v1"),
        ("", ""),
        ('"3"', '"3"'),
        ("a=b", "a=b"),
    ],
)
def test_values_become_what_they_read_as(text: str, value: Any) -> None:
    got = typed(text)
    assert got == value
    assert type(got) is type(value)


def test_a_setting_is_split_at_the_first_equals_sign() -> None:
    assert parse_settings(["x=a=b", " y =1"]) == [Setting("x", "a=b", "a=b"), Setting("y", "1", 1)]


@pytest.mark.parametrize("item", ["gamma", "", "=3", "env.=3", ".x=3", "a..b=3"])
def test_a_setting_without_key_or_equals_sign_is_refused(item: str) -> None:
    with pytest.raises(SpecError, match="expected key=value"):
        parse_settings([item])


def test_the_same_key_twice_is_refused() -> None:
    with pytest.raises(SpecError, match=r"-s gamma=2: gamma is already set by -s gamma=1\."):
        parse_settings(["gamma=1", "gamma=2"])


@pytest.mark.parametrize(
    ("env", "suffix"),
    [
        ("ALE/Pong-v5", "_pong"),
        ("CartPole-v1", "_cartpole"),
        ("playground/CartpoleBalance", "_cartpolebalance"),
        ("my_envs.maze:Maze-v0", "_maze"),
        ("a b?c", "_a_b_c"),
    ],
)
def test_the_env_gives_a_short_name(env: str, suffix: str) -> None:
    assert env_suffix(parse_settings([f"env={env}"])) == suffix


def test_without_an_env_there_is_no_short_name() -> None:
    assert env_suffix(parse_settings(["env.name=CartPole-v1", "max_frame=3"])) == ""
