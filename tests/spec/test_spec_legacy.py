"""Older forms of specs."""

from __future__ import annotations

from typing import Any

import pytest

from slm_lab.lib.errors import SpecError
from slm_lab.spec.legacy import modernise


def modern(**tree: Any) -> tuple[dict[str, Any], list[str]]:
    notes: list[str] = []
    modernise(tree, notes)
    return tree, notes


def test_lists_of_one_are_unwrapped() -> None:
    space = {"agent": [{"net": {"x__choice": [1]}}], "agent.0.algorithm.gamma__uniform": [0, 1]}
    tree, notes = modern(agent=[{"name": "A"}], env=[{"name": "E"}], search=space)
    assert tree == {
        "agent": {"name": "A"},
        "env": {"name": "E"},
        "search": {"agent": {"net": {"x__choice": [1]}}, "agent.algorithm.gamma__uniform": [0, 1]},
    }
    assert notes == []


@pytest.mark.parametrize("items", [[], [{}, {}]])
def test_longer_lists_are_refused(items: list[Any]) -> None:
    reason = f"multi-agent not supported: expected one mapping, got a list of {len(items)}"
    for tree, path in (
        ({"agent": items}, "agent"),
        ({"env": items}, "env"),
        ({"search": {"agent": items}}, "search.agent"),
    ):
        with pytest.raises(SpecError, match=f"^{path}: {reason}"):
            modern(**tree)


def test_spec_params_are_refused_with_what_to_use_instead() -> None:
    with pytest.raises(SpecError, match=r"spec_params: a key of SLM-Lab 4; .*-s"):
        modern(spec_params={"env": ["A", "B"]})


def test_inert_keys_are_removed_with_a_note_wherever_they_are() -> None:
    tree, notes = modern(
        body={"num": 1}, env={"image_downsize": [84, 84], "name": "E"}, meta={"num_gpus": 1, "prepath": "x"}
    )
    assert tree == {"env": {"name": "E"}, "meta": {}}
    assert notes == [
        "body: a key of SLM-Lab 4; ignored.",
        "env.image_downsize: Atari frames are always 84x84; ignored.",
        "meta.num_gpus: nothing reads it; ignored.",
        "meta.prepath: set at run time; ignored.",
    ]


def test_normalize_state_is_normalize_obs() -> None:
    tree, notes = modern(env={"normalize_state": True})
    assert tree["env"] == {"normalize_obs": True}
    assert notes == ["env.normalize_state: read as normalize_obs."]
    assert modern(env={"normalize_state": True, "normalize_obs": True})[0]["env"] == {"normalize_obs": True}
    with pytest.raises(SpecError, match=r"env\.normalize_state: the older name of normalize_obs"):
        modern(env={"normalize_state": True, "normalize_obs": False})


def test_frame_op_is_refused_with_what_there_is_instead() -> None:
    with pytest.raises(SpecError, match=r"env\.frame_op: got 'concat' .*not supported.*Atari.*seq_len"):
        modern(env={"frame_op": "concat", "frame_op_len": 4})


def test_frame_op_that_is_null_has_no_effect() -> None:
    tree, notes = modern(env={"frame_op": None, "frame_op_len": None})
    assert tree["env"] == {}
    assert len(notes) == 2


def test_reward_scale_sign_stays() -> None:
    assert modern(env={"reward_scale": "sign"})[0]["env"] == {"reward_scale": "sign"}


def test_a_null_is_dropped_where_the_default_is_something_else() -> None:
    tree, _ = modern(
        meta={"log_frequency": None, "distributed": None, "max_trial": None, "max_session": None},
        env={"num_envs": None, "max_t": None, "max_frame": None, "own": None},
        agent={"memory": None, "critic_net": None},
        search=None,
    )
    assert tree == {
        "meta": {"max_trial": None, "max_session": None},
        "env": {"max_t": None, "max_frame": None, "own": None},
        "agent": {"critic_net": None},
    }


def test_what_is_already_modern_stays_as_it_is() -> None:
    once, _ = modern(agent=[{"name": "A"}], env={"normalize_state": True}, body=1)
    again, notes = modern(**once)
    assert again == once
    assert notes == []


def test_sections_that_are_no_mappings_are_left_for_the_schema() -> None:
    assert modern(agent=3, env="x", meta=None, search="y")[0] == {"agent": 3, "env": "x", "meta": None, "search": "y"}
