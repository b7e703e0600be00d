"""What a spec means in full."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_helpers import ALGORITHM_SPECS, no_sinks, tiny  # noqa: F401
from spec_files import PACKAGED, sets_for

from slm_lab.agent.algorithm import ALGORITHMS
from slm_lab.agent.memory import MEMORIES
from slm_lab.agent.net import NETS
from slm_lab.agent.plan import AgentPlan, plan_agent
from slm_lab.experiment.explain import components, resolved
from slm_lab.spec.describe import describe
from slm_lab.spec.load import dump, from_mapping, load, spec_names
from slm_lab.spec.schema import Spec


def plan_of(spec: Spec) -> AgentPlan:
    return plan_agent(spec.agent, spec.env.num_envs, [])


def assert_means_the_same(spec: Spec) -> dict[str, Any]:
    full = resolved(spec, plan_of(spec))
    again = from_mapping(full, spec.name).spec
    assert plan_of(again) == plan_of(spec)
    assert (again.env, again.meta) == (spec.env, spec.meta)
    assert resolved(again, plan_of(again)) == full  # nothing more to resolve
    return full


def test_components_are_all_registered_ones_and_every_section() -> None:
    known = components()
    assert {*ALGORITHMS, *MEMORIES, *NETS, "spec", "env", "meta", "agent"} <= known.keys()
    for name, model in known.items():
        for doc in describe(model):
            assert doc.meaning, f"{name}.{doc.key} says nothing"


@pytest.mark.parametrize("algorithm", ALGORITHM_SPECS)
def test_every_key_of_an_agent_is_one_that_is_listed(algorithm: str) -> None:
    spec = from_mapping(tiny(algorithm), "tiny").spec
    agent = resolved(spec, plan_of(spec))["agent"]
    listed = {key for model in components().values() for key in model.model_fields}
    for section in ("algorithm", "memory"):
        assert agent[section].keys() <= listed


def test_the_memory_of_self_imitation_is_listed_as_the_section_a_user_writes() -> None:
    keys = [doc.key for doc in describe(components()["sil_replay_name"])]
    assert keys == ["name", "sil_replay_name"]  # and not what it is parsed into


@pytest.mark.parametrize("algorithm", ALGORITHM_SPECS)
def test_a_resolved_spec_has_every_default_and_means_the_same(algorithm: str) -> None:
    spec = from_mapping(tiny(algorithm), "tiny").spec
    full = assert_means_the_same(spec)
    assert full["agent"]["algorithm"].keys() == ALGORITHMS[algorithm].Spec.model_fields.keys()
    assert full["env"]["max_frame"] == 300
    assert full["meta"]["eval_deterministic"] is True


@pytest.mark.parametrize("path", PACKAGED, ids=lambda path: path.stem)
def test_packaged_specs_mean_the_same_when_resolved(path: Path) -> None:
    for name in spec_names(path):
        assert_means_the_same(load(path, name, sets_for(path, name)).spec)


def test_keys_of_one_net_alone_stay_its_own() -> None:
    net = {
        "hid_layers": [4],
        "critic_hid_layers": [5, 6],
        "actor_optim_spec": {"name": "SGD", "lr": 0.5},
        "critic_clip_grad_val": None,
        "actor_init_std": 0.01,
        "critic_init_std": 1.0,
    }
    spec = from_mapping(tiny("PPO", net=net), "tiny").spec
    full = assert_means_the_same(spec)["agent"]["net"]
    assert (full["hid_layers"], full["critic_hid_layers"]) == ([4], [5, 6])
    assert full["optim_spec"]["name"] == "SGD"
    assert full["critic_optim_spec"]["name"] == "Adam"
    assert (full["clip_grad_val"], full["critic_clip_grad_val"]) == (0.5, None)


def test_the_same_optimiser_for_both_nets_is_resolved() -> None:
    net = {"use_same_optim": True, "critic_optim_spec": {"name": "SGD", "lr": 0.5}}
    full = assert_means_the_same(from_mapping(tiny("PPO", net=net), "tiny").spec)["agent"]["net"]
    assert full["optim_spec"]["name"] == "Adam"
    assert "critic_optim_spec" not in full


def test_resolving_changes_nothing_of_the_spec_itself() -> None:
    spec = from_mapping(tiny(), "tiny").spec
    before = dump(spec)
    resolved(spec, plan_of(spec))
    assert dump(spec) == before


def test_critics_described_by_a_section_of_their_own_stay_there() -> None:
    critic = {"type": "MLPNet", "hid_layers": [5], "batch_renorm": {"warmup_steps": 7}}
    data = tiny("CrossQ")
    data["agent"]["critic_net"] = critic
    full = assert_means_the_same(from_mapping(data, "tiny").spec)["agent"]
    assert full["critic_net"]["hid_layers"] == [5]
    assert full["critic_net"]["batch_renorm"]["warmup_steps"] == 7
    assert not any(key.startswith("critic_") and key != "critic_init_std" for key in full["net"])
