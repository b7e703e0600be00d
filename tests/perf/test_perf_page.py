"""The speed harness: settings that all sides share, ratios, and the page that is written from results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perf.page import write_page
from perf.results import CommandResult, Facts, RowResult, Series, read_rows, read_series, write
from perf.rows import ROWS, TURNS, Contestant, Row
from perf.table import command_line, ratios_to, table
from slm_lab.agent.plan import plan_agent
from slm_lab.spec.load import from_mapping

FACTS = Facts(
    {"processor": "A processor", "system": "Linux x86_64", "cores": 2, "memory_gb": 8, "cpu_capability": "AVX2"},
    {"python": "3.11.7", "torch": "2.13.0"},
    "1234567",
    "2026-11-16",
)
# ratios to SB3 by round: 300/100 = 3, 400/200 = 2, 600/100 = 6; their median is 3, though that of speeds is 400/100 = 4
ROW = RowResult(
    1,
    "PPO CartPole-v1",
    "4 envs",
    1024,
    1,
    {"ours": [300.0, 400.0, 600.0], "sb3": [100.0, 200.0, 100.0]},
    {"ours": 350.4, "sb3": 410.6},
    {"sb3": 3.0},
    FACTS,
)
COMMAND = CommandResult(7, "`slm-lab run`", "4 sessions", 60.04, 60.0, FACTS)


def row_numbered(number: int) -> Row:
    return next(row for row in ROWS if row.number == number)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.title)
def test_our_spec_of_a_row_has_no_key_that_is_ignored(row: Row) -> None:
    loaded = from_mapping(row.task.spec, "perf")
    notes = list(loaded.notes)
    plan_agent(loaded.spec.agent, loaded.spec.env.num_envs, notes)
    assert notes == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.title)
def test_turns_and_warm_ups_end_with_an_update(row: Row) -> None:
    horizon = row.task.arguments.get("n_steps", 1)
    assert row.unit == horizon * row.task.spec["env"]["num_envs"]
    assert row.frames % (TURNS * row.unit) == row.warm_up % row.unit == 0


def test_peers_have_the_threads_that_a_row_gives_them() -> None:
    one, two, a2c = (row_numbered(number).contestants for number in (1, 2, 5))
    assert one == (Contestant("ours", 1), Contestant("sb3", 1), Contestant("sbx", 2))
    assert two == (Contestant("ours", 2), Contestant("sb3", 1), Contestant("sb3", 2), Contestant("sbx", 2))
    assert [who.name for who in two] == ["ours", "sb3", "sb3_2", "sbx"]
    assert a2c == (Contestant("ours", 1), Contestant("sb3", 1))


def test_ratios_are_those_within_rounds() -> None:
    assert ratios_to(ROW, "sb3") == [3.0, 2.0, 6.0]


def test_a_row_shows_medians_and_whether_the_ratio_is_what_was_asked_for() -> None:
    cells = [cell.strip() for cell in table([ROW]).splitlines()[2].strip("|").split("|")]
    assert cells == [
        "1",
        "PPO CartPole-v1",
        "4 envs",
        "400",
        "100",
        "-",
        "-",
        "**3.00** [2.00, 6.00] (met: 3 asked)",
        "-",
    ]
    assert "**3.00** [2.00, 6.00] (below: 3.01 asked)" in table([replace(ROW, asked={"sb3": 3.01})])


def test_a_command_is_late_by_any_time_over_the_limit() -> None:
    assert "**60.0 s** (missed: at most 60 s asked)" in command_line(COMMAND)
    assert "(met: at most 60 s asked)" in command_line(replace(COMMAND, seconds=60.0))


def test_results_read_back_as_they_were_written(tmp_path: Path) -> None:
    series = Series("envs", [{"num_envs": 1, "speed": 1000.0, "memory_mb": 300.0}], FACTS)
    for result in (COMMAND, ROW, series):
        write(result, tmp_path)
    assert read_rows(tmp_path) == [ROW, COMMAND]
    assert read_series(tmp_path) == {"envs": series}


def test_a_row_measured_again_replaces_the_last(tmp_path: Path) -> None:
    write(ROW, tmp_path)
    write(replace(ROW, frames=2048), tmp_path)
    assert [row.frames for row in read_rows(tmp_path) if isinstance(row, RowResult)] == [2048]


def test_the_page_holds_every_result_and_each_graph_exists(tmp_path: Path) -> None:
    write(ROW, tmp_path / "results")
    write(COMMAND, tmp_path / "results")
    write(Series("envs", [{"num_envs": n, "speed": 1000.0 * n} for n in (1, 4)], FACTS), tmp_path / "results")
    write(Series("startup", [{"command to first row": 2.5, "imports": 1.25}], FACTS), tmp_path / "results")
    written = write_page(tmp_path / "results", tmp_path)
    text = (tmp_path / "PERFORMANCE.md").read_text()
    assert written == [tmp_path / "plots_perf" / "envs.png", tmp_path / "PERFORMANCE.md"]
    assert written[0].read_bytes().startswith(b"\x89PNG")
    assert "(plots_perf/envs.png)" in text
    assert "width.png" not in text
    assert table([ROW]) in text
    assert command_line(COMMAND) in text
    assert "| 1 | PPO CartPole-v1 | 350 | 411 | - | - |" in text
    assert "3 rounds a row. Measured on 2026-11-16, code at 1234567, A processor, 2 cores, 8 GB" in text
    assert "| 4 | 4,000 |" in text
    assert "| imports | 1.25 |" in text


def test_rows_of_another_machine_stand_in_a_table_of_their_own(tmp_path: Path) -> None:
    other = replace(ROW, number=2, facts=replace(FACTS, machine=FACTS.machine | {"cores": 64}))
    later = replace(ROW, number=3, facts=replace(FACTS, day="2026-11-17"))
    for rows, tables in (((ROW, other), 2), ((ROW, later), 1)):
        folder = tmp_path / str(tables)
        for row in rows:
            write(row, folder)
        write_page(folder, folder)
        assert (folder / "PERFORMANCE.md").read_text().count("| Training | Settings |") == tables
