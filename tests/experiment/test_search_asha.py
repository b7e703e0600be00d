"""ASHA of a search: what its keys must be, and that it goes on with what earlier sittings came to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from ray.tune.schedulers import TrialScheduler
from search_helpers import drawn, searched_spec

from slm_lab.experiment.paths import Paths
from slm_lab.experiment.sampler import METRIC, TIME, TRIAL
from slm_lab.experiment.search import Asha, informed, with_scheduler
from slm_lab.experiment.search_record import Drawn
from slm_lab.lib.errors import SpecError

ASHA = Asha(grace_period=100, reduction_factor=2)  # rungs at 100, 200, 400 and 800 frames
FRAMES = 1000
GO, STOP = TrialScheduler.CONTINUE, TrialScheduler.STOP


@dataclass(frozen=True)
class Now:
    """A trial of this sitting, as Ray names it."""

    trial_id: str
    config: dict[str, Any]


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path / "x", "x")
    paths.make_folders()
    return paths


def write_rows(paths: Paths, trial: int, rows: dict[int, float | str]) -> None:
    table = replace(paths, trial=trial).for_session(0).session_table("train")
    lines = [f"{frame},{score}" for frame, score in rows.items()]
    table.write_text("\n".join([f"{TIME},{METRIC}", *lines]) + "\n")


def decisions(paths: Paths, past: list[Drawn], number: int, rows: dict[int, float]) -> list[str]:
    """What ASHA says to the rows of a trial of this sitting."""
    scheduler, nobody = informed(ASHA, FRAMES, past, paths), None
    now: Any = Now("now", {TRIAL: number})
    scheduler.on_trial_add(nobody, now)
    return [scheduler.on_trial_result(nobody, now, {TIME: frame, METRIC: score}) for frame, score in rows.items()]


def test_the_first_trial_of_a_search_is_not_stopped(paths: Paths) -> None:
    assert decisions(paths, [], 0, {100: -50.0, 200: -60.0}) == [GO, GO]


def test_rungs_of_past_trials_decide_about_new_ones(paths: Paths) -> None:
    past = [drawn(0, 40.0), drawn(1, 10.0, "stopped", frame=100)]
    write_rows(paths, 0, {100: 20.0, 200: 30.0, 1000: 40.0})
    write_rows(paths, 1, {100: 10.0})
    # the best half goes on: at frame 100 those of 15 and more, at 200 of 30
    assert decisions(paths, past, 2, {100: 14.9}) == [STOP]
    assert decisions(paths, past, 2, {100: 15.0, 200: 29.9}) == [GO, STOP]
    assert decisions(paths, past, 2, {100: 15.0, 200: 30.0, 300: 1.0}) == [GO, GO, GO]  # no rung at 300


def test_failed_trials_and_scores_that_are_nan_do_not_count(paths: Paths) -> None:
    past = [drawn(0, 90.0, "failed"), drawn(1), drawn(2, 10.0), drawn(3, status="running")]
    write_rows(paths, 0, {100: 90.0})
    write_rows(paths, 1, {100: "", 200: ""})
    write_rows(paths, 2, {100: 10.0})  # and trial 3 has no table yet
    assert decisions(paths, past, 4, {100: 9.9}) == [STOP]
    assert decisions(paths, past, 4, {100: 10.0}) == [GO]


def test_a_trial_that_goes_on_is_not_judged_again_where_it_was_let_pass(paths: Paths) -> None:
    past = [drawn(0, 40.0), drawn(1, 12.0, "running", frame=100)]
    write_rows(paths, 0, {100: 20.0, 200: 30.0})
    write_rows(paths, 1, {100: 12.0})  # came to its rung before trial 0 did
    assert decisions(paths, past, 1, {100: 12.0, 200: 31.0}) == [GO, GO]
    assert decisions(paths, past, 1, {100: 12.0, 200: 29.0}) == [GO, STOP]
    assert decisions(paths, past, 2, {100: 12.0}) == [STOP]


def test_a_trial_that_goes_on_counts_once(paths: Paths) -> None:
    past = [drawn(0, 40.0), drawn(1, 10.0, "running", frame=100)]
    write_rows(paths, 0, {100: 20.0})
    write_rows(paths, 1, {100: 10.0})
    scheduler, nobody = informed(ASHA, FRAMES, past, paths), None
    goes_on: Any = Now("again", {TRIAL: 1})
    new: Any = Now("new", {TRIAL: 2})
    for trial in (goes_on, new):
        scheduler.on_trial_add(nobody, trial)
    scheduler.on_trial_result(nobody, goes_on, {TIME: 100, METRIC: 10.0})
    # the middle of 20 and 10; were 10 there twice, 14 would be enough
    assert scheduler.on_trial_result(nobody, new, {TIME: 100, METRIC: 14.0}) == STOP


def test_the_last_report_of_a_trial_is_within_its_frames(paths: Paths) -> None:
    assert decisions(paths, [], 0, {FRAMES: 1.0}) == [GO]


# keys


def test_without_a_scheduler_trials_keep_their_sessions() -> None:
    notes = list[str]()
    spec, asha = with_scheduler(searched_spec(meta={"max_session": 4}), notes)
    assert (spec.meta.max_session, asha, notes) == (4, None, [])


def test_with_a_scheduler_a_trial_is_one_session_and_a_note_says_so() -> None:
    notes = list[str]()
    scheduler = {"grace_period": 1e2, "reduction_factor": 4}
    spec, asha = with_scheduler(searched_spec(meta={"max_session": 4, "search_scheduler": scheduler}), notes)
    assert spec.meta.max_session == 1
    assert asha == Asha(grace_period=100, reduction_factor=4.0, brackets=1)
    assert notes == ["meta.max_session: 1 instead of 4, for the scheduler compares sessions."]


@pytest.mark.parametrize(
    ("scheduler", "said"),
    [
        ({"grace_period": 300}, "grace_period: 300 frames leave nothing to stop early in 300; allowed: less"),
        ({"grace_period": 0}, r"meta\.search_scheduler\.grace_period"),
        ({"grace_period": 60, "reduction_factor": 1}, r"meta\.search_scheduler\.reduction_factor"),
        ({"grace_periods": 60}, "grace_periods"),
        ({"reduction_factor": 3}, r"meta\.search_scheduler\.grace_period"),
    ],
)
def test_keys_of_the_scheduler_are_checked(scheduler: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        with_scheduler(searched_spec(meta={"search_scheduler": scheduler}), [])
