"""What a person sees of a search: a live table of its trials on a terminal, now and then a plain line elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from loguru import logger
from rich.console import Console
from rich.table import Table
from rich.text import Text

from slm_lab.experiment.analysis import engineering, format_number
from slm_lab.experiment.display import PLAIN_EVERY
from slm_lab.experiment.progress import STYLES, LiveTable, plain_table
from slm_lab.experiment.search_record import Drawn, SearchRecord

SHOWN = 20  # trials in the live table


class SearchView(LiveTable):
    """Follows a search's record."""

    def __init__(self, name: str, record: SearchRecord, planned: int, console: Console | None = None) -> None:
        self.name, self.record, self.planned = name, record, planned
        self.said_at = -math.inf
        super().__init__(console)

    def table(self) -> Table:
        """The best trials as they stand."""
        return trial_table(f"{self.name}: {self.line()}", self.record.ranked()[:SHOWN])

    def line(self) -> str:
        """Where the search stands, in one line."""
        ended, running = self.record.of("done", "stopped", "failed"), self.record.of("running")
        failed = f", {len(self.record.of('failed'))} failed" if self.record.of("failed") else ""
        best = next(iter(self.record.ranked()), None)
        score = "" if best is None or best.rank[0] else f", best {_score(best)} (trial {best.trial})"
        return f"{len(ended)}/{self.planned} trials, {len(running)} running{failed}{score}"

    def update(self) -> None:
        """Something happened: a terminal shows it by itself, elsewhere a line says it now and then."""
        if self.live is None and time.monotonic() - self.said_at >= PLAIN_EVERY:
            self.said_at = time.monotonic()
            logger.info(self.line())


def trial_table(title: str, trials: list[Drawn]) -> Table:
    """Trials in the order given: rank, score, frames, status and what was drawn."""
    table = plain_table(title)
    for heading in ("rank", "trial", "total_reward_ma", "frames"):
        table.add_column(heading, justify="right")
    table.add_column("status")
    table.add_column("values", overflow="fold")
    for rank, trial in enumerate(trials, 1):
        place = "-" if trial.rank[0] else str(rank)
        status = Text(trial.status, STYLES[trial.status])
        table.add_row(place, str(trial.trial), _score(trial), engineering(trial.frame), status, short(trial.values))
    return table


def short(values: Mapping[str, Any]) -> str:
    """Drawn values by the ends of their paths: `gamma 0.98, lr 0.0003`; by whole paths where ends are the same."""
    ends = [path.rpartition(".")[2] for path in values]
    names = ends if len(set(ends)) == len(ends) else list(values)
    return ", ".join(f"{name} {_value(value)}" for name, value in zip(names, values.values(), strict=True))


def _value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _score(trial: Drawn) -> str:
    return format_number("total_reward_ma", math.nan if trial.rank[0] else trial.score)
