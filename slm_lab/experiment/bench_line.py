"""One line that says how the suite gets on: live on a terminal, now and then elsewhere."""

from __future__ import annotations

import math
import time
from types import TracebackType

from loguru import logger
from rich.console import Console
from rich.live import Live
from rich.text import Text

from slm_lab.experiment.bench_run import Place, Standing
from slm_lab.experiment.bench_status import shown

PLAIN_EVERY = 60.0  # seconds between lines where there is no terminal


class Line:
    """Follows a Bench."""

    def __init__(self, console: Console) -> None:
        self.live = Live(Text("starting"), console=console, transient=True) if console.is_terminal else None
        self._said = -math.inf

    def __enter__(self) -> Line:
        if self.live is not None:
            self.live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live is not None:
            self.live.__exit__(kind, error, trace)

    def __call__(self, running: dict[Place, Standing], done: int, total: int) -> None:
        text = line(running, done, total)
        if self.live is not None:
            self.live.update(Text(text, no_wrap=True, overflow="ellipsis"))
        elif time.monotonic() - self._said >= PLAIN_EVERY:
            self._said = time.monotonic()
            logger.info(text)


def line(running: dict[Place, Standing], done: int, total: int) -> str:
    """Sessions done, and how far each running one is."""
    sessions = [
        f"{place.cell.split('/', 1)[1]} s{place.session} {standing.share:.0%} {shown(standing.score)}"
        for place, standing in running.items()
    ]
    return " | ".join([f"{done}/{total} sessions", *sessions])
