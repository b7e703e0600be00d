"""What a person at a terminal sees: a line per session while a trial runs, and a table of results at its end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import numpy as np
from rich import box
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from slm_lab.experiment.analysis import WINDOW, bootstrap_band, engineering, format_number

Status = Literal["queued", "running", "done", "stopped", "failed"]
STYLES: dict[Status, str] = {
    "queued": "dim",
    "running": "cyan",
    "done": "green",
    "stopped": "yellow",
    "failed": "bold red",
}
BAR_WIDTH = 20


@dataclass(frozen=True)
class Standing:
    """Where one session stands."""

    frame: int = 0
    fps: float = 0.0
    ma: float = math.nan
    status: Status = "queued"


@dataclass(frozen=True)
class SummaryRow:
    """What one session came to; `best` is its highest total_reward_ma, `wall_t` seconds."""

    session: int
    total_reward_ma: float
    best: float
    frame: int
    fps: float
    wall_t: float
    status: Status = "done"


class LiveTable:
    """A table that is drawn anew on a terminal, nothing elsewhere. The log takes its console: lines pass above it."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = Console(stderr=True) if console is None else console
        drawn = self.console.is_terminal and not self.console.is_dumb_terminal
        self.live = Live(console=self.console, get_renderable=self.table, transient=True) if drawn else None

    def __enter__(self) -> Self:
        if self.live:
            self.live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live:
            self.live.stop()

    def table(self) -> Table:
        """What is drawn, as it is now."""
        raise NotImplementedError


class Progress(LiveTable):
    """A line for each session of a trial."""

    def __init__(self, spec_name: str, planned: int, max_frame: int, console: Console | None = None) -> None:
        self.spec_name, self.max_frame = spec_name, max_frame
        self.standings = dict.fromkeys(range(planned), Standing())
        super().__init__(console)

    def update(self, session: int, frame: int, fps: float, ma: float, status: Status) -> None:
        """Note where a session stands; the display catches up by itself."""
        self.standings[session] = Standing(frame, fps, ma, status)

    def table(self) -> Table:
        """The display as it is now."""
        table = plain_table(self.spec_name)
        table.add_column("session")
        table.add_column("")
        for heading in ("frames", "fps", "total_reward_ma", "left"):
            table.add_column(heading, justify="right")
        table.add_column("status")
        for session, standing in sorted(self.standings.items()):
            table.add_row(
                str(session),
                self.bar(standing.frame),
                f"{engineering(standing.frame)}/{engineering(self.max_frame)}",
                f"{standing.fps:,.0f}",
                format_number("total_reward_ma", standing.ma),
                self.time_left(standing),
                Text(standing.status, STYLES[standing.status]),
            )
        return table

    def bar(self, frame: int) -> ProgressBar:
        """The part of the frames that is done."""
        # named colours: on a terminal of 16, rich's own finished bar looks like an empty one
        return ProgressBar(
            total=self.max_frame,
            completed=min(frame, self.max_frame),
            width=BAR_WIDTH,
            style="bright_black",
            complete_style="cyan",
            finished_style="green",
        )

    def time_left(self, standing: Standing) -> str:
        """h:mm:ss to the last frame at the present speed, for a session that runs."""
        if standing.status != "running" or standing.fps <= 0:
            return "-"
        return duration(max(self.max_frame - standing.frame, 0) / standing.fps)


def summary(
    spec_name: str,
    results: Sequence[SummaryRow],
    planned: int,
    log_frequency: int,
    folder: Path,
    console: Console | None = None,
) -> None:
    """Print what the sessions came to, the mean of those done with its 95 % interval, and where the files are."""
    console = Console() if console is None else console
    table = plain_table(spec_name)
    table.add_column("session")
    for heading in ("total_reward_ma", "best", "frames", "fps", "time"):
        table.add_column(heading, justify="right")
    table.add_column("status")
    for result in sorted(results, key=lambda result: result.session):
        table.add_row(
            str(result.session),
            format_number("total_reward_ma", result.total_reward_ma),
            format_number("total_reward_ma", result.best),
            engineering(result.frame),
            f"{result.fps:,.0f}",
            duration(result.wall_t),
            Text(result.status, STYLES[result.status]),
        )
    console.print(table)
    # paths and sentences stay whole: a piped console is 80 columns wide
    console.out(_mean_line(results, planned), highlight=False)
    window = min(WINDOW * log_frequency, max((result.frame for result in results), default=0))
    console.out(f"total_reward_ma averages the last {WINDOW} rows, here {engineering(window)} frames", highlight=False)
    console.out(f"files: {folder}", highlight=False)


def _mean_line(results: Sequence[SummaryRow], planned: int) -> str:
    """The trial's score in words."""
    scores = [result.total_reward_ma for result in results if result.status == "done"]
    count = f"{len(scores)}/{planned} sessions" if len(scores) < planned else f"{planned} session{'s' * (planned > 1)}"
    mean = float(np.mean(scores)) if scores else math.nan
    line = f"mean total_reward_ma: {format_number('total_reward_ma', mean)} over {count}"
    if len(scores) < 2 or math.isnan(mean):
        return line
    low, high = (format_number("total_reward_ma", bound[0]) for bound in bootstrap_band(np.array(scores)[:, None]))
    return f"{line}, 95 % interval [{low}, {high}]"


def duration(seconds: float) -> str:
    """Whole seconds as h:mm:ss, a dash where unknown."""
    return str(timedelta(seconds=round(seconds))) if math.isfinite(seconds) else "-"


def plain_table(title: str) -> Table:
    """A table without a frame."""
    return Table(title=Text(title, "bold"), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
