"""Families of runs, several algorithms in the same envs: robust averages with intervals, and performance profiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from slm_lab.experiment import statistics
from slm_lab.experiment.finished import Finished
from slm_lab.experiment.multi_plot import HSL, check_labels, colors, refuse_mixed_frames, write_graph
from slm_lab.experiment.plot import Curve, draw, dress, new_figure, png
from slm_lab.experiment.statistics import Interval, Profile
from slm_lab.lib.errors import LabError
from slm_lab.types import Array

SCALE = "score (0 = random actions, 1 = best mean score of these runs, by env)"
POINTS = 201  # scores at which a profile is computed

Cells = dict[str, dict[str, Finished]]  # label -> env -> run


@dataclass(frozen=True)
class Aggregate:
    """What the runs of one label come to over all envs, in normalised scores."""

    label: str
    color: str
    iqm: Interval
    median: Interval
    gap: Interval
    profile: Profile


def aggregate(runs: Sequence[Finished], labels: Sequence[str] = (), mix_frames: bool = False) -> list[Aggregate]:
    """Average runs over envs; those of one label belong together, and every label must have the same envs."""
    cells = _cells(runs, labels)
    for env in next(iter(cells.values())):
        if not mix_frames:
            refuse_mixed_frames([row[env] for row in cells.values()])
    scores = normalised(cells)
    taus = _taus([values for row in scores.values() for values in row.values()])
    chosen = colors([next(iter(row.values())).algorithm for row in cells.values()])
    return [
        Aggregate(
            label,
            color,
            statistics.interval(statistics.interquartile_mean, row),
            statistics.interval(statistics.median, row),
            statistics.interval(statistics.optimality_gap, row),
            statistics.performance_profile(row, taus),
        )
        for (label, row), color in zip(scores.items(), chosen, strict=True)
    ]


def _cells(runs: Sequence[Finished], labels: Sequence[str]) -> Cells:
    """Runs by label, in the order of legends unless labels are given, and env."""
    check_labels(runs, labels)
    names = list(labels) or [run.algorithm for run in runs]
    places = list(dict.fromkeys(names) if labels else dict.fromkeys([*HSL, *names]))
    cells: Cells = {label: {} for label in places if label in names}
    for label, run in zip(names, runs, strict=True):
        other = cells[label].setdefault(run.env_key, run)
        if other is not run:
            folders = f"{other.folder.name} and {run.folder.name}"
            raise LabError(f"{label} has two runs of {run.env_key}: {folders}. Tell them apart with labels (-l).")
    envs = dict.fromkeys(run.env_key for run in runs)
    missing = [f"{label} in {env}" for label, row in cells.items() for env in envs if env not in row]
    if missing:
        raise LabError(f"averages over envs need every label in every env; there is no run of {', '.join(missing)}.")
    return {label: {env: row[env] for env in envs} for label, row in cells.items()}


def normalised(cells: Cells) -> dict[str, dict[str, Array]]:
    """Scores [S] by label and env, moved so that random actions score 0 and the label with the best mean 1."""
    scores: dict[str, dict[str, Array]] = {label: {} for label in cells}
    for env in next(iter(cells.values())):
        own = {label: row[env] for label, row in cells.items()}
        zero, best = _ends(env, list(own.values()))
        for label, run in own.items():
            scores[label][env] = (run.scores - zero) / (best - zero)
    return scores


def _ends(env: str, runs: Sequence[Finished]) -> tuple[float, float]:
    """Which returns of an env are 0 and 1."""
    for run in runs:
        if np.isnan(run.scores).any():
            raise LabError(f"{run.folder}: a session has no score, for none of its last episodes ended.")
    zero = runs[0].baseline
    if zero is None:
        raise LabError(
            f"{env}: nobody measured what random actions score there, which is the zero of averages over envs. "
            "`slm-lab baseline ENV -s KEY=VALUE` measures it."
        )
    best = max(float(run.scores.mean()) for run in runs)
    if best <= zero:
        raise LabError(f"{env}: no run scores more than random actions ({zero:g}), so that there is no scale for it.")
    return zero, best


def _taus(scores: Sequence[Array]) -> Array:
    pooled = np.concatenate(scores)
    return np.linspace(min(0.0, float(pooled.min())), max(1.0, float(pooled.max())), POINTS)


def aggregate_graphs(aggregates: Sequence[Aggregate], output: Path, title: str) -> list[Path]:
    """Draw averages with intervals, and profiles."""
    curves = [
        Curve(one.label, one.profile.taus, one.profile.share, (one.profile.low, one.profile.high), color=one.color)
        for one in aggregates
    ]
    profiles = draw(title, "share of runs that score more", curves, xlabel=SCALE, legend="below")
    return [
        write_graph(output, title, "aggregate_scores", _intervals(aggregates, title)),
        write_graph(output, title, "performance_profile", profiles),
    ]


def _intervals(aggregates: Sequence[Aggregate], title: str) -> bytes:
    """A row for each label, a panel for each average; bars are intervals, ticks the averages."""
    figure = new_figure(7.5, 1.6 + 0.4 * len(aggregates))
    panels = {
        "interquartile mean": [one.iqm for one in aggregates],
        "median over envs": [one.median for one in aggregates],
        "optimality gap (less is better)": [one.gap for one in aggregates],
    }
    for axes, (name, values) in zip(figure.subplots(1, len(panels), sharey=True), panels.items(), strict=True):
        dress(axes, name, "", "")
        for row, (one, (value, low, high)) in enumerate(zip(aggregates, values, strict=True)):
            axes.barh(row, high - low, left=low, height=0.5, color=one.color, alpha=0.6)
            axes.plot([value, value], [row - 0.25, row + 0.25], color="0.1", linewidth=1.5)
        axes.set_yticks(range(len(aggregates)), [one.label for one in aggregates])
        axes.title.set_size(9)
        axes.grid(visible=False, axis="y")
        axes.use_sticky_edges = False  # bars would stand at the very edge
        axes.margins(x=0.1)
    axes.invert_yaxis()  # shared by all panels
    figure.suptitle(title, fontsize=11, parse_math=False)
    figure.supxlabel(f"{SCALE}; bars are 95 % bootstrap intervals", fontsize=8)
    return png(figure)
