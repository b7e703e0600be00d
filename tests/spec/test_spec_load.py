"""From file or mapping to a frozen Spec, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import yaml

from slm_lab.lib.errors import LabError, SpecError
from slm_lab.spec import load as loading
from slm_lab.spec.load import difference, dump, find, from_mapping, load, spec_names
from slm_lab.spec.parse import parse
from slm_lab.spec.schema import Spec


def spec(**changes: Any) -> dict[str, Any]:
    """A small spec; `changes` replace whole sections."""
    return {
        "agent": {
            "name": "PPO",
            "algorithm": {"name": "PPO", "gamma": 0.99, "lam": 0.95},
            "memory": {"name": "OnPolicyBatchReplay"},
            "net": {"type": "MLPNet", "hid_layers": [64, 64], "optim_spec": {"name": "Adam", "betas": [0.5, 0.9]}},
        },
        "env": {"name": "CartPole-v1", "max_frame": 200000, "num_envs": 4},
        "meta": {"max_session": 4, "max_trial": 1},
        **changes,
    }


def write(folder: Path, entries: Any, name: str = "a.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(entries) if name.endswith("json") else yaml.safe_dump(entries))
    return path


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the packaged spec folder, and an empty working directory beside it."""
    folder, work = tmp_path / "packaged", tmp_path / "work"
    (folder / "benchmark" / "ppo").mkdir(parents=True)
    work.mkdir()
    write(folder / "benchmark" / "ppo", {"ppo_cartpole": spec()}, "ppo_cartpole.json")
    monkeypatch.setattr(loading, "_PACKAGED", folder)
    monkeypatch.chdir(work)
    return folder


def test_a_file_is_found_as_given_then_packaged_then_without_its_prefix(packaged: Path) -> None:
    inner = packaged / "benchmark/ppo/ppo_cartpole.json"
    assert find("benchmark/ppo/ppo_cartpole.json") == inner
    assert find("slm_lab/spec/benchmark/ppo/ppo_cartpole.json") == inner
    assert find("./slm_lab/spec/benchmark/ppo/ppo_cartpole.json") == inner
    assert find(inner) == inner
    own = Path("benchmark/ppo/ppo_cartpole.json")
    own.parent.mkdir(parents=True)
    write(own.parent, {"mine": spec()}, own.name)
    assert find("benchmark/ppo/ppo_cartpole.json") == own
    assert spec_names(own) == ["mine"]


def test_a_missing_file_names_the_near_ones(packaged: Path) -> None:
    with pytest.raises(
        LabError, match=r"^ppo_cartpol\.json: no such spec file.* Near: benchmark/ppo/ppo_cartpole\.json\.$"
    ):
        find("ppo_cartpol.json")
    write(Path(), {}, "my_spec.yaml")
    with pytest.raises(LabError, match=r"Near: my_spec\.yaml\.$"):
        find("my_spce.yaml")
    with pytest.raises(LabError, match=r"among the packaged specs\.$"):
        find("nowhere/zzz")


def test_a_folder_is_no_spec_file(packaged: Path) -> None:
    with pytest.raises(LabError, match=r"^benchmark: a folder; give one spec file\. In it: ppo/ppo_cartpole\.json\.$"):
        find("benchmark")


def test_the_packaged_folder_is_that_of_this_package() -> None:
    assert (loading._PACKAGED / "load.py").samefile(loading.__file__)


def test_runnable_names_leave_out_helpers_and_entries_without_agent(tmp_path: Path) -> None:
    path = write(tmp_path, {"_why": {}, "_base": spec(), "b": spec(), "stats": {"mean": 1}, "n": 3, "a": spec()})
    assert spec_names(path) == ["b", "a"]


@pytest.mark.parametrize("name", ["ppo_cartpol", "_base"])
def test_an_unknown_or_helper_name_lists_what_can_be_run(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, {"_base": spec(), "ppo_cartpole": spec(), "sac": spec()})
    with pytest.raises(SpecError, match=rf"no spec '{name}' to run\..*Known: ppo_cartpole, sac\.$"):
        load(path, name)
    with pytest.raises(SpecError, match="Did you mean 'ppo_cartpole'"):
        load(path, "ppo_cartpol")


def test_a_file_without_specs_says_so(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="It holds none"):
        load(write(tmp_path, {"_base": {}}), "x")


def test_json_and_yaml_of_the_same_tree_give_the_same_spec(tmp_path: Path) -> None:
    entries = {"a": spec()}
    assert load(write(tmp_path, entries), "a") == load(write(tmp_path, entries, "a.yaml"), "a")


def test_defaults_are_filled_and_sections_of_the_agent_stay_mappings(tmp_path: Path) -> None:
    got = load(write(tmp_path, {"a": spec()}), "a")
    assert got.notes == []
    assert got.spec.name == "a"
    assert got.spec.meta.distributed is False
    assert got.spec.meta.log_frequency == 10_000
    assert got.spec.agent.algorithm == {"name": "PPO", "gamma": 0.99, "lam": 0.95}


def test_loading_creates_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, {"a": spec()})
    monkeypatch.chdir(tmp_path)
    load(path, "a", ["max_frame=100"])
    assert [item.name for item in tmp_path.iterdir()] == ["a.json"]


def test_bare_and_quoted_placeholders_of_json_are_filled(tmp_path: Path) -> None:
    text = json.dumps({"a": spec(env={"name": "${env}", "max_frame": "BARE"})})
    path = tmp_path / "a.json"
    path.write_text(text.replace('"BARE"', "${max_frame}"))
    got = load(path, "a", ["env=Pendulum-v1", "max_frame=3e6"])
    assert (got.spec.env.name, got.spec.env.max_frame) == ("Pendulum-v1", 3_000_000)
    assert got.spec.name == "a_pendulum"
    assert got.spec.meta.overrides == ["env=Pendulum-v1", "max_frame=3e6"]
    assert got.applied == [
        'env.name: "${env}" -> "Pendulum-v1" (-s env=Pendulum-v1)',
        'env.max_frame: "${max_frame}" -> 3000000 (-s max_frame=3e6)',
    ]


def test_a_value_with_quotes_and_backslashes_does_not_break_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, {"a": spec(env={"name": "CartPole-v1", "max_frame": 9, "path": "in ${p}", "own": "${p}"})})
    value = 'C:\\new "one", {x'
    assert load(path, "a", [f"p={value}"]).spec.env.kwargs == {"path": f"in {value}", "own": value}


def test_leftover_placeholders_fail_in_the_chosen_spec_only(tmp_path: Path) -> None:
    text = json.dumps({"a": spec(), "b": spec(env={"name": "${env}", "max_frame": "BARE"})})
    path = tmp_path / "a.json"
    path.write_text(text.replace('"BARE"', "${max_frame}"))
    assert load(path, "a").spec.env.name == "CartPole-v1"
    with pytest.raises(SpecError) as error:
        load(path, "b")
    assert str(error.value).splitlines() == [
        f"{path}, b:",
        "env.name: ${env} is not filled; give -s env=...",
        "env.max_frame: ${max_frame} is not filled; give -s max_frame=...",
    ]


def test_a_placeholder_of_another_spec_does_not_count(tmp_path: Path) -> None:
    path = write(tmp_path, {"a": spec(), "b": spec(env={"name": "${game}", "max_frame": 1})})
    with pytest.raises(SpecError, match=r"-s game=Pong: no placeholder and no key 'game'.*Placeholders: none"):
        load(path, "a", ["game=Pong"])


def test_specs_that_share_a_yaml_anchor_are_overridden_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        "_agent: &agent {algorithm: {name: PPO, gamma: 0.99}}\n_meta: &meta {max_session: 1}\n"
        "a:\n  agent: *agent\n  env: {name: CartPole-v1, max_frame: 1e4}\n  meta: *meta\n"
        "b:\n  agent: {<<: *agent, critic_net: {arc: *meta}}\n  env: {name: CartPole-v1, max_frame: 1e4}\n"
        "  meta: *meta\n"
    )
    got = load(path, "b", ["meta.max_session=3", "gamma=0.5"]).spec
    assert (got.meta.max_session, got.agent.critic_net) == (3, {"arc": {"max_session": 1}})
    assert (got.env.max_frame, got.agent.algorithm["gamma"]) == (10_000, 0.5)


def test_overrides_join_those_a_spec_was_saved_with() -> None:
    first = from_mapping(spec(), "a", ["gamma=0.9"]).spec
    second = from_mapping(dump(first), first.name, ["lam=0.8"]).spec
    assert second.meta.overrides == ["gamma=0.9", "lam=0.8"]


def test_an_override_can_bring_an_older_form() -> None:
    got = from_mapping(spec(), "a", ["env=PongNoFrameskip-v4", "env.normalize_state=true"])
    assert got.spec.env.name == "ALE/Pong-v5"
    assert got.spec.env.normalize_obs is True
    assert got.spec.env.kwargs == {}
    assert "env.name: PongNoFrameskip-v4 is now ALE/Pong-v5." in got.notes


def test_a_spec_of_slm_lab_4_loads_with_notes() -> None:
    old = spec(
        agent=[spec()["agent"]],
        env=[{"name": "CartPole-v0", "max_t": None, "max_frame": "1e5", "normalize_state": False}],
        body={"product": "outer", "num": 1},
        meta={"distributed": False, "max_session": 1, "max_trial": None, "log_frequency": None, "num_gpus": 1},
        search={"agent": [{"algorithm": {"gamma__uniform": [0.9, 0.99]}}]},
    )
    got = from_mapping(old, "old")
    assert got.spec.env.max_frame == 100_000
    assert got.spec.search == {"agent": {"algorithm": {"gamma__uniform": [0.9, 0.99]}}}
    assert got.notes == [
        "env.normalize_state: read as normalize_obs.",
        "body: a key of SLM-Lab 4; ignored.",
        "meta.num_gpus: nothing reads it; ignored.",
        "env.name: CartPole-v0 runs as asked; CartPole-v1 is the newer id.",
    ]


def test_all_problems_come_in_one_error_with_file_and_name(tmp_path: Path) -> None:
    bad = spec(env={"max_frame": 0, "num_envs": "many"}, meta={"max_sesion": 1}, extra=1)
    path = write(tmp_path, {"a": bad})
    with pytest.raises(SpecError) as error:
        load(path, "a")
    lines = str(error.value).splitlines()
    assert lines[0] == f"{path}, a:"
    for start in (
        "env.name: missing key (required).",
        "env.num_envs: got 'many' (str); allowed:",
        "env.max_frame: got 0 (int); allowed:",
        "meta.max_session: missing key (required).",
        "meta.max_sesion: unknown key. Did you mean 'max_session'?",
        "extra: unknown key.",
    ):
        assert sum(line.startswith(start) for line in lines) == 1, start
    assert len(lines) == 7


@pytest.mark.parametrize("data", [None, 3, "x", [1]])
def test_a_spec_that_is_no_mapping_is_refused(data: Any) -> None:
    with pytest.raises(SpecError, match="a: expected a mapping with agent, env and meta, got a"):
        from_mapping(data, "a")


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("own", float("nan"), r"env\.own: got nan \(float\)"),
        ("own", {1: 2}, r"env\.own: keys must be text, got 1 \(int\)"),
        ("own", [{"x": object}], r"env\.own\.0\.x: got <class 'object'>"),
    ],
)
def test_values_that_no_file_can_hold_are_refused(key: str, value: Any, reason: str) -> None:
    with pytest.raises(SpecError, match=reason):
        from_mapping(spec(env={"name": "E", "max_frame": 1, key: value}), "a")


def test_a_mapping_that_holds_itself_is_refused() -> None:
    data = spec()
    data["agent"]["net"]["self"] = data
    with pytest.raises(SpecError, match="a: nested too deep, or it holds itself"):
        from_mapping(data, "a")


def test_python_values_become_plain_ones_and_the_given_mapping_is_left_alone() -> None:
    env = {"name": "E", "max_frame": np.int64(100), "size": (84, 84), "scale": np.float64(0.5)}
    data: Mapping[str, Any] = MappingProxyType(spec(env=MappingProxyType(env)))
    got = from_mapping(data, "a", ["max_frame=7"]).spec
    assert got.env.max_frame == 7
    assert got.env.kwargs == {"size": [84, 84], "scale": 0.5}
    assert env["max_frame"] == 100
    json.dumps(dump(got))


def test_a_dumped_spec_reads_back_as_an_equal_one() -> None:
    env = {"name": "E", "max_frame": 1e5, "clip_reward": [-1, 2], "reward_scale": "sign", "own": {"x": [1, None]}}
    meta = {
        "max_session": 2,
        "distributed": "synced",
        "rigorous_eval": True,
        "search_resources": {"cpu": 1, "gpu": 0.5},
    }
    got = from_mapping(spec(env=env, meta=meta, search={"x__choice": [1]}), "a", ["random_seed=3"]).spec
    again = json.loads(json.dumps(dump(got)))
    assert parse(Spec, again, "", []) == got
    assert from_mapping(again, "a").spec == got
    assert again["env"]["vectorization"] == "auto"


def test_a_difference_names_every_path_that_differs() -> None:
    old = from_mapping(spec(), "a").spec
    net = {**spec()["agent"]["net"], "hid_layers": [64], "gpu": "auto"}
    agent = {**spec()["agent"], "net": net, "critic_net": {"type": "MLPNet"}}
    new = from_mapping(spec(agent=agent), "a", ["max_frame=10", "agent.algorithm.gamma=0.5"]).spec
    assert difference(old, new) == [
        "agent.algorithm.gamma: 0.99 -> 0.5",
        "agent.net.hid_layers: [64, 64] -> [64]",
        'agent.net.gpu: unset -> "auto"',
        'agent.critic_net: null -> {"type": "MLPNet"}',
        "env.max_frame: 200000 -> 10",
    ]
    assert difference(new, old)[2] == 'agent.net.gpu: "auto" -> unset'


def test_a_difference_inside_a_list_of_mappings_names_its_entry() -> None:
    def arc(width: int, *more: str) -> Spec:
        net = {"type": "TorchArcNet", "arc": {"body": [{"Linear": {"out": width}}, *more]}}
        return from_mapping(spec(agent={**spec()["agent"], "net": net}), "a").spec

    assert difference(arc(64), arc(32)) == ["agent.net.arc.body.0.Linear.out: 64 -> 32"]
    assert difference(arc(64), arc(64, "ReLU")) == [
        'agent.net.arc.body: [{"Linear": {"out": 64}}] -> [{"Linear": {"out": 64}}, "ReLU"]'
    ]


def test_what_runs_record_and_the_search_space_are_no_difference() -> None:
    old = from_mapping(spec(), "a").spec
    meta = {
        **spec()["meta"],
        "overrides": ["gamma=0.99"],
        "trial": 1,
        "session": 2,
        "session_seed": 5,
        "experiment_ts": "2024",
        "git_sha": "abc",
        "record": {"threads": 1},
    }
    new = from_mapping(spec(meta=meta, search={"x__choice": [1]}), "a").spec
    assert new != old
    assert difference(old, new) == []
