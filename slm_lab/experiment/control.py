"""Runs by mode: a new run, the rest of an interrupted one, a look at a trained one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from loguru import logger
from rich.console import Console

from slm_lab.env import has_engines
from slm_lab.env.choose import choose_vectorization
from slm_lab.experiment.check import preflight
from slm_lab.experiment.computing import Wanted, choose_computing
from slm_lab.experiment.display import Display
from slm_lab.experiment.hogwild import as_workers
from slm_lab.experiment.hub import Hub
from slm_lab.experiment.hub_sync import Uploads
from slm_lab.experiment.lock import alone
from slm_lab.experiment.paths import Paths
from slm_lab.experiment.progress import summary
from slm_lab.experiment.record import git_state, machine, versions
from slm_lab.experiment.search_record import SearchResult
from slm_lab.experiment.server import warm_up
from slm_lab.experiment.session import Options
from slm_lab.experiment.trial import Audience, Trial, TrialOptions, TrialResult, summary_rows
from slm_lab.lib.cores import cores
from slm_lab.lib.errors import LabError, SpecError
from slm_lab.lib.io import read_json, write_json
from slm_lab.spec.load import Loaded, difference, dump, from_mapping
from slm_lab.spec.modes import for_mode
from slm_lab.spec.schema import Spec


@dataclass(frozen=True)
class RunOptions:
    """What the command line or a caller from Python may choose; of it `threads` and `compile` change numbers."""

    data_dir: Path = Path("data")
    jobs: int | None = None  # sessions at once; None for one a core
    threads: int | None = None  # torch threads of a session; None for the rule
    compile: Wanted | None = None  # None for what the spec says
    checkpoint_every: float = 30.0
    render: bool = False
    log_level: str = "INFO"
    log_extra: bool = False
    profile: bool = False
    share: int = 1  # runs that use this machine at the same time
    ray_address: str | None = None  # of a cluster that sessions and trials spread over
    keep: int = 3  # best trials of a search whose models stay
    validate: int = 0  # best trials of a search that are trained anew, on seeds it never used
    hub: Hub | None = None  # where the run is pushed to
    upload_every: float = 10.0  # minutes


@dataclass(frozen=True)
class RunResult:
    """Where a run is and what it came to; neither trial nor search where there was nothing to do."""

    predir: Path
    trial: TrialResult | None = None
    search: SearchResult | None = None


Logging = Callable[[Path | None, Console | None], None]  # (file, console) -> None: where log lines go from now on


@dataclass(frozen=True)
class Prepared:
    """A run that is ready to go: checked, recorded, with a folder of its own; `said` is for its log."""

    spec: Spec
    paths: Paths
    said: Loaded
    resume: bool


def start(loaded: Loaded, mode: str, options: RunOptions, logging: Logging) -> RunResult:
    """A new run of a spec in mode dev or train."""
    return _run(prepare(loaded, mode, options), mode, options, logging)


def resume(loaded: Loaded, mode: str, target: str, options: RunOptions, logging: Logging) -> RunResult:
    """The rest of an interrupted run: the same numbers as if it had never stopped."""
    predir = Paths.latest(options.data_dir, loaded.spec.name) if target == "latest" else run_folder(Path(target))
    return _run(prepare_rest(loaded, mode, predir, options), mode, options, logging)


def prepare(loaded: Loaded, mode: str, options: RunOptions) -> Prepared:
    """A new run: fails where it cannot run, before anything is written."""
    notes, facts = list(loaded.notes), list(loaded.applied)
    spec = as_workers(for_mode(loaded.spec, mode), notes)
    if spec.meta.max_session > 1 and options.ray_address is None:
        warm_up()
    spec = _recorded(spec, 0, mode, options, notes, facts)
    paths = Paths.new(options.data_dir, spec.name, datetime.now())
    spec = with_meta(spec, experiment_ts=paths.predir.name.removeprefix(f"{spec.name}_"))
    paths.make_folders()
    write_json(paths.experiment_spec, dump(spec))
    return Prepared(spec, paths, replace(loaded, notes=notes, applied=facts), resume=False)


def prepare_drawn(spec: Spec, paths: Paths, options: RunOptions) -> Prepared:
    """A trial of a search, in the search's folder: its rest where it was begun with the same values, else all of it."""
    notes, facts = list[str](), list[str]()
    spec = as_workers(spec, notes)
    if paths.trial_spec.exists():
        saved = read_saved(paths.trial_spec)
        if not difference(saved, spec):
            return Prepared(saved, paths, Loaded(saved, [], []), resume=True)
        for path in paths.trial_files():
            path.unlink()
    spec = _recorded(spec, paths.trial, "search", options, notes, facts)
    return Prepared(spec, paths, Loaded(spec, notes, facts), resume=False)


def prepare_rest(loaded: Loaded, mode: str, predir: Path, options: RunOptions) -> Prepared:
    """The rest of the run in a folder; fails where the spec has changed."""
    paths = Paths(predir, loaded.spec.name)
    if not paths.trial_spec.exists():
        raise LabError(f"{predir}: not a run of spec {loaded.spec.name!r}: there is no {paths.trial_spec.name}.")
    saved, notes, facts = read_saved(paths.trial_spec), list(loaded.notes), list(loaded.applied)
    spec = _continued(saved, as_workers(for_mode(loaded.spec, mode), notes), predir)
    preflight(spec, notes, facts, _jobs(spec, options) * options.share)
    threads, compiled = saved.meta.record.get("threads", 1), saved.meta.record.get("compiled", False)
    if options.threads not in (None, threads):
        notes.append(f"--threads: this run keeps the {threads} it was started with, for sums depend on it.")
    if options.compile not in (None, "auto", compiled):
        kind = "compiled" if compiled else "as Python runs it"
        notes.append(f"--compile: this run goes on {kind}, as it was started, for sums depend on it.")
    before, now = saved.meta.record.get("versions", {}), versions()
    notes.extend(
        f"{name} was {before[name]} when this run started and is {now.get(name)} now: numbers may differ."
        for name in before
        if before[name] != now.get(name)
    )
    paths.make_folders()
    return Prepared(spec, paths, replace(loaded, notes=notes, applied=facts), resume=True)


def read_saved(path: Path) -> Spec:
    """The spec that a run recorded."""
    data = read_json(path)
    if not isinstance(data, dict) or "name" not in data:
        raise SpecError(f"{path}: not the spec of a run.")
    return from_mapping(data, str(data["name"])).spec


def run_folder(path: Path) -> Path:
    if not path.is_dir():
        raise LabError(f"{path}: no such run folder.")
    return path


def _continued(saved: Spec, asked: Spec, predir: Path) -> Spec:
    """The saved spec, with more frames where those are asked for; any other difference is refused."""
    allowed = ("env.max_frame",) if asked.env.max_frame > saved.env.max_frame else ()
    refuse_changes(saved, asked, predir, "only env.max_frame may grow", allowed)
    return _with_env(saved, max_frame=asked.env.max_frame)


def refuse_changes(saved: Spec, asked: Spec, predir: Path, rule: str, allowed: Sequence[str] = ()) -> None:
    """Raise where a spec differs from the saved one at a path that is not allowed to."""
    refused = [line for line in difference(saved, asked) if line.partition(":")[0] not in allowed]
    if refused:
        shown = "\n".join(f"  {line}" for line in refused)
        raise SpecError(f"{predir}: the spec has changed; {rule}. Saved -> now:\n{shown}")


def _recorded(spec: Spec, trial: int, mode: str, options: RunOptions, notes: list[str], facts: list[str]) -> Spec:
    """The spec with what was chosen for this run and what it runs on; fails here where it cannot run."""
    at_once = _jobs(spec, options) * options.share
    flight = preflight(spec, notes, facts, at_once)
    wanted = spec.meta.compile if options.compile is None else options.compile
    # not by how many really run at once: threads change numbers, and `--jobs` must not
    planned = _jobs(spec, RunOptions()) * options.share
    computing = choose_computing(spec, flight.plan, flight.agent, wanted, options.threads, planned)
    facts.append(computing.said)
    if not has_engines(spec.env):
        chosen = "sync"
    elif spec.env.vectorization == "auto":
        chosen = choose_vectorization(spec.env, (spec.meta.random_seed, 0, 0), at_once)
    else:
        chosen = spec.env.vectorization
    record: dict[str, Any] = {
        "mode": mode,
        "threads": computing.threads,
        "compiled": computing.compiled,
        "env_threads": max(1, cores() // at_once),
        "vectorization": chosen,
        "env_exact": flight.exact,
        "repeatable": spec.workers == 1,
    }
    return with_surroundings(with_meta(spec, trial=trial), record)


def with_surroundings(spec: Spec, record: dict[str, Any]) -> Spec:
    """The spec with a run's record, to which this adds where it ran and on what code."""
    git = git_state()
    around = {"versions": versions(), "machine": machine(), "git_dirty": git["dirty"]}
    return with_meta(spec, git_sha=git["sha"], record=record | around)


def trial_of(run: Prepared, mode: str, options: RunOptions, display: Audience, last_episodes: int = 0) -> Trial:
    """The trial of a prepared run."""
    record = run.spec.meta.record
    session = Options(
        options.checkpoint_every,
        checks=record.get("mode", mode) == "dev",
        render=options.render,
        env_threads=int(record.get("env_threads", 1)),
        last_episodes=last_episodes,
        profile=options.profile,
    )
    trial_options = TrialOptions(
        session,
        _jobs(run.spec, options),
        int(record.get("threads", 1)),
        options.log_level,
        options.log_extra,
        run.resume,
    )
    return Trial(
        _with_env(run.spec, vectorization=record.get("vectorization", "sync")), run.paths, trial_options, display
    )


def _run(run: Prepared, mode: str, options: RunOptions, logging: Logging) -> RunResult:
    spec, paths = run.spec, run.paths
    display = Display(spec.name, spec.meta.max_session, spec.session_frames)
    trial = trial_of(run, mode, options, display)
    if run.resume and trial.summed_up():
        logging(None, None)  # a finished run's files stay as they are
        logger.info(f"{paths.predir}: this run is finished ({spec.env.max_frame} frames); nothing to do.")
        return RunResult(paths.predir)
    with alone(paths.predir, paths.models):
        logging(paths.trial_log, display.progress.console if display.progress.live is not None else None)
        announce(run.said, paths, run.resume)
        begin(run)
        with uploads(paths.predir, options):
            result = trial.run() if options.ray_address is None else _over(trial, options.ray_address)
    rows = summary_rows(spec, paths, result.failures)
    summary(spec.name, rows, spec.meta.max_session, spec.meta.log_frequency, paths.predir)
    return RunResult(paths.predir, result)


def announce(said: Loaded, paths: Paths, resume: bool) -> None:
    """Log what was changed in a spec, what is odd about it, and where the run is."""
    for line in said.applied:
        logger.info(line)
    for note in dict.fromkeys(said.notes):
        logger.warning(note)
    logger.info(f"{'continuing' if resume else 'writing to'} {paths.predir}")


def _over(trial: Trial, address: str) -> TrialResult:
    """Run a trial with its sessions spread over a Ray cluster."""
    from slm_lab.experiment.ray_child import sessions_on  # imports Ray, which is installed only where it is wanted

    with sessions_on(address) as (begin, room):
        jobs = max(1, min(trial.spec.meta.max_session, room.cpus // trial.options.threads))
        logger.info(f"{jobs} sessions at once on {room}")
        trial.options = replace(trial.options, begin=begin, jobs=jobs)
        return trial.run()


def uploads(folder: Path, options: RunOptions) -> AbstractContextManager[object]:
    """Pushes a folder now and then and at the end, where that is asked for."""
    return nullcontext() if options.hub is None else Uploads(options.hub, folder, options.upload_every)


def begin(run: Prepared) -> None:
    """Clear away what a kill left behind, and write down what is run."""
    clear(run.paths)
    write_json(run.paths.trial_spec, dump(run.spec))


def clear(paths: Paths) -> None:
    """Remove what a kill left behind in a run's folder, on which nobody else may be at work."""
    for path in paths.leftovers():
        path.unlink()


def _jobs(spec: Spec, options: RunOptions) -> int:
    """Sessions at once; workers that train together do so at the same time, however few the cores."""
    return spec.workers if spec.workers > 1 else max(1, min(options.jobs or cores(), spec.meta.max_session))


def with_meta(spec: Spec, **update: Any) -> Spec:
    return spec.model_copy(update={"meta": spec.meta.model_copy(update=update)})


def _with_env(spec: Spec, **update: Any) -> Spec:
    return spec.model_copy(update={"env": spec.env.model_copy(update=update)})
