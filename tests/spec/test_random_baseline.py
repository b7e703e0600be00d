import json
import math

import pytest

from slm_lab.lib.errors import LabError
from slm_lab.spec import random_baseline
from slm_lab.spec.random_baseline import ENVS, FILE, baseline, entry_key, main, measure, random_returns

SHIPPED = json.loads(FILE.read_text())


def test_the_key_is_the_id_and_its_sorted_kwargs():
    assert entry_key("CartPole-v1", {}) == "CartPole-v1"
    assert entry_key("LunarLander-v3", {"continuous": True}) == 'LunarLander-v3{"continuous":true}'
    assert entry_key("X-v0", {"b": 1, "a": "t"}) == entry_key("X-v0", {"a": "t", "b": 1}) == 'X-v0{"a":"t","b":1}'


def test_every_env_listed_is_shipped_with_finite_numbers():
    assert {entry_key(name, kwargs) for name, kwargs in ENVS} <= SHIPPED.keys()
    for entry in SHIPPED.values():
        assert entry.keys() == {"mean", "std"}
        assert math.isfinite(entry["mean"])
        assert entry["std"] >= 0


def test_kwargs_choose_another_baseline():
    assert baseline("LunarLander-v3", {}) == SHIPPED["LunarLander-v3"]["mean"]
    continuous = baseline("LunarLander-v3", {"continuous": True})
    assert continuous == baseline("LunarLanderContinuous-v3", {}) != baseline("LunarLander-v3", {})


def test_an_unknown_env_or_unknown_kwargs_have_no_baseline():
    assert baseline("Nowhere-v0", {}) is None
    assert baseline("CartPole-v1", {"sutton_barto_reward": True}) is None


@pytest.mark.parametrize("name", ["CartPole-v1", "InvertedPendulum-v5"])
def test_measuring_again_gives_the_shipped_numbers(name):
    assert measure(name, {}) == SHIPPED[name]


@pytest.mark.parametrize(("name", "kwargs"), [("CartPole-v1", {}), ("LunarLander-v3", {"continuous": True})])
def test_the_same_seeds_give_the_same_episodes(name, kwargs):
    once = random_returns(name, kwargs, 5)
    assert once == random_returns(name, kwargs, 5)
    assert once[:3] == random_returns(name, kwargs, 3)
    assert len(set(once)) > 1


def test_mean_and_deviation_are_those_of_the_episodes(monkeypatch):
    monkeypatch.setattr(random_baseline, "random_returns", lambda name, kwargs, episodes: [1.0, 3.0, 8.0])
    assert measure("X-v0", {}) == {"mean": 4.0, "std": round(math.sqrt((9 + 1 + 16) / 3), 4)}


def test_the_command_adds_one_env_and_keeps_the_others(monkeypatch, tmp_path):
    file = tmp_path / "random_baseline.json"
    file.write_text('{"X-v0": {"mean": 1.0, "std": 0.0}}')
    monkeypatch.setattr(random_baseline, "FILE", file)
    monkeypatch.setattr(random_baseline, "random_returns", lambda name, kwargs, episodes: [float(kwargs["a"])])
    main(["Y-v0", '{"a": 2}'])
    assert json.loads(file.read_text()) == {"X-v0": {"mean": 1, "std": 0}, 'Y-v0{"a":2}': {"mean": 2, "std": 0}}


@pytest.mark.parametrize("arguments", [["{a"], ["[1]"], ["{}", "{}"]])
def test_kwargs_that_are_not_one_json_object_are_refused(arguments):
    with pytest.raises(LabError, match="one JSON object"):
        main(["CartPole-v1", *arguments])
