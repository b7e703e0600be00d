"""What a person sees of a running trial: live lines on a terminal, now and then a plain line elsewhere."""

from __future__ import annotations

import math
import time
from types import TracebackType

from loguru import logger
from rich.console import Console

from slm_lab.experiment.analysis import format_number
from slm_lab.experiment.progress import Progress, Standing, Status, duration
from slm_lab.experiment.track import Row

PLAIN_EVERY = 10.0  # seconds between a session's lines where there is no terminal


class Display:
    """Follows the sessions of one trial."""

    def __init__(self, spec_name: str, planned: int, max_frame: int, console: Console | None = None) -> None:
        self.progress = Progress(spec_name, planned, max_frame, console)
        self.max_frame = max_frame
        self.said_at = dict.fromkeys(range(planned), -math.inf)

    def __enter__(self) -> Display:
        self.progress.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.__exit__(kind, error, trace)

    def row(self, session: int, row: Row) -> None:
        """A session logged a row."""
        frame, fps, score = int(row["frame"]), float(row["fps"]), float(row["total_reward_ma"])
        self.progress.update(session, frame, fps, score, "running")
        if self.progress.live is None and time.monotonic() - self.said_at[session] >= PLAIN_EVERY:
            self.said_at[session] = time.monotonic()
            left = duration((self.max_frame - frame) / fps) if fps > 0 else "-"
            logger.info(
                f"session {session} | frame {format_number('frame', frame)}/{format_number('frame', self.max_frame)} | "
                f"total_reward_ma {format_number('total_reward_ma', score)} | fps {fps:,.0f} | left {left}"
            )

    def status(self, session: int, status: Status) -> None:
        """A session started, ended or crashed."""
        before: Standing = self.progress.standings[session]
        frame = self.max_frame if status == "done" else before.frame
        self.progress.update(session, frame, before.fps, before.ma, status)
