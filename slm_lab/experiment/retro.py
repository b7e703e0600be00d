"""Metrics and graphs of a run made again from its tables; tables, models and specs are only read."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from slm_lab.experiment import analysis
from slm_lab.experiment.finished import Finished, described, read_table, trials
from slm_lab.experiment.lock import alone
from slm_lab.experiment.metric_files import write_session, write_trial
from slm_lab.experiment.paths import Kind, Paths
from slm_lab.experiment.plot import session_graphs
from slm_lab.experiment.search_record import SearchRecord
from slm_lab.experiment.search_results import summarise
from slm_lab.lib.errors import LabError
from slm_lab.lib.io import make_folder

KINDS: tuple[Kind, Kind] = ("train", "eval")


@dataclass(frozen=True)
class Retro:
    """Which files were written, the line of each trial, and what could not be done."""

    written: list[Path] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def retro(folder: Path, extra_graphs: bool = False) -> Retro:
    """Write metrics and graphs of every trial of a run folder, of this lab or of public SLM-Lab."""
    done = Retro()
    runs = [described(folder, trial) for trial in trials(folder)] or [described(folder)]  # which says what is missing
    with _nobody_else(runs[0].paths):
        for folder_name in ("info", "graph"):
            make_folder(folder / folder_name)
        for run in runs:
            _retro_trial(run, extra_graphs, done)
        if runs[0].search and runs[0].paths.trial_data.exists():
            _retro_search(runs[0], extra_graphs, done)
    if not done.written:
        raise LabError(f"{folder}: nothing to compute: no session has a table with rows in its info folder.")
    return done


def _retro_search(run: Finished, extra_graphs: bool, done: Retro) -> None:
    """The table and the graphs over all trials of a search."""
    try:
        ranked = SearchRecord.at(run.paths).ranked()
    except LabError as error:  # public SLM-Lab kept other things in a file of that name
        done.notes.append(f"{error} Its trials are done one by one.")
        return
    done.written.extend(summarise(run.paths, ranked, run.planned, run.baseline or 0.0, extra_graphs))


def _nobody_else(paths: Paths) -> AbstractContextManager[None]:
    """Keep a run from going on meanwhile; without a model folder none can."""
    return alone(paths.predir, paths.models) if paths.models.is_dir() else nullcontext()


def _retro_trial(run: Finished, extra_graphs: bool, done: Retro) -> None:
    if run.baseline is None:
        done.notes.append(f"{run.env_key}: nobody measured what random actions score; strengths are counted from 0.")
    found = [_retro_session(run, k, done) for k in range(run.planned)]
    sessions = [session for session in found if session is not None]
    if sessions:
        metrics = analysis.trial_metrics(sessions, run.planned)
        done.written.extend(write_trial(run.paths, run.name, metrics, extra_graphs))
        done.lines.append(analysis.trial_line(metrics["scalar"], len(sessions), run.planned))


def _retro_session(run: Finished, session: int, done: Retro) -> analysis.SessionMetrics | None:
    """Graphs of a session as far as it went; its metrics, and those the trial counts, where it is complete."""
    paths = run.paths.for_session(session)
    found = {kind: paths.session_table(kind) for kind in KINDS}
    tables = {kind: read_table(path) for kind, path in found.items() if path.exists()}
    for kind, table in tables.items():
        if len(table) and kind in ("train", run.kind):  # without evaluations the second table is a copy of the first
            done.written.extend(session_graphs(table, run.name, paths, kind))
    scored = tables.get(run.kind, pd.DataFrame())
    if not len(scored) or not run.complete(scored["frame"].to_numpy(dtype=float)):
        reached = f"stopped at frame {scored['frame'].iloc[-1]:.0f}" if len(scored) else "has no rows"
        name, budget = paths.session_name, run.session_frames
        done.notes.append(f"{name}: {reached} of {budget} frames; it gets no metrics and does not count.")
        return None
    metrics = {kind: analysis.session_metrics(table, run.baseline or 0.0) for kind, table in tables.items()}
    for kind in metrics:
        done.written.extend(write_session(paths, kind, metrics[kind]))
    return metrics[run.kind]
