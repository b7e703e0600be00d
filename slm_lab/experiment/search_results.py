"""What a search leaves behind: its table, graphs, the best specs as files to run; models of the others go."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console

from slm_lab.experiment import analysis
from slm_lab.experiment.finished import read_table
from slm_lab.experiment.paths import Paths
from slm_lab.experiment.plot import Curve, average_label, draw, mean_curve
from slm_lab.experiment.scatter import scatter_grid
from slm_lab.experiment.search_record import Drawn, SearchRecord
from slm_lab.experiment.search_trial import readable
from slm_lab.experiment.search_view import trial_table
from slm_lab.lib.io import make_folder, write_bytes, write_json, write_text
from slm_lab.spec.load import dump
from slm_lab.spec.overrides import RECORDED
from slm_lab.spec.random_baseline import baseline
from slm_lab.spec.schema import Spec
from slm_lab.spec.space import with_values
from slm_lab.spec.tree import Tree

BEST = 3  # specs written as files, where nobody asks for more
METRICS = ("frame", *analysis.SESSION_SCALARS, "consistency")


def conclude(
    spec: Spec, paths: Paths, record: SearchRecord, keep: int, best: int, extra: bool, console: Console | None = None
) -> list[str]:
    """Write table, graphs and best specs of a search as far as it came; names of the best specs, best first."""
    console = Console() if console is None else console
    ranked = record.ranked()
    if not ranked:
        return []  # stopped before anything was drawn
    found = {trial.trial: trial_metrics(spec, replace(paths, trial=trial.trial)) for trial in ranked}
    table = experiment_table(ranked, found)
    for path in (paths.experiment_table, paths.beside_spec(paths.experiment_table)):
        write_text(path, table.to_csv(index=False))
    _graphs(spec, paths, ranked, table, found, extra)
    names = best_specs(spec, paths, ranked, max(best, BEST))
    prune(paths, ranked, keep)
    console.print(trial_table(spec.name, ranked))
    console.out(f"files: {paths.predir}", highlight=False)
    return names


def trial_metrics(spec: Spec, paths: Paths) -> analysis.TrialMetrics:
    """Metrics of a trial from its tables, also where it was stopped on the way."""
    zero = baseline(spec.env.name, spec.env.kwargs) or 0.0
    sessions = []
    for session in range(spec.meta.max_session):
        kept = [paths.for_session(session).session_table(kind) for kind in ("eval", "train")]
        table = next((read_table(path) for path in kept if path.exists()), None)
        if table is not None and len(table):
            sessions.append(analysis.session_metrics(table, zero))
    return analysis.trial_metrics(sessions, max(1, len(sessions)))


def experiment_table(ranked: list[Drawn], found: Mapping[int, analysis.TrialMetrics]) -> pd.DataFrame:
    """A row for each trial, the best first: its number, what was drawn, its metrics, how it ended."""
    paths = sorted({path for trial in ranked for path in trial.values})
    rows = []
    for trial in ranked:
        scalar = found[trial.trial]["scalar"]
        metrics = {name: scalar.get(name, math.nan) if trial.status != "failed" else math.nan for name in METRICS}
        drawn = {path: _cell(trial.values.get(path)) for path in paths}
        rows.append({"trial": trial.trial, **drawn, **metrics, "status": trial.status})
    return pd.DataFrame(rows, columns=["trial", *paths, *METRICS, "status"])


def _cell(value: Any) -> Any:
    """A value as a table holds it."""
    return value if isinstance(value, int | float | str | bool) else str(value)


def _graphs(
    spec: Spec,
    paths: Paths,
    ranked: list[Drawn],
    table: pd.DataFrame,
    found: Mapping[int, analysis.TrialMetrics],
    extra: bool,
) -> None:
    """Metrics against what was drawn, and the curves of all trials."""
    metrics = [name for name in METRICS if name != "frame"] if extra else ["total_reward_ma"]
    drawn = sorted({path for trial in ranked for path in trial.values})
    image = scatter_grid(spec.name, table, drawn, metrics)
    for path in (paths.experiment_graph, paths.beside_spec(paths.experiment_graph)):
        write_bytes(path, image)
    local = {number: metrics["local"] for number, metrics in sorted(found.items()) if metrics["local"]["frames"]}
    if not local:
        return  # all failed before their first row
    for what, label, curves in (
        ("mean_returns_vs_frames", "mean return", [_curve(f"t{n}", own, average=False) for n, own in local.items()]),
        (
            "mean_returns_ma_vs_frames",
            _average(local),
            [_curve(f"t{n}", own, average=True) for n, own in local.items()],
        ),
    ):
        image = draw(spec.name, label, curves, legend="below")
        for path in (paths.multi_trial_graph(what), paths.beside_spec(paths.multi_trial_graph(what))):
            write_bytes(path, image)


def _average(local: Mapping[int, Mapping[str, Any]]) -> str:
    frames: list[float] = max((own["frames"][0] for own in local.values()), key=len, default=[])
    return average_label(np.asarray(frames, float))


def _curve(label: str, local: Mapping[str, Any], average: bool) -> Curve:
    series = [analysis.moving_average(one) if average else one for one in local["mean_returns"]]
    return replace(mean_curve(local["frames"], series, label), members=(), band=None)


def best_specs(spec: Spec, paths: Paths, ranked: list[Drawn], count: int) -> list[str]:
    """Write the best specs, each as a file to run on seeds that the search did not use; their names."""
    names = []
    for rank, trial in enumerate([trial for trial in ranked if not trial.rank[0]][:count], 1):
        name = f"{spec.name}_top{rank}"
        make_folder(paths.best_spec(rank).parent)
        reason = (
            f"trial {trial.trial} of the search in {paths.predir.name}: rank {rank}, total_reward_ma {trial.score:.2f}"
        )
        reason += "; random_seed is one that the search did not use"
        write_json(paths.best_spec(rank), {"_why": {name: {"agent": reason}}, name: _ready(spec, trial)})
        names.append(name)
    return names


def _ready(spec: Spec, trial: Drawn) -> Tree:
    """The spec of a trial as a person would write it: no record, no search, other seeds."""
    tree = dump(with_values(spec, trial.values, readable))
    kept = {key: value for key, value in tree["meta"].items() if key not in (*RECORDED, "search_scheduler")}
    kept["random_seed"] = spec.meta.random_seed + 1
    return {"agent": tree["agent"], "env": tree["env"], "meta": kept}


def prune(paths: Paths, ranked: list[Drawn], keep: int) -> None:
    """Drop model files of all but the best trials; those of trials that still run stay."""
    for trial in ranked[keep:]:
        if trial.status != "running":
            own = replace(paths, trial=trial.trial)
            for path in own.trial_files():
                if path.parent == paths.models:
                    path.unlink()
