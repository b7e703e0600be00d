"""The table and the graphs of a search, from the tables of its trials."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from slm_lab.experiment import analysis
from slm_lab.experiment.finished import read_table
from slm_lab.experiment.paths import Paths
from slm_lab.experiment.plot import Curve, average_label, draw, mean_curve
from slm_lab.experiment.scatter import scatter_grid
from slm_lab.experiment.search_record import Drawn
from slm_lab.lib.io import write_bytes, write_text

METRICS = ("frame", *analysis.SESSION_SCALARS, "consistency")


def summarise(paths: Paths, ranked: list[Drawn], planned: int, zero: float, extra: bool) -> list[Path]:
    """Write the table and the graphs of a search from the tables of its trials; `zero` is what random actions score."""
    found = {trial.trial: trial_metrics(replace(paths, trial=trial.trial), planned, zero) for trial in ranked}
    table = experiment_table(ranked, found)
    copies = [paths.experiment_table, paths.beside_spec(paths.experiment_table)]
    for path in copies:
        write_text(path, table.to_csv(index=False))
    return [*copies, *_graphs(paths, ranked, table, found, extra)]


def trial_metrics(paths: Paths, planned: int, zero: float) -> analysis.TrialMetrics:
    """Metrics of a trial from its tables, also where it was stopped on the way."""
    sessions = []
    for session in range(planned):
        kept = [paths.for_session(session).session_table(kind) for kind in ("eval", "train")]
        table = next((read_table(path) for path in kept if path.exists()), None)
        if table is not None and len(table):
            sessions.append(analysis.session_metrics(table, zero))
    return analysis.trial_metrics(sessions, max(1, len(sessions)))


def experiment_table(ranked: list[Drawn], found: Mapping[int, analysis.TrialMetrics]) -> pd.DataFrame:
    """A row for each trial, the best first: its number, what was drawn, its metrics, how it ended."""
    paths = _searched(ranked)
    rows = []
    for trial in ranked:
        scalar = found[trial.trial]["scalar"]
        metrics = {name: scalar.get(name, math.nan) if trial.status != "failed" else math.nan for name in METRICS}
        drawn = {path: _cell(trial.values.get(path)) for path in paths}
        rows.append({"trial": trial.trial, **drawn, **metrics, "status": trial.status})
    return pd.DataFrame(rows, columns=["trial", *paths, *METRICS, "status"])


def _searched(trials: list[Drawn]) -> list[str]:
    """Paths of what was drawn."""
    return sorted({path for trial in trials for path in trial.values})


def _cell(value: Any) -> Any:
    """A value as a table holds it."""
    return value if isinstance(value, int | float | str | bool) else str(value)


def _graphs(
    paths: Paths,
    ranked: list[Drawn],
    table: pd.DataFrame,
    found: Mapping[int, analysis.TrialMetrics],
    extra: bool,
) -> list[Path]:
    """Metrics against what was drawn, and the curves of all trials."""
    metrics = [name for name in METRICS if name != "frame"] if extra else ["total_reward_ma"]
    images = {paths.experiment_graph: scatter_grid(paths.name, table, _searched(ranked), metrics)}
    local = {number: metrics["local"] for number, metrics in sorted(found.items()) if metrics["local"]["frames"]}
    for average in (False, True) if local else ():  # where all failed before their first row there is no curve
        label = _average(local) if average else "mean return"
        curves = [_curve(f"t{number}", own, average) for number, own in local.items()]
        what = f"mean_returns{'_ma' * average}_vs_frames"
        images[paths.multi_trial_graph(what)] = draw(paths.name, label, curves, legend="below")
    for path, image in images.items():
        write_bytes(path, image)
        write_bytes(paths.beside_spec(path), image)
    return [copy for path in images for copy in (path, paths.beside_spec(path))]


def _average(local: Mapping[int, Mapping[str, Any]]) -> str:
    frames: list[float] = max((own["frames"][0] for own in local.values()), key=len, default=[])
    return average_label(np.asarray(frames, float))


def _curve(label: str, local: Mapping[str, Any], average: bool) -> Curve:
    series = [analysis.moving_average(one) if average else one for one in local["mean_returns"]]
    return replace(mean_curve(local["frames"], series, label), members=(), band=None)
