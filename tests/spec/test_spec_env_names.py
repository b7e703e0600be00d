"""Env ids of older specs."""

from __future__ import annotations

from typing import Any

import pytest

from slm_lab.lib.errors import SpecError
from slm_lab.spec import env_names
from slm_lab.spec.env_names import ATARI, NEWER, refused, update_env_name


def updated(name: object) -> tuple[object, list[str]]:
    notes: list[str] = []
    tree = {"env": {"name": name}}
    update_env_name(tree, notes)
    return tree["env"]["name"], notes


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LunarLander-v2", "LunarLander-v3"),
        ("LunarLanderContinuous-v2", "LunarLanderContinuous-v3"),
        ("Pendulum-v0", "Pendulum-v1"),
        ("BipedalWalker-v2", "BipedalWalker-v3"),
        ("Hopper-v2", "Hopper-v5"),
        ("Humanoid-v3", "Humanoid-v5"),
        ("Pusher-v4", "Pusher-v5"),
        ("RoboschoolAnt-v1", "Ant-v5"),
        ("RoboschoolInvertedDoublePendulum-v1", "InvertedDoublePendulum-v5"),
        ("PongNoFrameskip-v4", "ALE/Pong-v5"),
        ("PongDeterministic-v4", "ALE/Pong-v5"),
        ("VideoPinball-v0", "ALE/VideoPinball-v5"),
        ("MsPacman-v4", "ALE/MsPacman-v5"),
        ("Blackjack-v0", "Blackjack-v1"),
    ],
)
def test_refused_and_atari_ids_are_renamed_with_a_note(old: str, new: str) -> None:
    assert updated(old) == (new, [f"env.name: {old} is now {new}."])


@pytest.mark.parametrize(("old", "new"), [("CartPole-v0", "CartPole-v1"), ("Hopper-v4", "Hopper-v5")])
def test_old_ids_that_still_run_are_kept_with_a_note(old: str, new: str) -> None:
    assert updated(old) == (old, [f"env.name: {old} runs as asked; {new} is the newer id."])


@pytest.mark.parametrize(
    "name",
    [
        "CartPole-v1",
        "MountainCar-v0",
        "ALE/Pong-v5",
        "Unknown-v0",
        "playground/CartpoleBalance",
        "my:Unity-v0",
        "vizdoom.gymnasium_wrapper:VizdoomBasic-v0",
        "bullet_pack:HalfCheetahBulletEnv-v0",
        3,
        None,
    ],
)
def test_other_names_are_left_alone(name: object) -> None:
    assert updated(name) == (name, [])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("HalfCheetahBulletEnv-v0", r"PyBullet.*MuJoCo's HalfCheetah-v5 .*-s env=HalfCheetah-v5"),
        ("HumanoidBulletEnv-v0", "PyBullet.*MuJoCo's Humanoid-v5"),
        ("Unity3DBall", "Unity"),
        ("unity-walker", "Unity"),
        ("VizdoomBasic-v0", "VizDoom"),
        ("vizdoom-v0", "VizDoom"),
        ("RoboschoolHumanoidFlagrun-v1", "Roboschool"),
    ],
)
def test_ids_without_successor_are_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(SpecError, match=rf"^env\.name: {name}: {reason}"):
        updated(name)


def test_every_new_id_of_the_table_exists() -> None:
    assert [name for name in set(NEWER.values()) if refused(name)] == []


def test_the_list_of_atari_games_is_whole() -> None:
    assert len(ATARI) == 104
    assert {"Adventure", "Breakout", "Qbert", "Seaquest", "SpaceInvaders", "Zaxxon"} <= ATARI


def test_specs_without_an_env_are_left_for_the_schema() -> None:
    trees: list[dict[str, Any]] = [{}, {"env": 3}, {"env": {}}]
    for tree in trees:
        before = dict(tree)
        update_env_name(tree, [])
        assert tree == before


def test_gymnasium_is_asked_about_old_ids_only(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def note(name: str) -> bool:
        asked.append(name)
        return False

    monkeypatch.setattr(env_names, "refused", note)
    for name in ("CartPole-v1", "VideoPinball-v0", "Mine-v0", "CartPole-v0"):
        updated(name)
    assert asked == ["CartPole-v0"]
