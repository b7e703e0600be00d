"""What a person sees of a search: a line, a table, short names of what was drawn."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from loguru import logger
from rich.console import Console
from run_helpers import no_sinks  # noqa: F401
from search_helpers import drawn

from slm_lab.experiment import search_view
from slm_lab.experiment.search_record import Drawn, SearchRecord
from slm_lab.experiment.search_view import SHOWN, SearchView, short, trial_table


def view_of(tmp_path: Path, *trials: Drawn, planned: int = 8, terminal: bool = False) -> SearchView:
    record = SearchRecord(tmp_path / "record.json", {trial.trial: trial for trial in trials})
    console = Console(file=io.StringIO(), force_terminal=terminal, width=120, _environ={"TERM": "xterm"})
    return SearchView("tiny", record, planned, console)


def rows_of(view: SearchView) -> list[list[str]]:
    console = Console(file=io.StringIO(), width=120)
    console.print(view.table())
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return [line.split() for line in text.splitlines() if line.strip()]


def test_a_line_says_where_a_search_stands(tmp_path: Path) -> None:
    assert view_of(tmp_path).line() == "0/8 trials, 0 running"
    trials = [drawn(0, -20.0), drawn(1, -10.0, "stopped"), drawn(2, 90.0, "failed"), drawn(3, status="running")]
    assert view_of(tmp_path, *trials).line() == "3/8 trials, 1 running, 1 failed, best -20.00 (trial 0)"
    assert view_of(tmp_path, drawn(0, 5.0, "failed")).line() == "1/8 trials, 0 running, 1 failed"


def test_the_table_ranks_trials_and_gives_those_without_a_score_no_place(tmp_path: Path) -> None:
    view = view_of(tmp_path, drawn(0, 90.0, "failed"), drawn(1, 12.5, frame=1500, layers=1), drawn(2, 20.0))
    title, heading, _, *rows = rows_of(view)
    assert title == ["tiny:", "3/8", "trials,", "0", "running,", "1", "failed,", "best", "20.00", "(trial", "2)"]
    assert heading == ["rank", "trial", "total_reward_ma", "frames", "status", "values"]
    assert rows[0] == ["1", "2", "20.00", "300", "done", "gamma", "0.95,", "hid_layers", "[8]"]
    assert rows[1][:3] == ["2", "1", "12.50"]
    assert rows[2][:3] == ["-", "0", "nan"]


def test_the_live_table_shows_the_best_and_the_last_table_all(tmp_path: Path) -> None:
    trials = [drawn(n, float(n)) for n in range(SHOWN + 5)]
    rows = rows_of(view_of(tmp_path, *trials))[3:]
    assert [int(row[1]) for row in rows] == list(range(SHOWN + 4, 4, -1))
    assert trial_table("tiny", trials).row_count == SHOWN + 5


def test_values_go_by_the_ends_of_their_paths_or_by_all_of_them_where_ends_are_the_same() -> None:
    assert short({"agent.net.optim_spec.lr": 0.000312345, "env.num_envs": 8}) == "lr 0.0003123, num_envs 8"
    same = {"agent.net.hid_layers": [8], "agent.critic_net.hid_layers": [4, 4]}
    assert short(same) == "agent.net.hid_layers [8], agent.critic_net.hid_layers [4, 4]"


def test_without_a_terminal_a_line_is_logged_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([100.0, 100.0, 109.9, 110.0, 110.0, 110.1])  # asked for once more where a line is logged
    monkeypatch.setattr(search_view.time, "monotonic", lambda: next(times))
    lines = list[str]()
    logger.add(lambda line: lines.append(line.record["message"]))
    view = view_of(tmp_path, planned=2)
    with view:
        for _ in range(4):
            view.update()
    assert lines == ["0/2 trials, 0 running"] * 2


def test_a_terminal_shows_the_table_while_it_runs_and_logs_nothing(tmp_path: Path) -> None:
    lines = list[str]()
    logger.add(lambda line: lines.append(line.record["message"]))
    view = view_of(tmp_path, drawn(0, 20.0), terminal=True)
    with view:
        view.update()
    text: str = view.console.file.getvalue()  # type: ignore[attr-defined]
    assert "tiny: 1/8 trials, 0 running, best 20.00 (trial 0)" in text
    assert lines == []
