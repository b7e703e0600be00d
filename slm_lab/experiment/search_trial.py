"""One trial of a search, in a worker of Ray: a drawn spec, run as any other, its rows reported as they come."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import numpy as np
from loguru import logger

from slm_lab.agent.plan import plan_agent
from slm_lab.experiment.cluster import must_see
from slm_lab.experiment.control import RunOptions, prepare_drawn, trial_of
from slm_lab.experiment.paths import Paths
from slm_lab.experiment.progress import Status
from slm_lab.experiment.track import Row
from slm_lab.experiment.trial import TrialResult
from slm_lab.lib.errors import RunError
from slm_lab.lib.io import write_json
from slm_lab.lib.log import configure_worker
from slm_lab.spec.load import dump
from slm_lab.spec.schema import Spec
from slm_lab.spec.space import Space, with_values

Report = Callable[[int, float], None]  # (frame, total_reward_ma)


@dataclass(frozen=True)
class Job:
    """All that the trials of a search have in common, as it is sent to their workers."""

    spec: Spec  # with its search space
    space: Space
    paths: Paths  # of the experiment, absolute
    options: RunOptions  # with the sessions at once and the runs at once that a reservation leaves room for
    modules: tuple[str, ...] = ()  # where the driver finds modules: a spec may name one of them


def readable(spec: Spec) -> None:
    """Raise where an agent cannot be made of a spec."""
    plan_agent(spec.agent, spec.env.num_envs, [])


class Reporter:
    """Reports where the sessions of a trial stand together: mean score, mean frame. A score that is NaN is not told.

    Nor are rows of the end: who hears of them may cut the trial off before it has summed up.
    """

    def __init__(self, report: Report, planned: int, frames: int) -> None:
        self.report, self.planned, self.frames = report, planned, frames
        self.latest: dict[int, tuple[int, float]] = {}

    def __enter__(self) -> Reporter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is held."""

    def row(self, session: int, row: Row) -> None:
        self.latest[session] = int(row["frame"]), float(row["total_reward_ma"])
        scores = [score for _, score in self.latest.values() if math.isfinite(score)]
        frame = sum(frame for frame, _ in self.latest.values()) // self.planned
        if scores and frame < self.frames:
            self.report(frame, float(np.mean(scores)))

    def status(self, session: int, status: Status) -> None:
        """Rows say it all."""


def run_drawn(job: Job, number: int, drawn: Mapping[str, float], report: Report) -> None:
    """Run a trial to its end, or the rest of it; raises where it gives no score."""
    must_see(job.paths.predir, job.paths.experiment_spec)
    sys.path.extend(place for place in job.modules if place not in sys.path)  # last, so that they shadow nothing
    paths = replace(job.paths, trial=number)
    spec = with_values(job.spec, job.space.values(drawn), readable)
    run = prepare_drawn(spec, paths, job.options)  # may clear files of another draw away, its log among them
    configure_worker(job.options.log_level, paths.trial_log, lambda level, text: None)
    for line in (*run.said.applied, *run.said.notes):
        logger.info(line)
    write_json(paths.trial_spec, dump(run.spec))
    reporter = Reporter(report, spec.meta.max_session, spec.session_frames)
    result = trial_of(run, "search", job.options, reporter).run()
    report(spec.session_frames, _score(result, spec))


def _score(result: TrialResult, spec: Spec) -> float:
    """total_reward_ma of all sessions; a trial without one has failed."""
    if not result.complete:
        reasons = "; ".join(f"session {session}: {reason}" for session, reason in sorted(result.failures.items()))
        raise RunError(reasons or f"{result.done} of {result.planned} sessions ended")
    score: Any = result.metrics["scalar"]["total_reward_ma"]
    if not math.isfinite(score):
        raise RunError(f"no score: no episode ended in {spec.session_frames} frames")
    return float(score)
