"""A search: Ray Tune runs trials of a spec with drawn values, Optuna draws them, ASHA stops the poor ones early.

What is kept is ours: each trial's draw and ending in one file, its tables and checkpoints as in any run. A search that
was killed is a new experiment to Ray, whose sampler and scheduler are first told all that is known.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any

import pandas as pd
from loguru import logger
from pydantic import Field
from ray import tune
from ray.tune.schedulers import ASHAScheduler

from slm_lab.experiment.check import preflight
from slm_lab.experiment.cluster import Room, cluster
from slm_lab.experiment.control import (
    Logging,
    RunOptions,
    RunResult,
    announce,
    clear,
    read_saved,
    refuse_changes,
    run_folder,
    uploads,
    with_meta,
    with_surroundings,
)
from slm_lab.experiment.lock import alone
from slm_lab.experiment.paths import Paths
from slm_lab.experiment.sampler import METRIC, TIME, TRIAL, NumberedSearch, StatelessSampler
from slm_lab.experiment.search_end import conclude
from slm_lab.experiment.search_record import Drawn, SearchRecord, SearchResult
from slm_lab.experiment.search_trial import Job, readable, run_drawn
from slm_lab.experiment.search_view import SearchView
from slm_lab.experiment.validate import validate
from slm_lab.lib.cores import cores
from slm_lab.lib.errors import LabError, SpecError
from slm_lab.lib.io import write_json
from slm_lab.spec.load import Loaded, dump
from slm_lab.spec.parse import Float, Int, Model, parse
from slm_lab.spec.schema import Spec
from slm_lab.spec.space import Space, parse_space

RETRIES = 2  # of a trial that crashed


class Asha(Model):
    """Keys of meta.search_scheduler."""

    grace_period: Int = Field(ge=1, description="frames before a trial may be stopped")
    reduction_factor: Float = Field(3.0, gt=1, description="at each rung one trial in so many goes on")
    brackets: Int = Field(1, ge=1, description="sets of rungs that start later one after the other")


class Reserve(Model):
    """Keys of meta.search_resources: what a trial takes of the machine."""

    cpu: Float = Field(1.0, gt=0, description="cores of a trial")
    gpu: Float = Field(0.0, ge=0, description="GPUs of a trial, or a part of one")


@dataclass(frozen=True)
class Plan:
    """A search that is ready to go."""

    asked: Spec  # as it was given
    spec: Spec  # as its trials run it
    space: Space
    asha: Asha | None
    reserve: Reserve
    paths: Paths
    said: Loaded
    resume: bool

    @property
    def trials(self) -> int:
        return self.spec.meta.max_trial or 0


def search(loaded: Loaded, target: str | None, options: RunOptions, logging: Logging) -> RunResult:
    """A new search, or with a target (`latest` or a folder) the rest of one."""
    notes = list(loaded.notes)
    spec, asha = with_scheduler(loaded.spec, notes)
    if not spec.meta.max_trial:
        raise SpecError("meta.max_trial: missing key: a search needs the number of its trials.")
    reserve = parse(Reserve, spec.meta.search_resources or {}, "meta.search_resources", notes)
    space = parse_space(spec, notes, readable)
    if target is None:
        preflight(spec, notes, [])
        paths = _new_folder(spec, options)
    else:
        found = Paths.latest(options.data_dir, spec.name) if target == "latest" else run_folder(Path(target))
        paths = Paths(found.resolve(), spec.name)
        _same_search(paths, spec)
    said = replace(loaded, notes=notes)
    plan = Plan(loaded.spec, spec, space, asha, reserve, paths, said, resume=target is not None)
    with uploads(paths.predir, options):
        result = _run(plan, replace(options, hub=None), logging)
        if result.complete and options.validate:
            stopped = validate(paths, result.record, replace(options, hub=None), logging)
            result = replace(result, stopped=stopped)
    return RunResult(paths.predir, search=result)


def with_scheduler(spec: Spec, notes: list[str]) -> tuple[Spec, Asha | None]:
    """The spec as it is searched, and its scheduler: ASHA compares single sessions, as only they report on the way."""
    if spec.meta.search_scheduler is None:
        return spec, None
    asha = parse(Asha, spec.meta.search_scheduler, "meta.search_scheduler", notes)
    if asha.grace_period >= spec.session_frames:
        raise SpecError(
            f"meta.search_scheduler.grace_period: {asha.grace_period} frames leave nothing to stop early in "
            f"{spec.session_frames}; allowed: less."
        )
    if spec.meta.max_session > 1:
        notes.append(f"meta.max_session: 1 instead of {spec.meta.max_session}, for the scheduler compares sessions.")
    return with_meta(spec, max_session=1), asha


def _new_folder(spec: Spec, options: RunOptions) -> Paths:
    paths = Paths.new(options.data_dir.resolve(), spec.name, datetime.now())
    paths.make_folders()
    stamped = with_meta(spec, experiment_ts=paths.predir.name.removeprefix(f"{spec.name}_"))
    write_json(paths.experiment_spec, dump(with_surroundings(stamped, {"mode": "search"})))
    return paths


def _same_search(paths: Paths, spec: Spec) -> None:
    """Raise where a folder is not a search of this spec."""
    if not paths.experiment_spec.exists():
        raise LabError(f"{paths.predir}: not a run of spec {spec.name!r}: there is no {paths.experiment_spec.name}.")
    saved = read_saved(paths.experiment_spec)
    if saved.meta.record.get("mode") != "search":
        raise LabError(f"{paths.predir}: not a search; continue it with train@{paths.predir.name}.")
    refuse_changes(saved, spec, paths.predir, "a search goes on with the spec it began with")
    if saved.search != spec.search:
        raise SpecError(f"{paths.predir}: the search space has changed since; start a new search for another space.")


def _run(plan: Plan, options: RunOptions, logging: Logging) -> SearchResult:
    paths, record = plan.paths, SearchRecord.at(plan.paths)
    view = SearchView(plan.spec.name, record, plan.trials)
    with alone(paths.predir, paths.models):
        logging(paths.experiment_log, view.console if view.live is not None else None)
        announce(plan.said, paths, plan.resume)
        clear(paths)
        stopped = ""
        if len(record.of("done", "stopped", "failed")) < plan.trials:
            with cluster(options.ray_address) as room, view, _as_interrupt() as signals:
                _tune(plan, record, view, room, options)
            stopped = signals[0] if signals else "SIGINT" if record.of("running") else ""
        if stopped:
            logger.warning(f"stopped after {view.line()}; `search@latest` goes on from here")
        conclude(plan.asked, paths, record, options.keep, options.validate, options.log_extra)
    return SearchResult(record, plan.trials, stopped)


def _tune(plan: Plan, record: SearchRecord, view: SearchView, room: Room, options: RunOptions) -> None:
    """Let Ray Tune run the trials that are left."""
    cpu, gpu = plan.reserve.cpu, plan.reserve.gpu if room.gpus else 0.0
    if cpu > room.cpus or gpu > room.gpus:
        raise SpecError(
            f"meta.search_resources: a trial takes {cpu:g} cpu and {gpu:g} gpu, and there are {room.cpus} and "
            f"{room.gpus:g}."
        )
    left = plan.trials - len(record.of("done", "stopped", "failed"))
    most = min(int(room.cpus / cpu), options.jobs or plan.trials)
    at_once = min(left, most)
    # by what the whole search runs at once: threads, and with them numbers, are not to depend on where it was killed
    job = Job(plan.spec, plan.space, plan.paths, _within(options, cpu, min(plan.trials, most), room), tuple(sys.path))
    logger.info(f"{left} trials to run, {at_once} at once, on {room}")

    def trainable(config: Mapping[str, Any]) -> None:
        run_drawn(job, config[TRIAL], config["drawn"], lambda frame, score: tune.report({TIME: frame, METRIC: score}))

    past = list(record.trials.values())
    startup = min(10, max(3, plan.trials // 3))  # draws at random before the sampler has something to go by
    sampler = StatelessSampler(plan.spec.meta.random_seed, startup)

    def begins(number: int, drawn: Mapping[str, float]) -> None:
        if number not in record.trials:  # else it goes on, with what is known of it
            record.put(Drawn(number, drawn, plan.space.values(drawn)))

    tuner = tune.Tuner(
        tune.with_resources(trainable, {"cpu": cpu, "gpu": gpu}),
        tune_config=tune.TuneConfig(
            num_samples=left,
            max_concurrent_trials=at_once,
            search_alg=NumberedSearch(plan.space, sampler, past, begins),
            scheduler=None if plan.asha is None else informed(plan.asha, plan.spec.session_frames, past, plan.paths),
            reuse_actors=True,  # the next trial need not import everything again
        ),
        run_config=tune.RunConfig(
            name=f"{datetime.now():%Y_%m_%d_%H%M%S}",
            storage_path=str(plan.paths.ray_tune),
            failure_config=tune.FailureConfig(max_failures=RETRIES),
            callbacks=[Watch(plan, record, view)],
            verbose=0,
        ),
    )
    with redirect_stdout(io.StringIO()):  # Ray describes the experiment there, whatever it is told
        tuner.fit()


def _within(options: RunOptions, cpu: float, at_once: int, room: Room) -> RunOptions:
    """Options of a trial that holds so many cores, beside the others that run on the same machine."""
    here = max(1, min(at_once, round(cores() / cpu))) if room.nodes == 1 else max(1, round(cores() / cpu))
    return replace(options, jobs=max(1, int(cpu)), share=here)


class Informed(ASHAScheduler):
    """ASHA that knows the rows of earlier sittings: they fill its rungs, and what they decided then stays decided."""

    def __init__(self, rows: Mapping[int, list[dict[str, float]]], **options: Any) -> None:
        super().__init__(**options)
        self.rows = rows  # trial -> results

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        super().on_trial_add(tune_controller, trial)
        for row in self.rows.get(trial.config[TRIAL], ()):
            self.on_trial_result(tune_controller, trial, row)


def informed(asha: Asha, max_frame: int, past: list[Drawn], paths: Paths) -> Informed:
    """ASHA that knows how far earlier trials of the search came, by the rows of their tables."""
    rows = {trial.trial: _rows(replace(paths, trial=trial.trial)) for trial in past if trial.status != "failed"}
    scheduler = Informed(
        rows,
        time_attr=TIME,
        metric=METRIC,
        mode="max",
        max_t=max_frame + 1,  # the last row is no reason to cut a trial off before it has summed up
        grace_period=asha.grace_period,
        reduction_factor=asha.reduction_factor,
        brackets=asha.brackets,
    )
    nobody: Any = None  # asks: the decisions were taken then
    for trial in past:
        if trial.status in ("done", "stopped"):
            scheduler.on_trial_add(nobody, Before(f"before_{trial.trial}", {TRIAL: trial.trial}))
    return scheduler


def _rows(paths: Paths) -> list[dict[str, float]]:
    """What a trial reported, by its table."""
    table = paths.for_session(0).session_table("train")
    if not table.exists():
        return []
    found = pd.read_csv(table).dropna(subset=[TIME, METRIC])
    return [{TIME: int(row[TIME]), METRIC: float(row[METRIC])} for row in found.to_dict("records")]


@dataclass(frozen=True)
class Before:
    """A trial that ended in an earlier sitting, as a scheduler asks about it."""

    trial_id: str
    config: Mapping[str, Any]


class Watch(tune.Callback):
    """Writes down how trials end, and shows it."""

    def __init__(self, plan: Plan, record: SearchRecord, view: SearchView) -> None:
        self.plan, self.record, self.view = plan, record, view

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        self.record.saw(trial.config[TRIAL], int(result[TIME]), float(result[METRIC]))
        self.view.update()

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        number = trial.config[TRIAL]
        whole = self.record.trials[number].frame >= self.plan.spec.session_frames
        summed_up = replace(self.plan.paths, trial=number).trial_scalar.exists()
        self.record.ended(number, "done" if whole and summed_up else "stopped")
        self.view.update()

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        logger.warning(f"trial {trial.config[TRIAL]} crashed and is tried again: {_reason(trial)}")
        self.record.failed_once(trial.config[TRIAL])

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        logger.error(f"trial {trial.config[TRIAL]} failed: {_reason(trial)}")
        self.record.ended(trial.config[TRIAL], "failed", _reason(trial))
        self.view.update()

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Ray keeps a copy, which nothing here reads


def _reason(trial: Any) -> str:
    """The last line of what went wrong."""
    error = trial.get_error()
    lines = str(error).strip().splitlines() if error is not None else []
    return lines[-1] if lines else "its process is gone"


@contextmanager
def _as_interrupt() -> Iterator[list[str]]:
    """SIGTERM ends a search as Ctrl-C does, which Ray Tune listens to; the signals that came."""
    came = list[str]()
    if threading.current_thread() is not threading.main_thread():
        yield came  # only the main thread may set handlers
        return

    def handle(number: int, frame: FrameType | None) -> None:
        came.append(signal.Signals(number).name)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield came
    finally:
        signal.signal(signal.SIGTERM, before)
