"""Errors say what came, what is allowed and what is near."""

from __future__ import annotations

import pytest

from slm_lab.lib.errors import LabError, RunError, SpecError, hint, lookup


def test_a_hint_names_the_nearest_in_any_case_and_nothing_when_none_is_near() -> None:
    assert hint("ppo", ["PPO", "Reinforce"]) == " Did you mean 'PPO'?"
    assert hint("gama", ["lam", "gamma"]) == " Did you mean 'gamma'?"
    assert hint("xyz", ["PPO", "Reinforce"]) == ""
    assert hint("xyz", []) == ""


def test_lookup_gives_the_entry_of_a_known_name() -> None:
    assert lookup({"a": 1, "b": 2}, "b", "here", "letter") == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("PP", "here: unknown algorithm 'PP'. Did you mean 'PPO'? Known: A2C, PPO."),
        ("zzz", "here: unknown algorithm 'zzz'. Known: A2C, PPO."),
        (None, "here: unknown algorithm None. Known: A2C, PPO."),
        (["PPO"], "here: unknown algorithm ['PPO']. Did you mean 'PPO'? Known: A2C, PPO."),
    ],
)
def test_lookup_says_where_what_and_what_else(name: object, message: str) -> None:
    with pytest.raises(SpecError) as error:
        lookup({"PPO": 1, "A2C": 2}, name, "here", "algorithm")
    assert str(error.value) == message


def test_a_bad_spec_is_bad_input_and_a_failed_run_is_not() -> None:
    assert issubclass(SpecError, LabError)
    assert not issubclass(RunError, LabError)
