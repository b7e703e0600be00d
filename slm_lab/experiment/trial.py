"""A trial: all sessions of a spec, as many at once as it is given, and what they come to together."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Protocol

import pandas as pd
from loguru import logger

from slm_lab.experiment import analysis
from slm_lab.experiment.hogwild import Team, team
from slm_lab.experiment.metric_files import write_trial
from slm_lab.experiment.paths import Paths
from slm_lab.experiment.pool import Pool, Start
from slm_lab.experiment.progress import Status, SummaryRow
from slm_lab.experiment.session import Options, Stop
from slm_lab.experiment.track import Row
from slm_lab.experiment.worker import (
    DoneMessage,
    FailedMessage,
    LogMessage,
    Message,
    StoppedMessage,
    Task,
    run_session,
    signals,
)
from slm_lab.lib.io import read_json
from slm_lab.lib.log import also_to
from slm_lab.spec.random_baseline import baseline
from slm_lab.spec.schema import Spec


class Audience(Protocol):
    """Who follows the sessions of a trial while it runs."""

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> object: ...

    def row(self, session: int, row: Row) -> None:
        """A session logged a row."""

    def status(self, session: int, status: Status) -> None:
        """A session started, ended or crashed."""


@dataclass(frozen=True)
class TrialOptions:
    """How a trial is run; none of it changes its numbers."""

    session: Options
    jobs: int
    threads: int
    log_level: str = "INFO"
    extra_graphs: bool = False
    resume: bool = False
    begin: Start | None = None  # where sessions run; None for processes of this machine


@dataclass(frozen=True)
class TrialResult:
    """What a trial came to."""

    metrics: analysis.TrialMetrics
    done: int
    planned: int
    failures: dict[int, str]  # session -> why it crashed
    stopped: str  # the signal that ended it early, or nothing

    @property
    def complete(self) -> bool:
        return self.done == self.planned


@dataclass
class Trial:
    """Runs the sessions that are not finished yet."""

    spec: Spec
    paths: Paths
    options: TrialOptions
    display: Audience
    stop: Stop = field(default_factory=Stop)
    failures: dict[int, str] = field(default_factory=dict)

    def run(self) -> TrialResult:
        """Run to the end or to a signal; sum up whatever is finished."""
        todo = [k for k in range(self.spec.meta.max_session) if not self.finished(k)]
        for k in set(range(self.spec.meta.max_session)) - set(todo):
            self.display.status(k, "done")
        with signals(self.stop), self.display:
            if self.options.begin is not None:
                Pool(self.task, self.receive, self.stop, self.options.begin).run(deque(todo), self.options.jobs)
            elif self.spec.meta.max_session == 1:
                for k in todo:
                    self.display.status(k, "running")
                    with also_to(self.options.log_level, self.paths.for_session(k).session_log):
                        run_session(self.task(k), partial(self.receive, k), self.stop)
            else:
                with team(self.spec, self.paths, self.options.resume) as shared:
                    Pool(partial(self.task, shared=shared), self.receive, self.stop).run(deque(todo), self.options.jobs)
        return self.sum_up()

    def task(self, session: int, shared: Team | None = None) -> Task:
        options = self.options
        return Task(
            self.spec,
            self.paths.for_session(session),
            options.session,
            options.threads,
            options.log_level,
            options.resume,
            shared,
        )

    def finished(self, session: int) -> bool:
        """Whether a session has spent its frames and been summed up: metrics may be those of fewer frames."""
        paths, frames = self.paths.for_session(session), self.spec.session_frames
        metrics = paths.session_metrics("eval")
        return (
            (paths.newest_frame() or 0) >= frames
            and metrics.exists()
            and read_json(metrics)["local"]["frames"][-1] >= frames
        )

    def summed_up(self) -> bool:
        """Whether nothing is left to do: all sessions are finished and the trial's own files speak of all of them."""
        if not all(self.finished(k) for k in range(self.spec.meta.max_session)):
            return False
        last = self.paths.beside_spec(self.paths.trial_scalar)
        scalar = read_json(last) if last.exists() else {"frame": None}
        return "sessions_done" not in scalar and (scalar["frame"] or 0) >= self.spec.session_frames

    def receive(self, session: int, message: Message | None) -> None:
        """What one session says; None when it starts."""
        if message is None:
            self.display.status(session, "running")
        elif isinstance(message, FailedMessage):
            self.failures[session] = message.reason
            self.display.status(session, "failed")
            logger.error(f"Session {session} crashed: {message.reason}\n{message.traceback}".rstrip())
        elif isinstance(message, StoppedMessage):
            self.display.status(session, "stopped")
            logger.info(f"Session {session} stopped")
        elif isinstance(message, DoneMessage):
            self.display.status(session, "done" if message.result.finished else "stopped")
            logger.info(f"Session {session} {'done' if message.result.finished else 'stopped'}")
        elif isinstance(message, LogMessage):
            logger.log(message.level, f"session {session}: {message.text}")
        else:
            self.display.row(session, message.row)

    def sum_up(self) -> TrialResult:
        """Metrics of the finished sessions from their tables; files, graphs and the line that scripts look for."""
        planned = self.spec.meta.max_session
        done = [k for k in range(planned) if self.finished(k)]
        zero = baseline(self.spec.env.name, self.spec.env.kwargs) or 0.0
        tables = [pd.read_csv(self.paths.for_session(k).session_table("eval")) for k in done]
        metrics = analysis.trial_metrics([analysis.session_metrics(table, zero) for table in tables], planned)
        result = TrialResult(metrics, len(done), planned, dict(self.failures), self.stop.reason)
        if done:
            write_trial(self.paths, self.spec.name, metrics, self.options.extra_graphs)
            logger.info(analysis.trial_line(metrics["scalar"], len(done), planned))
        logger.info(f"Trial {self.paths.trial} {'done' if result.complete else 'incomplete'}")
        return result


def summary_rows(spec: Spec, paths: Paths, failures: Collection[int]) -> list[SummaryRow]:
    """What each session came to, from the last row of its table."""
    rows = []
    for k in range(spec.meta.max_session):
        table = paths.for_session(k).session_table("train")
        if not table.exists():
            continue
        df = pd.read_csv(table).dropna(subset=["frame"])  # the last row of a killed session may be cut off
        if df.empty:
            continue
        last = df.iloc[-1]
        done = last["frame"] >= spec.session_frames and k not in failures
        status: Status = "failed" if k in failures else "done" if done else "stopped"
        score, best = float(last["total_reward_ma"]), float(df["total_reward_ma"].max())
        rows.append(SummaryRow(k, score, best, int(last["frame"]), float(last["fps"]), float(last["wall_t"]), status))
    return rows
