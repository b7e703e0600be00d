"""Mappings as typed models, and what an error says."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from pydantic import ValidationError

from slm_lab.lib.errors import SpecError
from slm_lab.spec.parse import Float, Int, Model, parse
from slm_lab.spec.schema import EnvSpec, MetaSpec, OptimSpec, Schedule, Spec


class Part(Model):
    """A model as components write them."""

    inert: ClassVar = {"old_key": "nothing reads it"}

    count: Int
    rate: Float = 0.5
    curve: Schedule | None = None


def parsed(data: Any) -> tuple[Part, list[str]]:
    notes: list[str] = []
    return parse(Part, data, "agent.part", notes), notes


def env_of(**keys: Any) -> EnvSpec:
    return parse(EnvSpec, keys, "env", [])


def message(data: Any) -> list[str]:
    with pytest.raises(SpecError) as error:
        parsed(data)
    return str(error.value).splitlines()


@pytest.mark.parametrize("count", [10_000_000, 1e7, "1e7", "10000000"])
def test_whole_numbers_may_be_written_as_floats_or_text(count: Any) -> None:
    assert parsed({"count": count})[0].count == 10_000_000


def test_inert_keys_are_noted_and_dropped() -> None:
    part, notes = parsed({"count": 1, "old_key": 3})
    assert part == Part(count=1)
    assert notes == ["agent.part.old_key: nothing reads it; ignored."]


def test_a_missing_key_and_an_unknown_key_are_told_together() -> None:
    lines = message({"cuont": 1})
    assert "agent.part.count: missing key (required)." in lines
    assert "agent.part.cuont: unknown key. Did you mean 'count'? Known: count, curve, rate." in lines


def test_an_unknown_key_of_a_nested_model_names_that_model_s_keys() -> None:
    assert message({"count": 1, "curve": {"start_val": 1, "end_vall": 0}}) == [
        "agent.part.curve.end_vall: unknown key. Did you mean 'end_val'? "
        "Known: end_step, end_val, name, start_step, start_val."
    ]


@pytest.mark.parametrize(
    ("data", "start"),
    [
        ({"count": True}, "agent.part.count: got True (bool); allowed: a number, not a boolean."),
        ({"count": 1.5}, "agent.part.count: got 1.5 (float); allowed: "),
        ({"count": "many"}, "agent.part.count: got 'many' (str); allowed: "),
        (
            {"count": 1, "curve": {"name": "cosine", "start_val": 1}},
            "agent.part.curve.name: got 'cosine' (str); allowed: ",
        ),
    ],
)
def test_a_wrong_value_names_its_path_and_what_came(data: Any, start: str) -> None:
    (line,) = message(data)
    assert line.startswith(start)


def test_what_is_no_mapping_is_refused() -> None:
    assert message([1]) == ["agent.part: expected a mapping, got [1] (list)."]


def test_models_are_frozen() -> None:
    part = parsed({"count": 1})[0]
    with pytest.raises(ValidationError):
        part.__setattr__("count", 2)


def test_every_field_of_the_schema_has_a_description() -> None:
    for model in (Schedule, OptimSpec, EnvSpec, MetaSpec, Spec):
        assert [name for name, field in model.model_fields.items() if not field.description] == []


def test_clipping_follows_normalisation_unless_set() -> None:
    env = env_of(name="E", max_frame=1)
    assert (env.obs_clip, env.reward_bounds) == (None, None)
    both = env_of(name="E", max_frame=1, normalize_obs=True, normalize_reward=True)
    assert (both.obs_clip, both.reward_bounds) == (10.0, (-10.0, 10.0))
    own = env_of(name="E", max_frame=1, normalize_reward=True, clip_obs=5, clip_reward=(-1, 2))
    assert (own.obs_clip, own.reward_bounds) == (5.0, (-1.0, 2.0))
    with pytest.raises(SpecError, match=r"env\.clip_reward: .*low < high"):
        env_of(name="E", max_frame=1, clip_reward=[2, 1])


def test_other_keys_of_env_and_optimiser_are_constructor_arguments() -> None:
    assert env_of(name="E", max_frame=1, continuous=True).kwargs == {"continuous": True}
    assert parse(OptimSpec, {"name": "Adam", "lr": 3e-4, "eps": 1e-5}, "optim", []).kwargs == {"eps": 1e-5}
