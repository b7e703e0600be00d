"""The same spec and seed give the same numbers, however and wherever the sessions run."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from run_helpers import (  # noqa: F401
    CASES,
    assert_equal,
    assert_same_results,
    no_sinks,
    read_table,
    run_tiny,
    session,
    state_of,
    tables,
    takes,
    tiny,
    tiny_spec,
)

from slm_lab.agent.algorithm import ALGORITHMS
from slm_lab.experiment import trial as trials
from slm_lab.spec.schema import Spec

THREE = {"max_session": 3, "log_frequency": 60}


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three sessions, two at a time."""
    return run_tiny(tmp_path_factory.mktemp("three"), tiny(meta=THREE), jobs=2).predir


def columns_of(folder: Path, name: str) -> list[list[float]]:
    """One column of each session's table."""
    return [table[name].tolist() for file, table in tables(folder).items() if file.endswith("train.csv")]


def test_numbers_do_not_depend_on_how_many_sessions_run_at_once_nor_on_their_order(
    three: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "deque", lambda todo: deque(reversed(todo)))
    assert_same_results(run_tiny(tmp_path, tiny(meta=THREE), jobs=1).predir, three)


def test_a_session_alone_gives_the_numbers_it_gives_among_others(
    three: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slm_lab.experiment.session.session_graphs", lambda *_: None)
    for index in (0, 2):
        one = session(tiny_spec(), (3, 0, index), tmp_path / str(index))
        one.run()
        assert one.paths is not None
        expected = read_table(three / f"info/tiny_t0_s{index}_session_df_train.csv")
        pd.testing.assert_frame_equal(read_table(one.paths.session_table("train")), expected, check_exact=True)


def test_sessions_differ_from_one_another(three: Path) -> None:
    losses = columns_of(three, "loss")
    assert len(losses) == 3
    assert len(set(map(tuple, losses))) == 3


def test_another_seed_gives_other_numbers(three: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slm_lab.experiment.session.session_graphs", lambda *_: None)
    monkeypatch.setattr("slm_lab.experiment.metric_files.trial_graphs", lambda *_: [])
    other = run_tiny(tmp_path, tiny(meta={"random_seed": 4})).predir
    assert columns_of(other, "loss")[0] not in columns_of(three, "loss")


def env_for(algorithm: str) -> str:
    return "Pendulum-v1" if takes(algorithm, "Pendulum-v1") else "CartPole-v1"


def assert_repeats(spec: Spec) -> None:
    """Two sessions come to the same state, whatever global generators say."""
    ends = list[Any]()
    for seed in (1, 2):
        torch.manual_seed(seed)
        np.random.seed(seed)
        one = session(spec)
        one.run()
        assert one.agent.memory is None or one.clock.opt_step > 0
        ends.append(state_of(one))
    assert_equal(ends[0], ends[1])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_repeats_itself_whatever_global_generators_say(algorithm: str) -> None:
    assert_repeats(tiny_spec(algorithm, env_for(algorithm), env={"max_frame": 120}))


@pytest.mark.parametrize("case", CASES)
def test_nets_with_a_memory_images_entries_and_masks_repeat_themselves_too(case: str) -> None:
    algorithm, env, sections = CASES[case]
    assert_repeats(tiny_spec(algorithm, env, **{**sections, "env": {**sections.get("env", {}), "max_frame": 120}}))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_differs_by_session(algorithm: str) -> None:
    observations = list[Any]()
    for index in (0, 1):
        one = session(tiny_spec(algorithm, env_for(algorithm), env={"max_frame": 60}), (3, 0, index))
        one.run()
        observations.append(one.env.obs)
    assert not np.allclose(observations[0], observations[1])
