"""The best specs of a search trained anew: on other seeds, with all sessions, once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from run_helpers import NEVER, contents, no_sinks, tables  # noqa: F401
from search_helpers import GAMMA, drawn, searched_spec

from slm_lab.experiment.analysis import trial_metrics
from slm_lab.experiment.control import RunOptions, RunResult, read_saved
from slm_lab.experiment.finished import read_result
from slm_lab.experiment.paths import Paths
from slm_lab.experiment.search_end import best_specs
from slm_lab.experiment.search_record import SearchRecord
from slm_lab.experiment.trial import TrialResult
from slm_lab.experiment.validate import COLUMNS, validate


def folder_of(tmp_path: Path, sessions: int) -> tuple[Paths, SearchRecord]:
    """A search of three trials, of which one failed."""
    paths = Paths(tmp_path / "tiny_2026", "tiny")
    paths.make_folders()
    record = SearchRecord.at(paths)
    for trial in (drawn(0, 10.0), drawn(1, 20.0, gamma=0.9375, layers=1), drawn(2, 90.0, "failed")):
        record.put(trial)
    scheduler = {"grace_period": 60}  # with which each trial was one session
    spec = searched_spec(meta={"max_session": sessions, "search_scheduler": scheduler})
    best_specs(spec, paths, record.ranked(), 3)
    return paths, record


def options(count: int) -> RunOptions:
    return RunOptions(checkpoint_every=NEVER, validate=count)


def no_logging(file: Path | None, console: Any) -> None:
    """Log lines go nowhere."""


def test_the_best_specs_are_trained_with_all_sessions_on_other_seeds_and_not_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths, record = folder_of(tmp_path, sessions=2)
    assert validate(paths, record, options(1), no_logging) == ""
    table = pd.read_csv(paths.validation_table)
    assert list(table) == list(COLUMNS)
    row = table.iloc[0]
    folder = paths.validation / row["folder"]
    assert (len(table), row["rank"], row["trial"], row["search_score"], row["sessions"]) == (1, 1, 1, 20.0, 2)
    spec = read_saved(Paths(folder, "tiny_top1").trial_spec)
    assert (spec.meta.random_seed, spec.meta.max_session, spec.meta.record["mode"]) == (3 + 1, 2, "train")
    assert spec.agent.algorithm["gamma"] == record.trials[1].values[GAMMA]
    scores = [found["total_reward"].mean() for name, found in tables(folder).items() if name.endswith("eval.csv")]
    assert row["validated_score"] == pytest.approx(sum(scores) / 2)
    assert row["low"] <= row["validated_score"] <= row["high"]
    assert read_result(folder).done == 2  # unlike the search, this is a result
    assert "rank 1, trial 1: 20.00 in the search, validated" in capsys.readouterr().out
    before = contents(folder)
    assert validate(paths, record, options(1), no_logging) == ""
    assert contents(folder) == before
    assert len(list(paths.validation.iterdir())) == 1


def test_only_trials_with_a_score_are_trained_and_the_table_grows_with_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slm_lab.experiment.session.session_graphs", lambda *_: None)
    monkeypatch.setattr("slm_lab.experiment.metric_files.trial_graphs", lambda *_: [])
    paths, record = folder_of(tmp_path, sessions=1)
    assert validate(paths, record, options(5), no_logging) == ""
    assert pd.read_csv(paths.validation_table)["trial"].tolist() == [1, 0]


def test_a_validation_that_is_stopped_says_by_what_and_starts_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, record = folder_of(tmp_path, sessions=1)
    started = list[str]()
    stopped = TrialResult(trial_metrics([], 1), 0, 1, {}, "SIGTERM")

    def start(loaded: Any, *rest: Any) -> RunResult:
        started.append(loaded.spec.name)
        return RunResult(tmp_path, stopped)

    monkeypatch.setattr("slm_lab.experiment.validate.start", start)
    assert validate(paths, record, options(2), no_logging) == "SIGTERM"
    stopped = replace(stopped, stopped="", failures={0: "broken"})
    assert validate(paths, record, options(2), no_logging) == "failed"
    assert started == ["tiny_top1"] * 2
    assert not paths.validation_table.exists()
