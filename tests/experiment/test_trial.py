"""Several sessions: one that fails takes no other with it, and nothing is reported that did not happen."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
from faulty_envs import seed_in
from loguru import logger
from run_helpers import contents, no_sinks, run_tiny, tables, tiny  # noqa: F401

from slm_lab.experiment.analysis import TRIAL_SCALARS
from slm_lab.experiment.control import RunResult
from slm_lab.experiment.paths import Paths
from slm_lab.experiment.trial import summary_rows
from slm_lab.spec.load import from_mapping

NUMBER = r"(nan|-?[\d.]+(e[+-]\d+)?)"
LINE = "trial_metrics: " + r" \| ".join(f"{key}:{NUMBER}" for key in TRIAL_SCALARS)


@dataclass
class Crashed:
    """A run of four sessions: the second raises, the third and the fourth leave without a word."""

    result: RunResult
    log: str
    spec: dict[str, object]


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Crashed:
    folder = tmp_path_factory.mktemp("crash")
    faults = {seed_in(1): "raise", seed_in(2): "exit 3", seed_in(3): "exit 0"}
    env = {"name": "faulty_envs:Faulty", "faults": faults, "at": 30, "max_frame": 180}
    spec = tiny(env=env, meta={"max_session": 4, "log_frequency": 60})
    result = run_tiny(folder / "data", spec, jobs=2)
    log = (result.predir / "log/tiny_t0.log").read_text()
    logger.remove()
    return Crashed(result, log, spec)


def test_the_other_session_finishes_and_the_trial_is_incomplete(crashed: Crashed) -> None:
    trial = crashed.result.trial
    assert trial is not None
    assert (trial.done, trial.planned, trial.complete, trial.stopped) == (1, 4, False, "")
    rows = tables(crashed.result.predir)["tiny_t0_s0_session_df_eval.csv"]
    assert rows["frame"].tolist() == [60, 120, 180]


def test_each_crash_is_reported_with_its_reason(crashed: Crashed) -> None:
    trial = crashed.result.trial
    assert trial is not None
    assert trial.failures == {
        1: "ValueError: broken at step 30",
        2: "its process ended with exit code 3",
        3: "its process ended with exit code 0",
    }
    assert "Session 1 crashed: ValueError: broken at step 30\nTraceback (most recent call last):" in crashed.log
    assert 'raise ValueError(f"broken at step {self.steps}")' in crashed.log
    assert "Session 2 crashed: its process ended with exit code 3" in crashed.log
    assert "Session 3 crashed: its process ended with exit code 0" in crashed.log
    assert "Session 0 done" in crashed.log


def test_the_metrics_line_says_how_many_sessions_it_is_of(crashed: Crashed) -> None:
    (line,) = re.findall(r"trial_metrics: .*", crashed.log)
    assert re.fullmatch(LINE + r" \| sessions:1/4", line)
    scalar = json.loads((crashed.result.predir / "tiny_t0_trial_metrics_scalar.json").read_text())
    assert list(scalar) == [*TRIAL_SCALARS, "sessions_done", "sessions_planned"]
    assert (scalar["sessions_done"], scalar["sessions_planned"]) == (1, 4)
    assert scalar["consistency"] is None  # one survivor of four agrees with nobody


def test_a_crashed_session_keeps_its_own_log(crashed: Crashed) -> None:
    for session in range(4):
        assert (crashed.result.predir / f"log/tiny_t0_s{session}.log").exists()


def test_the_summary_shows_who_failed(crashed: Crashed) -> None:
    spec = from_mapping(crashed.spec, "tiny").spec
    trial = crashed.result.trial
    assert trial is not None
    rows = summary_rows(spec, Paths(crashed.result.predir, "tiny"), trial.failures)
    assert [(row.session, row.status, row.frame) for row in rows] == [
        (0, "done", 180),
        (1, "failed", 60),
        (2, "failed", 60),
        (3, "failed", 60),
    ]


def test_a_half_written_row_does_not_spoil_the_summary(tmp_path: Path) -> None:
    paths = Paths(tmp_path, "tiny")
    paths.make_folders()
    header = "total_reward,total_reward_ma,loss,fps,frame,wall_t,t"
    paths.for_session(0).session_table("train").write_text(f"{header}\n1.0,1.0,0.5,9.0,60,2,20\n1.0,1")
    (row,) = summary_rows(from_mapping(tiny(), "tiny").spec, paths, {})
    assert (row.frame, row.status, row.best) == (60, "stopped", 1)


def test_one_session_that_fails_in_this_process_is_reported_the_same_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tiny(env={"name": "faulty_envs:Faulty", "faults": {"any": "raise"}, "at": 30})
    result = run_tiny(tmp_path, spec)
    assert result.trial is not None
    assert (result.trial.done, result.trial.failures) == (0, {0: "ValueError: broken at step 30"})
    printed = capsys.readouterr()
    assert "Session 0 crashed: ValueError: broken at step 30\nTraceback" in printed.err
    assert "trial_metrics" not in printed.err  # there is nothing to give metrics of
    assert "Trial 0 incomplete" in printed.err
    assert not list(tmp_path.rglob("*trial_metrics*"))


def test_a_session_that_failed_once_is_continued_and_the_finished_ones_are_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slm_lab.experiment.metric_files.trial_graphs", lambda *_: [])
    flag = tmp_path / "fail"
    flag.touch()
    env = {"name": "faulty_envs:Faulty", "faults": {seed_in(1): "raise"}, "at": 30, "max_frame": 180, "once": str(flag)}
    spec = tiny(env=env, meta={"max_session": 2, "log_frequency": 60})
    first = run_tiny(tmp_path / "data", spec, jobs=2)
    assert first.trial is not None
    assert first.trial.failures == {1: "ValueError: broken at step 30"}
    before = contents(first.predir)
    second = run_tiny(tmp_path / "data", spec, "train@latest", jobs=2)
    assert second.trial is not None
    assert second.trial.complete
    after = contents(first.predir)
    mine = [name for name in before if "_s0_" in name]
    assert mine
    assert all(after[name] == before[name] for name in mine)
    healthy = tiny(env=env | {"faults": {}}, meta=spec["meta"])
    straight = run_tiny(tmp_path / "straight", healthy, jobs=2)
    ours, theirs = tables(first.predir), tables(straight.predir)
    for name in theirs:
        pd.testing.assert_frame_equal(ours[name], theirs[name], check_exact=True)
