"""What random actions score: keys, lookup, measuring."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from slm_lab.cli.main import main
from slm_lab.experiment.random_score import measure, random_returns
from slm_lab.spec import random_baseline
from slm_lab.spec.random_baseline import FILE, baseline, entries, entry_key

SHIPPED = json.loads(FILE.read_text())
PUBLISHED = (
    "CartPole-v1 Acrobot-v1 Pendulum-v1 MountainCar-v0 LunarLander-v3 LunarLanderContinuous-v3 BipedalWalker-v3 "
    "Hopper-v5 HalfCheetah-v5 Walker2d-v5 Ant-v5 Swimmer-v5 Reacher-v5 Pusher-v5 InvertedPendulum-v5 "
    "InvertedDoublePendulum-v5 Humanoid-v5 HumanoidStandup-v5"
)


def test_the_key_is_the_id_and_its_sorted_kwargs() -> None:
    assert entry_key("CartPole-v1", {}) == "CartPole-v1"
    assert entry_key("LunarLander-v3", {"continuous": True}) == 'LunarLander-v3{"continuous":true}'
    assert entry_key("X-v0", {"b": 1, "a": "t"}) == entry_key("X-v0", {"a": "t", "b": 1}) == 'X-v0{"a":"t","b":1}'


def test_what_only_changes_learning_has_the_same_key() -> None:
    assert entry_key("ALE/Pong-v5", {"life_loss_info": True}) == "ALE/Pong-v5"


def test_every_env_of_the_tables_is_shipped_with_finite_numbers() -> None:
    assert set(PUBLISHED.split()) <= SHIPPED.keys()
    for entry in SHIPPED.values():
        assert entry.keys() == {"mean", "std"}
        assert math.isfinite(entry["mean"])
        assert entry["std"] >= 0


def test_kwargs_choose_another_baseline() -> None:
    assert baseline("LunarLander-v3", {}) == SHIPPED["LunarLander-v3"]["mean"]
    continuous = baseline("LunarLander-v3", {"continuous": True})
    assert continuous == baseline("LunarLanderContinuous-v3", {}) != baseline("LunarLander-v3", {})


def test_an_unknown_env_or_unknown_kwargs_have_no_baseline() -> None:
    assert baseline("Nowhere-v0", {}) is None
    assert baseline("CartPole-v1", {"sutton_barto_reward": True}) is None


@pytest.mark.parametrize("name", ["CartPole-v1", "InvertedPendulum-v5"])
def test_measuring_again_gives_the_shipped_numbers(name: str) -> None:
    assert measure(name, {}) == SHIPPED[name]


@pytest.mark.parametrize(("name", "kwargs"), [("CartPole-v1", {}), ("LunarLander-v3", {"continuous": True})])
def test_the_same_seeds_give_the_same_episodes(name: str, kwargs: dict[str, Any]) -> None:
    once = random_returns(name, kwargs, 12)
    assert once == random_returns(name, kwargs, 12)
    assert len(set(once)) > 1


def test_mean_and_deviation_are_those_of_the_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slm_lab.experiment.random_score.random_returns", lambda *_: [1.0, 3.0, 8.0])
    assert measure("X-v0", {}) == {"mean": 4.0, "std": round(math.sqrt((9 + 1 + 16) / 3), 4)}


def test_the_command_adds_an_env_and_keeps_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "random_baseline.json"
    file.write_text('{"X-v0": {"mean": 1.0, "std": 0.0}, "X-v0{\\"a\\":1}": {"mean": 5.0, "std": 0.0}}')
    monkeypatch.setattr(random_baseline, "FILE", file)
    assert entries() == [("X-v0", {}), ("X-v0", {"a": 1})]
    monkeypatch.setattr(
        "slm_lab.experiment.random_score.random_returns", lambda name, kwargs, episodes: [float(kwargs["a"])]
    )
    with pytest.raises(SystemExit, match="0"):
        main(["baseline", "Y-v0", "-s", "a=2"])
    assert capsys.readouterr().out.splitlines()[0] == 'Y-v0{"a":2}: 2.00, deviation 0.00'
    kept = json.loads(file.read_text())
    assert kept['Y-v0{"a":2}'] == {"mean": 2, "std": 0}
    assert kept["X-v0"] == {"mean": 1, "std": 0}
