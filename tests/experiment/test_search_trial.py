"""A trial of a search without Ray: what it reports, how it goes on, when it fails."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from faulty_envs import seed_in
from run_helpers import assert_same_results, contents, no_sinks  # noqa: F401
from search_helpers import GAMMA, LAYERS, job, searched_spec

from slm_lab.experiment.control import read_saved
from slm_lab.experiment.search_trial import Reporter, run_drawn
from slm_lab.lib.errors import RunError
from slm_lab.lib.io import read_json

DRAW = {GAMMA: 0.9375, LAYERS: 1}
OTHER = {GAMMA: 0.96875, LAYERS: 0}
Reports = list[tuple[int, float]]


@pytest.fixture(autouse=True)
def _no_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slm_lab.experiment.session.session_graphs", lambda *_: None)
    monkeypatch.setattr("slm_lab.experiment.metric_files.trial_graphs", lambda *_: [])


def told(reports: Reports) -> Any:
    return lambda frame, score: reports.append((frame, score))


def cut_off_at(last: int) -> Any:
    """Ends the trial's thread as Ray does."""

    def report(frame: int, score: float) -> None:
        if frame >= last:
            raise SystemExit

    return report


# what is reported


def test_sessions_are_reported_together_by_mean_score_and_mean_frame() -> None:
    reports: Reports = []
    reporter = Reporter(told(reports), planned=2, frames=300)
    reporter.row(0, {"frame": 60, "total_reward_ma": 10.0})
    reporter.row(1, {"frame": 60, "total_reward_ma": 20.0})
    reporter.row(0, {"frame": 120, "total_reward_ma": 30.0})
    assert reports == [(30, 10.0), (60, 15.0), (90, 25.0)]


def test_a_score_that_is_not_finite_is_not_told() -> None:
    reports: Reports = []
    reporter = Reporter(told(reports), planned=2, frames=300)
    reporter.row(0, {"frame": 60, "total_reward_ma": math.nan})
    reporter.row(1, {"frame": 60, "total_reward_ma": -5.0})
    reporter.row(0, {"frame": 120, "total_reward_ma": math.inf})
    assert reports == [(60, -5.0), (90, -5.0)]


def test_rows_of_the_end_are_not_told() -> None:
    reports: Reports = []
    reporter = Reporter(told(reports), planned=1, frames=100)
    for frame in (99, 100, 102):
        reporter.row(0, {"frame": frame, "total_reward_ma": 1.0})
    assert reports == [(99, 1.0)]


def test_a_trial_reports_its_rows_and_last_its_score(tmp_path: Path) -> None:
    one, reports = job(tmp_path / "x", searched_spec()), Reports()
    run_drawn(one, 4, DRAW, told(reports))
    assert [frame for frame, _ in reports] == [60, 120, 180, 240, 300]
    paths = replace(one.paths, trial=4)
    assert reports[-1][1] == read_json(paths.trial_scalar)["total_reward_ma"]
    saved = read_saved(paths.trial_spec)
    assert (saved.agent.algorithm["gamma"], saved.agent.net["hid_layers"]) == (0.9375, [4, 4])
    assert (saved.search, saved.meta.trial, saved.meta.record["mode"]) == ({}, 4, "search")
    assert "Trial 4 done" in paths.trial_log.read_text()


def test_a_trial_has_summed_up_before_it_says_that_it_is_at_its_end(tmp_path: Path) -> None:
    spec = searched_spec(env={"max_frame": 301})  # three envs: the last step ends at 303
    one, late = job(tmp_path / "x", spec), list[bool]()

    def report(frame: int, score: float) -> None:
        if frame >= 301:
            late.append(replace(one.paths, trial=0).trial_scalar.exists())

    run_drawn(one, 0, DRAW, report)
    assert late == [True]


# going on


def test_a_trial_that_was_cut_off_goes_on_with_the_same_numbers(tmp_path: Path) -> None:
    whole, parts = (job(tmp_path / name, searched_spec(), every=0) for name in ("whole", "parts"))
    first, second = Reports(), Reports()
    run_drawn(whole, 0, DRAW, told(first))
    with pytest.raises(SystemExit):
        run_drawn(parts, 0, DRAW, cut_off_at(180))
    assert replace(parts.paths, trial=0).for_session(0).newest_frame() == 120
    run_drawn(parts, 0, DRAW, told(second))
    assert second == first[2:]  # the rows of the first sitting are in its table
    assert "continues from frame 120" in replace(parts.paths, trial=0).trial_log.read_text()
    assert_same_results(whole.paths.predir, parts.paths.predir)


def test_a_trial_that_has_summed_up_reports_its_score_again_and_trains_no_more(tmp_path: Path) -> None:
    one, first, second = job(tmp_path / "x", searched_spec()), Reports(), Reports()
    run_drawn(one, 0, DRAW, told(first))
    models = contents(one.paths.models)
    run_drawn(one, 0, DRAW, told(second))
    assert second == first[-1:]
    assert contents(one.paths.models) == models


def test_a_trial_whose_draw_has_changed_starts_anew_and_leaves_others_alone(tmp_path: Path) -> None:
    one, fresh = (job(tmp_path / name, searched_spec(), every=0) for name in ("x", "fresh"))
    run_drawn(one, 10, OTHER, told([]))
    tenth = {name: found for name, found in contents(one.paths.predir).items() if "_t10" in name}
    assert tenth
    with pytest.raises(SystemExit):
        run_drawn(one, 1, DRAW, cut_off_at(180))
    reports, expected = Reports(), Reports()
    run_drawn(one, 1, OTHER, told(reports))
    run_drawn(fresh, 1, OTHER, told(expected))
    assert reports == expected
    assert {name: found for name, found in contents(one.paths.predir).items() if "_t10" in name} == tenth
    log = replace(one.paths, trial=1).trial_log.read_text()
    assert "Trial 1 done" in log
    assert "continues" not in log


def test_trials_differ_in_their_seeds(tmp_path: Path) -> None:
    one, first, second = job(tmp_path / "x", searched_spec()), Reports(), Reports()
    run_drawn(one, 0, DRAW, told(first))
    run_drawn(one, 1, DRAW, told(second))
    assert first != second


# failing


def test_a_trial_in_which_no_episode_ends_has_no_score_and_fails(tmp_path: Path) -> None:
    spec = searched_spec(
        env={"max_frame": 12}, meta={"log_frequency": 6}, algorithm={"minibatch_size": 12, "time_horizon": 4}
    )
    reports: Reports = []
    with pytest.raises(RunError, match="no score: no episode ended in 12 frames"):
        run_drawn(job(tmp_path / "x", spec), 0, DRAW, told(reports))
    assert reports == []


def test_a_trial_whose_session_crashes_fails_with_its_reason(tmp_path: Path) -> None:
    spec = searched_spec(env_name="faulty_envs:Faulty", env={"faults": {"any": "raise"}, "at": 45})
    one, reports = job(tmp_path / "x", spec), Reports()
    with pytest.raises(RunError, match=r"session 0: .*broken at step 45"):
        run_drawn(one, 0, DRAW, told(reports))
    assert [frame for frame, _ in reports] == [60, 120]
    assert not replace(one.paths, trial=0).trial_scalar.exists()


def test_of_several_sessions_one_that_crashes_fails_the_trial_and_goes_on_in_the_next_try(tmp_path: Path) -> None:
    once = tmp_path / "once"
    once.touch()
    kwargs = {"faults": {seed_in(1): "raise"}, "at": 45, "once": str(once)}
    spec = searched_spec(env_name="faulty_envs:Faulty", env=kwargs, meta={"max_session": 2})
    one, reports = job(tmp_path / "x", spec), Reports()
    with pytest.raises(RunError, match=r"^session 1: .*broken at step 45"):
        run_drawn(one, 0, DRAW, told([]))
    run_drawn(one, 0, DRAW, told(reports))
    scalars = [
        read_json(replace(one.paths, trial=0).for_session(k).session_scalar("eval"))["total_reward_ma"] for k in (0, 1)
    ]
    assert reports[-1] == (300, pytest.approx(sum(scalars) / 2))


def test_a_machine_that_does_not_see_the_folder_says_so(tmp_path: Path) -> None:
    one = job(tmp_path / "x", searched_spec())
    one.paths.experiment_spec.unlink()
    with pytest.raises(RunError, match="on a file system that all of them share"):
        run_drawn(one, 0, DRAW, told([]))
