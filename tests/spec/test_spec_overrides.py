"""`-s` on a spec: placeholders, paths, shorthands, bare keys; and every way to be refused."""

from __future__ import annotations

from typing import Any

import pytest

from slm_lab.lib.errors import SpecError
from slm_lab.spec.overrides import apply, refuse_leftovers
from slm_lab.spec.settings import parse_settings


def spec(**env: Any) -> dict[str, Any]:
    return {
        "agent": {
            "algorithm": {"name": "PPO", "gamma": 0.99, "clip_eps_spec": {"start_val": 0.2}},
            "net": {"actor_optim_spec": {"lr": 1}, "critic_optim_spec": {"lr": 2}, "hid_layers": [64, 32]},
        },
        "env": {"name": "CartPole-v1", "max_frame": 200000, **env},
        "meta": {"max_session": 4, "session": 2, "record": {"threads": 1}},
        "search": {"agent.algorithm.gamma__uniform": [0.9, 0.99], "lam": 1},
    }


def applied(tree: dict[str, Any], *sets: str) -> tuple[dict[str, Any], list[str]]:
    notes: list[str] = []
    return apply(tree, parse_settings(sets), notes), notes


def test_a_placeholder_that_is_the_whole_value_is_filled_with_its_type() -> None:
    tree = spec(name="${env}", max_frame="${n}", continuous="${c}", size="${size}", max_t="${t}")
    filled, _ = applied(tree, "env=Pendulum-v1", "n=3e6", "c=true", "size=[84, 84]", "t=null")
    assert filled["env"] == {
        "name": "Pendulum-v1",
        "max_frame": 3_000_000,
        "continuous": True,
        "size": [84, 84],
        "max_t": None,
    }


def test_a_placeholder_inside_text_is_filled_verbatim_and_numbers_plainly() -> None:
    filled, notes = applied(spec(label="${who}_${n}_${who}_${left}"), 'who="a\\b"', "n=3e6")
    assert filled["env"]["label"] == '"a\\b"_3000000_"a\\b"_${left}'
    assert len(notes) == 1
    assert notes[0].endswith('(-s who="a\\b", -s n=3e6)')


def test_every_occurrence_of_a_placeholder_is_filled_with_its_own_copy() -> None:
    filled, notes = applied(spec(a="${x}", b={"c": ["${x}"]}), "x=[1]")
    filled["env"]["a"].append(2)
    assert filled["env"]["b"] == {"c": [[1]]}
    assert notes == ['env.a: "${x}" -> [1] (-s x=[1])', 'env.b.c.0: "${x}" -> [1] (-s x=[1])']


def test_placeholders_in_keys_are_filled_too() -> None:
    filled, _ = applied(spec(**{"${key}_x": 1}), "key=frame")
    assert filled["env"]["frame_x"] == 1
    with pytest.raises(SpecError, match=r"env: two keys are the same once filled"):
        applied(spec(**{"${key}_x": 1}, frame_x=2), "key=frame")


def test_a_dotted_path_sets_a_value_and_says_what_it_was() -> None:
    filled, notes = applied(spec(), "agent.algorithm.clip_eps_spec.start_val=0.1", "agent.net.hid_layers.1=16")
    assert filled["agent"]["algorithm"]["clip_eps_spec"] == {"start_val": 0.1}
    assert filled["agent"]["net"]["hid_layers"] == [64, 16]
    assert notes == [
        "agent.algorithm.clip_eps_spec.start_val: 0.2 -> 0.1 (-s agent.algorithm.clip_eps_spec.start_val=0.1)",
        "agent.net.hid_layers.1: 32 -> 16 (-s agent.net.hid_layers.1=16)",
    ]


def test_a_dotted_path_may_end_in_a_new_key() -> None:
    filled, notes = applied(spec(), "agent.algorithm.lam=0.9")
    assert filled["agent"]["algorithm"]["lam"] == 0.9
    assert notes == ["agent.algorithm.lam: unset -> 0.9 (-s agent.algorithm.lam=0.9)"]


def test_the_index_of_older_specs_is_dropped_from_a_path() -> None:
    filled, _ = applied(spec(), "agent.0.algorithm.gamma=0.5", "env.0.max_t=9")
    assert filled["agent"]["algorithm"]["gamma"] == 0.5
    assert filled["env"]["max_t"] == 9


def test_keys_of_a_search_space_that_hold_dots_can_be_set() -> None:
    filled, _ = applied(spec(), "search.agent.algorithm.gamma__uniform=[0.5, 0.6]")
    assert filled["search"]["agent.algorithm.gamma__uniform"] == [0.5, 0.6]


def test_env_and_max_frame_are_short_for_their_paths() -> None:
    filled, notes = applied(spec(), "env=Acrobot-v1", "max_frame=1e4")
    assert filled["env"] == {"name": "Acrobot-v1", "max_frame": 10000}
    assert notes == [
        'env.name: "CartPole-v1" -> "Acrobot-v1" (-s env=Acrobot-v1)',
        "env.max_frame: 200000 -> 10000 (-s max_frame=1e4)",
    ]


def test_a_bare_key_that_occurs_once_is_set_there_whatever_the_search_space_holds() -> None:
    filled, _ = applied(spec(), "gamma=0.95", "start_val=0.3")
    assert filled["agent"]["algorithm"] == {"name": "PPO", "gamma": 0.95, "clip_eps_spec": {"start_val": 0.3}}


def test_known_keys_of_env_and_meta_can_be_set_by_name_where_absent() -> None:
    filled, _ = applied(spec(), "random_seed=3", "normalize_obs=true")
    assert filled["meta"]["random_seed"] == 3
    assert filled["env"]["normalize_obs"] is True


def test_an_existing_key_is_preferred_to_an_absent_known_one() -> None:
    tree = spec()
    tree["agent"]["net"]["device"] = "cpu"
    filled, _ = applied(tree, "device=cuda")
    assert filled["agent"]["net"]["device"] == "cuda"
    assert "device" not in filled["env"]


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        (
            "lr=1",
            r"more than once; give the path: agent\.net\.actor_optim_spec\.lr, agent\.net\.critic_optim_spec\.lr\.",
        ),
        ("gama=1", "no placeholder and no key 'gama' in this spec. Did you mean 'gamma'.* Placeholders: none"),
        ("normalise_obs=1", "Did you mean 'normalize_obs'"),
        ("lam=1", "no placeholder and no key 'lam'"),
        ("session=1", "no placeholder and no key 'session'"),
        ("threads=1", "no placeholder and no key 'threads'"),
        ("agent.algoritm.gamma=1", r"agent: no key 'algoritm'\. Did you mean 'algorithm'"),
        ("agnt.algorithm.gamma=1", r"the spec: no key 'agnt'\. Did you mean 'agent'"),
        ("agent.net.hid_layers.2=1", "agent.net.hid_layers: no entry '2' in a list of 2"),
        ("agent.net.hid_layers.x.y=1", "agent.net.hid_layers: no entry 'x' in a list of 2"),
        ("env.max_frame.x=1", r"env.max_frame: no key 'x' in 200000 \(int\)"),
    ],
)
def test_a_setting_that_means_nothing_is_refused_with_what_there_is(setting: str, reason: str) -> None:
    with pytest.raises(SpecError, match=f"^-s {setting}: ") as error:
        applied(spec(), setting)
    assert error.match(reason)


def test_an_unknown_key_names_the_placeholders_there_are() -> None:
    with pytest.raises(SpecError, match=r"Did you mean 'max_frames'\? Placeholders: env_id, max_frames\."):
        applied(spec(name="${env_id}", max_frame="${max_frames}"), "max_framess=1")


def test_two_settings_for_one_value_are_refused() -> None:
    with pytest.raises(SpecError, match=r"env\.max_frame: set twice, by -s max_frame=1 and by -s env\.max_frame=2"):
        applied(spec(), "max_frame=1", "env.max_frame=2")
    with pytest.raises(SpecError, match=r"env\.name: set twice, by -s x=A and by -s env=B"):
        applied(spec(name="${x}"), "x=A", "env=B")


def test_a_path_can_replace_a_placeholder_instead_of_filling_it() -> None:
    filled, _ = applied(spec(name="${env}"), "env.name=CartPole-v1")
    refuse_leftovers(filled)
    assert filled["env"]["name"] == "CartPole-v1"


def test_the_given_spec_is_left_alone() -> None:
    tree = spec(name="${env}")
    applied(tree, "env=A", "gamma=0.5", "random_seed=1")
    assert tree == spec(name="${env}")


def test_leftover_placeholders_name_path_variable_and_remedy() -> None:
    with pytest.raises(SpecError) as error:
        refuse_leftovers(spec(name="${env}", label=["a ${b} ${c}"]))
    assert str(error.value).splitlines() == [
        "env.name: ${env} is not filled; give -s env=...",
        "env.label.0: a ${b} ${c} is not filled; give -s b=...",
        "env.label.0: a ${b} ${c} is not filled; give -s c=...",
    ]
