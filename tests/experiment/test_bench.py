"""The benchmark suite: what is recorded, what is refused, how cells stand, and runs that are stopped and go on."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from bench_helpers import CODE, FRAMES, cell_of, keep, record_of, tiny_suite, use_code
from run_helpers import no_sinks  # noqa: F401

from slm_lab.experiment import computing
from slm_lab.experiment.bench_line import line
from slm_lab.experiment.bench_record import POINTS, head_rows, read_record, record_path, thinned, write_record
from slm_lab.experiment.bench_report import write_report
from slm_lab.experiment.bench_run import Bench, Place, Standing, cost
from slm_lab.experiment.bench_status import judge, matrix, shown
from slm_lab.experiment.bench_verify import verify_cell
from slm_lab.experiment.control import RunOptions
from slm_lab.experiment.session import Stop
from slm_lab.experiment.verify import Verified
from slm_lab.lib.errors import LabError, SpecError
from slm_lab.spec.suite import Cell, choose, read_suite


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Writes the spec file that cells load from; again, with changes, when called."""
    return tiny_suite(tmp_path, monkeypatch)


def bench(tmp_path: Path, *cells: Cell, stop_after: int | None = None) -> Bench:
    stop = Stop()

    def report(running: dict[Place, Standing], done: int, total: int) -> None:
        if stop_after is not None and done >= stop_after:
            stop("SIGTERM")

    return Bench(cells, tmp_path / "results", RunOptions(tmp_path / "data", jobs=1), report, stop)


# running


def test_a_session_has_one_thread_whatever_the_net_and_the_cores(
    tmp_path: Path, suite: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(computing, "cores", lambda: 8)
    monkeypatch.setattr(computing, "WIDE", 1)  # by the rule of `slm-lab run` two sessions would have 4 each
    assert bench(tmp_path, cell_of("A2C")).run()
    assert read_record(record_path(tmp_path / "results", cell_of("A2C"))).threads == 1


def test_a_suite_is_worked_through_and_a_second_call_has_nothing_to_do(
    tmp_path: Path, suite: Callable[..., None]
) -> None:
    cells = (cell_of("A2C"), cell_of("Random"))
    assert bench(tmp_path, *cells).run()
    for cell in cells:
        record = read_record(record_path(tmp_path / "results", cell))
        assert record.complete
        assert [session.frames for session in record.sessions.values()] == [FRAMES, FRAMES]
        assert all(len(session.evaluation) == 100 for session in record.sessions.values())
        assert record.score == pytest.approx(np.mean(record.scores))
        assert record.spec["meta"]["record"]["mode"] == "train"
    again = bench(tmp_path, *cells)
    assert again.run()
    assert again._total == 0


def test_a_stopped_bench_goes_on_and_ends_in_the_same_numbers(tmp_path: Path, suite: Callable[..., None]) -> None:
    cell = cell_of("A2C")
    (tmp_path / "whole").mkdir()
    assert bench(tmp_path / "whole", cell).run()
    first = bench(tmp_path, cell, stop_after=1)
    assert not first.run()
    path = record_path(tmp_path / "results", cell)
    assert len(read_record(path).sessions) == 1  # recorded at once
    assert judge(cell, tmp_path / "results").verdict == "incomplete"
    second = bench(tmp_path, cell)
    assert second.run()
    assert second._total == 1
    ours, theirs = read_record(path), read_record(record_path(tmp_path / "whole" / "results", cell))
    for key in ("0", "1"):
        mine, whole = ours.sessions[key], theirs.sessions[key]
        assert (mine.metrics, mine.curve, mine.head) == (whole.metrics, whole.curve, whole.head)
        assert mine.evaluation == whole.evaluation


def test_a_finished_run_without_its_record_is_recorded_again_and_not_trained(
    tmp_path: Path, suite: Callable[..., None]
) -> None:
    cell = cell_of("Random")
    path = record_path(tmp_path / "results", cell)
    assert bench(tmp_path, cell).run()
    before = read_record(path)
    path.unlink()
    assert bench(tmp_path, cell).run()
    assert read_record(path) == before  # seconds of training among it
    assert len(list((tmp_path / "data").iterdir())) == 1


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (CODE, None),
        ({"sha": "fedcba9876", "dirty": False}, "(abcdef1, now fedcba9)"),
        ({"sha": "abcdef1234", "dirty": True}, "(abcdef1, now abcdef1+)"),
    ],
)
def test_a_run_goes_on_only_with_the_code_it_was_started_with(
    tmp_path: Path,
    suite: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    warnings: list[str],
    now: dict[str, Any],
    said: str | None,
) -> None:
    folders = list[Path]()
    for code in (CODE, now):
        use_code(code, monkeypatch)
        work = bench(tmp_path, cell_of("Random"))
        opened = work._begin(cell_of("Random"))
        folders.append(opened.run.paths.predir)
        assert opened.run.spec.meta.git_sha == code["sha"]
        assert opened.run.spec.meta.record["git_dirty"] == code["dirty"]
        work._held.close()
    assert (folders[0] == folders[1]) is (said is None)
    assert warnings == ([] if said is None else [f"{folders[0]}: made by other code {said}; begun anew"])


def test_a_changed_spec_is_drifted_and_run_anew(tmp_path: Path, suite: Callable[..., None]) -> None:
    cell = cell_of("A2C")
    keep(tmp_path, cell, record_of(cell, [30.0, 40.0]))
    assert judge(cell, tmp_path / "results").verdict == "beaten"
    suite(gamma=0.5)
    judged = judge(cell, tmp_path / "results")
    assert (judged.verdict, judged.note) == ("drifted", "the spec has changed since")
    assert len(bench(tmp_path, cell)._missing()) == 2


def test_a_cell_that_cannot_run_is_told_and_the_others_run(tmp_path: Path, suite: Callable[..., None]) -> None:
    wrong = cell_of("PPO", name="tiny_ppo")
    work = bench(tmp_path, wrong, cell_of("Random"))
    assert not work.run()
    assert len(work.failures) == 1
    assert "classic/CartPole-v1/PPO: " in work.failures[0]
    assert "tiny_ppo" in work.failures[0]
    assert read_record(record_path(tmp_path / "results", cell_of("Random"))).complete


def test_cheap_cells_come_first() -> None:
    cheap, dear = cell_of("PPO", frames=1000), cell_of("SAC", frames=100)
    assert cost(cheap) == 1000 * 2
    assert cost(dear) == 100 * 2 * 15
    assert cost(cell_of("PPO", family="atari", frames=1000)) == 20 * cost(cheap)


def test_the_status_line_names_what_runs() -> None:
    running = {Place("classic/CartPole-v1/PPO", 2): Standing(0.5, 471.234)}
    assert line(running, 3, 8) == "3/8 sessions | CartPole-v1/PPO s2 50% 471.23"


# records


def test_a_tampered_record_is_refused(tmp_path: Path, suite: Callable[..., None]) -> None:
    cell = cell_of()
    path = keep(tmp_path, cell, record_of(cell, [30.0, 40.0]))
    content = json.loads(path.read_text())
    content["sessions"]["0"]["metrics"]["total_reward_ma"] = 500.0
    path.write_text(json.dumps(content))
    with pytest.raises(LabError, match="changed by hand"):
        read_record(path)
    judged = judge(cell, tmp_path / "results")
    assert judged.verdict == "refused"
    assert "changed by hand" in judged.note
    assert len(bench(tmp_path, cell)._missing()) == 2  # it is run anew


def test_what_no_program_wrote_and_what_is_no_train_run_is_refused(tmp_path: Path, suite: Callable[..., None]) -> None:
    cell = cell_of()
    path = keep(tmp_path, cell, record_of(cell, [30.0, 40.0], mode="search"))
    with pytest.raises(LabError, match="from a search run; only train runs are results"):
        read_record(path)
    path.write_text("{}")
    with pytest.raises(LabError, match="it has no seal"):
        read_record(path)


def test_an_incomplete_record_has_no_score(tmp_path: Path, suite: Callable[..., None]) -> None:
    cell = cell_of()
    record = record_of(cell, [30.0])
    assert math.isnan(record.score)
    keep(tmp_path, cell, record)
    judged = judge(cell, tmp_path / "results")
    assert (judged.verdict, judged.note) == ("incomplete", "1 of 2 sessions")


@pytest.mark.parametrize(
    ("target", "best", "verdict"),
    [
        (10, 20, "beaten"),
        (10, 35, "met"),
        (35, 35, "met"),
        (36, 40, "below"),
        (36, 20, "below"),  # above the best, but not at the target
        (35, 34, "beaten"),
        (None, 34, "beaten"),
        (None, 35, "below"),
        (None, None, "recorded"),
    ],
)
def test_the_mean_of_all_sessions_decides(
    tmp_path: Path, suite: Callable[..., None], target: float | None, best: float | None, verdict: str
) -> None:
    cell = cell_of(target=target, best=best)
    keep(tmp_path, cell, record_of(cell, [30.0, 40.0]))  # 35
    assert judge(cell, tmp_path / "results").verdict == verdict


def test_curves_are_thinned_and_heads_are_kept_without_times() -> None:
    rows = 1000
    table = pd.DataFrame(
        {
            "frame": np.arange(1, rows + 1) * 500,
            "total_reward": np.arange(rows) / 2,
            "wall_t": 1.0,
            "fps": 2.0,
            "loss": np.nan,
        }
    )
    curve = thinned(table)
    assert len(curve["frame"]) == POINTS
    assert (curve["frame"][0], curve["frame"][-1]) == (500, 500_000)
    assert curve["total_reward"][-1] == 499.5
    head = head_rows(table, 500, 4)
    assert [row["frame"] for row in head] == [500 * k for k in range(1, 11)]  # the first 5000 frames
    assert head[0] == {"frame": 500, "total_reward": 0.0, "loss": None}
    assert len(head_rows(table.assign(frame=table["frame"] * 20), 10_000, 4)) == 1  # at least one row
    assert len(head_rows(table.assign(frame=table["frame"] * 20 + 352), 10_000, 512)) == 1  # also where steps are long


# the page


def test_the_page_and_the_plots_come_from_the_records(tmp_path: Path, suite: Callable[..., None]) -> None:
    met, missing = cell_of("A2C"), cell_of("Random")
    keep(tmp_path, met, record_of(met, [30.0, 40.0]))
    judged = [judge(cell, tmp_path / "results") for cell in (met, missing)]
    page, plot = (tmp_path / "docs" / name for name in ("BENCHMARKS.md", "plots/CartPole-v1.png"))
    (tmp_path / "docs").mkdir()
    assert set(write_report(judged, tmp_path / "docs")) == {page, plot}
    text = page.read_text()
    # 35 is the mean of 30 and 40; evaluations 31 and 41 have the mean 36
    assert "| A2C | **35** [30, 40] | 30, 40 | 36 | 10 | 20 | beaten |" in text
    assert "| Random | - | - | - | 10 | 20 | not run |" in text
    assert "| Classic control | 2 | 1 | 1 |" in text
    assert "](plots/CartPole-v1.png)" in text
    assert plot.stat().st_size > 10_000


def test_the_matrix_shows_every_cell_and_counts_them(tmp_path: Path, suite: Callable[..., None]) -> None:
    met, missing = cell_of("A2C"), cell_of("Random")
    keep(tmp_path, met, record_of(met, [30.0, 40.0]))
    shown_lines = matrix([judge(cell, tmp_path / "results") for cell in (met, missing)]).splitlines()
    assert shown_lines[1].split() == ["CartPole-v1", "A2C", "300", "10", "20", "35", "beaten"]
    assert shown_lines[2].split() == ["CartPole-v1", "Random", "300", "10", "20", "-", "not", "run"]
    assert shown_lines[-1] == "2 cells: 1 beaten, 1 not run"
    assert matrix([judge(missing, tmp_path / "results")]).splitlines()[-1] == "1 cell: 1 not run"


def test_scores_are_shown_with_the_digits_they_bear() -> None:
    assert [shown(value) for value in (None, math.nan, 35.0, -84.371, 153541.08, 0.5)] == [
        "-",
        "-",
        "35",
        "-84.37",
        "153,541",
        "0.5",
    ]


# verifying


def test_the_first_rows_are_trained_again_and_compared(tmp_path: Path, suite: Callable[..., None]) -> None:
    cell = cell_of("A2C", sessions=2)
    assert bench(tmp_path, cell).run()
    results, path = tmp_path / "results", record_path(tmp_path / "results", cell)
    assert verify_cell(cell, results) == Verified(6, FRAMES, [], [])  # a row every 50 frames
    record = read_record(path)
    assert record.verified is not None
    assert record.verified["same"] is True
    assert judge(cell, results).verdict in ("beaten", "met", "below")
    first = record.sessions["0"]
    other = [{**first.head[0], "total_reward": -1.0}, *first.head[1:]]
    changed = {**record.sessions, "0": first.model_copy(update={"head": other})}
    write_record(path, record.model_copy(update={"sessions": changed, "machine": {**record.machine, "cores": 99}}))
    found = verify_cell(cell, results)
    assert found is not None
    assert len(found.lines) == 1
    assert found.lines[0].startswith("row 0 (frame 50): total_reward -1.0 -> ")
    assert found.surroundings == [f"machine.cores: 99 -> {record.machine['cores']}"]
    assert judge(cell, results).verdict == "drifted"
    assert verify_cell(cell_of("Random"), results) is None


def test_a_difference_on_another_processor_is_not_held_against_the_code(
    tmp_path: Path, suite: Callable[..., None]
) -> None:
    cell = cell_of("A2C", sessions=2)
    assert bench(tmp_path, cell).run()
    results, path = tmp_path / "results", record_path(tmp_path / "results", cell)
    record = read_record(path)
    first = record.sessions["0"]
    other = [{**first.head[0], "total_reward": -1.0}, *first.head[1:]]
    changed = {**record.sessions, "0": first.model_copy(update={"head": other})}
    machine = {**record.machine, "cpu_capability": "ABACUS"}
    write_record(path, record.model_copy(update={"sessions": changed, "machine": machine}))
    found = verify_cell(cell, results)
    assert found is not None
    assert (len(found.lines), found.foreign) == (1, True)
    assert read_record(path).verified is None
    assert judge(cell, results).verdict in ("beaten", "met", "below")


def test_a_record_without_first_rows_cannot_be_verified(tmp_path: Path, suite: Callable[..., None]) -> None:
    cell = cell_of("Random")
    path = keep(tmp_path, cell, record_of(cell, [30.0, 40.0], head=[]))
    with pytest.raises(LabError, match="session 0 has no first rows: there is nothing to compare"):
        verify_cell(cell, tmp_path / "results")
    assert read_record(path).verified is None


# the suite file


def test_a_suite_is_a_list_of_rows_without_doubles(tmp_path: Path) -> None:
    settings = "file: a.json, name: a, frames: 1, num_envs: 1, log_frequency: 1"
    row = f"{{family: classic, env: CartPole-v1, algorithm: PPO, {settings}}}"
    path = tmp_path / "suite.yaml"
    path.write_text(f"- {row}\n")
    (cell,) = read_suite(path)
    assert (cell.id, cell.slug, cell.sessions) == ("classic/CartPole-v1/PPO", "CartPole-v1_ppo", 4)
    path.write_text(f"- {row}\n- {row}\n")
    with pytest.raises(SpecError, match="more than one row for classic/CartPole-v1/PPO"):
        read_suite(path)
    path.write_text("a: 1\n")
    with pytest.raises(LabError, match="expected a list of rows"):
        read_suite(path)


def test_a_spec_that_breaks_the_promise_of_its_row_is_refused(suite: Callable[..., None]) -> None:
    with pytest.raises(
        SpecError, match=r"env\.max_frame is 300, the suite says 400; env\.num_envs is 2, the suite says 4"
    ):
        cell_of(frames=400, num_envs=4).load()


def test_cells_are_chosen_by_family_algorithm_and_env() -> None:
    cells = [cell_of("A2C"), cell_of("PPO"), cell_of("PPO", family="box2d", env="LunarLander-v3")]
    assert choose(cells, None, None, None) == cells
    assert choose(cells, None, "ppo", None) == cells[1:]
    assert choose(cells, "box2d", "PPO", None) == cells[2:]
    with pytest.raises(LabError, match=r"--env: nothing in the suite is 'CartPole'\. Did you mean 'CartPole-v1'\?"):
        choose(cells, None, None, "CartPole")


def test_an_error_names_twenty_of_the_known_and_counts_the_rest() -> None:
    cells = [cell_of(env=f"E{number:02}") for number in range(23)]
    listed = ", ".join(f"E{number:02}" for number in range(20))
    with pytest.raises(LabError, match=rf"--env: nothing in the suite is 'x'\. Known: {listed} and 3 more\.$"):
        choose(cells, None, None, "x")
    with pytest.raises(LabError, match=r" Known: E00, E01\.$"):
        choose(cells[:2], None, None, "x")
