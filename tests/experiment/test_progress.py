import io
import math
from pathlib import Path

import pytest
from loguru import logger
from rich.console import Console

from slm_lab.experiment.progress import Progress, SummaryRow, duration, summary
from slm_lab.lib.log import configure

RESULTS = [
    SummaryRow(1, total_reward_ma=480.0, best=490.0, frame=200_000, fps=2000.4, wall_t=100.2),
    SummaryRow(0, total_reward_ma=500.0, best=500.0, frame=200_000, fps=1999.6, wall_t=3700.0),
]


def console(terminal, width=120):
    return Console(file=io.StringIO(), force_terminal=terminal, width=width, color_system=None)


def shown(progress):
    """The rows of the display, as words."""
    view = console(terminal=False)
    view.print(progress.table())
    return [line.split() for line in view.file.getvalue().splitlines()]


def printed(results, planned, **options):
    view = console(terminal=False, **options)
    summary("x", results, planned, 500, Path("data/x_2026_01_02_030405"), view)
    return view.file.getvalue()


def test_the_display_has_a_line_for_every_session():
    progress = Progress("ppo_cartpole", 3, 200_000, console(terminal=True))
    progress.update(0, 50_000, 2500.4, 123.456, "running")
    progress.update(1, 200_000, 2000.0, math.nan, "done")
    title, heading, _, first, second, third = shown(progress)
    assert title == ["ppo_cartpole"]
    assert heading == ["session", "frames", "fps", "total_reward_ma", "left", "status"]
    assert first[0] == "0"
    assert first[2:] == ["50k/200k", "2,500", "123.46", "0:01:00", "running"]  # 150k frames at 2500 a second
    assert second[2:] == ["200k/200k", "2,000", "nan", "-", "done"]
    assert third == ["2", "0/200k", "0", "nan", "-", "queued"]  # an empty bar is blank without colours


def test_the_bar_shows_the_part_that_is_done():
    progress = Progress("x", 1, 200, console(terminal=True))
    progress.update(0, 100, 1.0, 0.0, "running")
    half = shown(progress)[3][1]
    progress.update(0, 300, 1.0, 0.0, "running")  # the last vector step may overshoot
    assert 0 < len(half) < len(shown(progress)[3][1]) == 20
    assert shown(progress)[3][-2:] == ["0:00:00", "running"]


def test_a_session_without_speed_has_no_time_left_and_no_error():
    progress = Progress("x", 1, 200, console(terminal=True))
    progress.update(0, 0, 0.0, math.nan, "running")
    assert shown(progress)[3][-2:] == ["-", "running"]


def test_the_display_is_drawn_on_a_terminal_and_removed_at_the_end():
    with Progress("ppo_cartpole", 1, 200, console(terminal=True)) as progress:
        progress.live.refresh()
        assert "ppo_cartpole" in progress.console.file.getvalue()
    assert progress.console.file.getvalue().endswith("\x1b[2K")  # the last thing written erases a line


def test_nothing_is_drawn_elsewhere():
    with Progress("x", 2, 200, console(terminal=False)) as progress:
        progress.update(0, 100, 1.0, 2.0, "failed")
    assert progress.console.file.getvalue() == ""


def test_the_display_goes_away_when_the_run_fails():
    progress = Progress("x", 1, 200, console(terminal=True))
    with pytest.raises(RuntimeError), progress:
        raise RuntimeError
    assert not progress.live.is_started


def test_log_lines_pass_above_the_display_whole():
    message = "a [bold]line[/bold] longer than the terminal is wide " * 3
    with Progress("ppo_cartpole", 1, 200, console(terminal=True, width=60)) as progress:
        configure("INFO", console=progress.console)
        logger.info(message)
        progress.live.refresh()
    logger.remove()
    text = progress.console.file.getvalue()
    assert message in text
    assert text.rindex("ppo_cartpole") > text.index(message)


def test_the_summary_lists_sessions_in_order_with_their_numbers():
    lines = [line.split() for line in printed(RESULTS, 2).splitlines()]
    assert lines[0] == ["x"]
    assert lines[1] == ["session", "total_reward_ma", "best", "frames", "fps", "time", "status"]
    assert lines[3] == ["0", "500.00", "500.00", "200k", "2,000", "1:01:40", "done"]
    assert lines[4] == ["1", "480.00", "490.00", "200k", "2,000", "0:01:40", "done"]


def test_the_summary_gives_the_mean_its_interval_the_window_and_the_folder():
    end = printed(RESULTS, 2).splitlines()[-3:]
    assert end == [
        "mean total_reward_ma: 490.00 over 2 sessions, 95 % interval [480.00, 500.00]",
        "total_reward_ma averages the last 100 rows, here 50k frames",
        "files: data/x_2026_01_02_030405",
    ]


def test_the_summary_keeps_its_sentences_whole_on_a_narrow_console():
    assert printed(RESULTS, 2).splitlines()[-3:] == printed(RESULTS, 2, width=40).splitlines()[-3:]


def test_a_failed_session_is_listed_and_not_averaged():
    failed = SummaryRow(2, math.nan, math.nan, 1000, 10.0, 100.0, "failed")
    text = printed([*RESULTS, failed], 4)
    assert "490.00 over 2/4 sessions" in text
    assert ["2", "nan", "nan", "1k", "10", "0:01:40", "failed"] in [line.split() for line in text.splitlines()]


def test_one_session_has_no_interval_and_none_has_no_mean():
    assert "mean total_reward_ma: 480.00 over 1 session\n" in printed(RESULTS[:1], 1)
    assert "mean total_reward_ma: nan over 0/4 sessions\n" in printed([], 4)


def test_durations_are_hours_minutes_seconds():
    assert [duration(value) for value in (0, 59.6, 3661, math.nan)] == ["0:00:00", "0:01:00", "1:01:01", "-"]
