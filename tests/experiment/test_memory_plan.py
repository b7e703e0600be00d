"""What an agent's memory will take is said before a run starts, and refused where it is not there."""

from __future__ import annotations

from typing import Any

import pytest
from run_helpers import tiny_spec

from slm_lab.experiment import check
from slm_lab.experiment.check import preflight, readable
from slm_lab.lib.errors import SpecError
from slm_lab.spec.load import from_mapping
from slm_lab.spec.schema import Spec

GB = 10**9
ROW = 4 * 4 + 8 + 4 + 1 + 1 + 8  # CartPole: observation, action, reward, two flags, number of the last observation


def replaying(max_size: int, num_envs: int = 4) -> Spec:
    """DQN on CartPole."""
    spec = {
        "name": "x",
        "agent": {
            "name": "DQN",
            "algorithm": {
                "name": "DQN",
                "explore_var_spec": {"name": "no_decay", "start_val": 0.3},
                "gamma": 0.99,
                "training_frequency": 4,
                "training_start_step": 32,
            },
            "memory": {"name": "Replay", "batch_size": 32, "max_size": max_size},
            "net": {
                "type": "MLPNet",
                "hid_layers": [8],
                "hid_layers_activation": "relu",
                "optim_spec": {"name": "Adam", "lr": 1e-3},
                "update_type": "polyak",
                "polyak_coef": 0.1,
            },
        },
        "env": {"name": "CartPole-v1", "num_envs": num_envs, "max_frame": 10_000},
        "meta": {"max_session": 4, "max_trial": 1, "log_frequency": 500, "eval_frequency": 500},
    }
    return from_mapping(spec, "x").spec


def said(spec: Spec, **options: Any) -> list[str]:
    """What is said about the memory."""
    facts = list[str]()
    preflight(spec, [], facts, **options)
    return [fact for fact in facts if fact.startswith("agent.memory:")]


def test_what_the_memory_will_take_is_said_for_a_session_and_for_all_at_once() -> None:
    assert 1_000_000 * ROW == 38_000_000
    expected = "agent.memory: Replay keeps 1,000,000 transitions: 38.0 MB a session"
    assert said(replaying(1_000_000), free=GB) == [f"{expected}."]
    assert said(replaying(1_000_000), at_once=4, free=GB) == [f"{expected}, 152.0 MB for 4 at once."]


def test_it_is_counted_for_all_envs_of_the_spec() -> None:
    # 300 rows of 1,000 envs and the open one, though 300,999 are asked for
    expected = f"{301 * 1000 * ROW / 1e6:.1f} MB"
    assert expected == "11.4 MB"
    (note,) = said(replaying(300_999, num_envs=1000), free=GB)
    assert note == f"agent.memory: Replay keeps 300,999 transitions: {expected} a session."


def test_a_small_memory_is_not_worth_a_word() -> None:
    assert said(replaying(1_000_000 // ROW - 100), free=GB) == []
    assert said(replaying(1_000_000 // ROW + 100), free=GB) != []
    assert said(tiny_spec("PPO"), free=0) == []
    assert said(tiny_spec("Random"), free=0) == []


def test_a_memory_that_is_not_there_is_refused_with_the_size_that_fits_before_anything_is_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(check, "make_agent", lambda *_: pytest.fail("built"))
    # 0.9 * 8 GB / (4 sessions * 38 bytes) = 47,368,421
    with pytest.raises(SpecError) as error:
        preflight(replaying(2_000_000_000), [], [], at_once=4, free=8 * GB)
    assert str(error.value) == (
        "agent.memory: Replay keeps 2,000,000,000 transitions: 76.0 GB a session, 304.0 GB for 4 at once;"
        " 8.0 GB are free. agent.memory.max_size: 47000000 fits."
    )


@pytest.mark.parametrize("free", [10_000, 123_456, 7 * 10**6])
@pytest.mark.parametrize("at_once", [1, 3])
def test_the_size_that_fits_runs_in_nine_tenths_of_what_is_free(free: int, at_once: int) -> None:
    with pytest.raises(SpecError, match=r"max_size: \d+ fits") as error:
        preflight(replaying(10**9, num_envs=1), [], [], at_once, free)
    size = int(str(error.value).split("max_size: ")[1].split(" ")[0])
    assert len(str(size).rstrip("0")) <= 2
    assert 0.8 * free < (size + 1) * ROW * at_once <= 0.9 * free
    preflight(replaying(size, num_envs=1), [], [], at_once, free)


def test_all_of_what_is_free_may_be_used_and_not_a_byte_more() -> None:
    needed = 2 * (1_000_000 + 4) * ROW
    assert said(replaying(1_000_000), at_once=2, free=needed)
    with pytest.raises(SpecError, match=r"76\.0 MB for 2 at once; 76\.0 MB are free\. .*max_size: 890000 fits\."):
        preflight(replaying(1_000_000), [], [], at_once=2, free=needed - 1)


def test_where_no_size_fits_none_is_named() -> None:
    with pytest.raises(SpecError, match=r"are free\.$"):
        preflight(replaying(1_000_000), [], [], free=10)


def test_the_machine_is_asked_where_nothing_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    class Little:
        available = 1_000_000

    monkeypatch.setattr("psutil.virtual_memory", Little)
    with pytest.raises(SpecError, match=r"1\.0 MB are free"):
        preflight(replaying(1_000_000), [], [])


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0.0 B"),
        (999, "999.0 B"),
        (1000, "1.0 kB"),
        (84_000_000, "84.0 MB"),
        (2.5e9, "2.5 GB"),
        (1e12, "1.0 TB"),
        (5e15, "5000.0 TB"),
    ],
)
def test_sizes_are_readable(count: float, text: str) -> None:
    assert readable(count) == text
