"""Graphs as PNG files: a session's curves, and a trial's mean over sessions with its bootstrap band."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from slm_lab.experiment.analysis import WINDOW, bootstrap_band, engineering, moving_average
from slm_lab.experiment.paths import Kind, Paths
from slm_lab.lib.io import write_bytes
from slm_lab.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INCHES, DPI = 5, 200
# told apart by the colour-blind too
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D31", "#4D4D4D")
BAND = "95 % bootstrap band"
SPARSE = 30  # points below which a line shows each of them
COLUMNS = ("loss", "explore_var", "entropy")
EXTRA = ("strengths", "sample_efficiencies", "training_efficiencies", "stabilities", "consistencies")
NAMES = {
    "mean_returns": "mean return",
    "strengths": "strength",
    "sample_efficiencies": "sample efficiency",
    "training_efficiencies": "training efficiency",
    "stabilities": "stability",
    "consistencies": "consistency",
    "explore_var": "exploration",
}
UP_TO_ONE = ("stabilities", "consistencies")  # ratios that shoot far below zero where a strength is near it


@dataclass(frozen=True)
class Curve:
    """A line over frames [K]; with `members` (frames, values) of single sessions, and the band around their mean.

    Without a `color` of its own it takes the next one that the graph has.
    """

    label: str
    frames: Array
    values: Array
    band: tuple[Array, Array] | None = None
    members: tuple[tuple[Array, Array], ...] = ()
    color: str | None = None


def session_graphs(df: pd.DataFrame, spec_name: str, paths: Paths, kind: Kind) -> list[Path]:
    """Draw a session's table: returns, their moving average, and what there is of loss, exploration and entropy."""
    frames, returns = _floats(df.get("frame", ())), _floats(df.get("total_reward", ()))
    series = {
        "mean_returns_vs_frames": (NAMES["mean_returns"], returns),
        "mean_returns_ma_vs_frames": (average_label(frames), moving_average(returns)),
    }
    for column in COLUMNS:
        if column in df:
            series[f"{column}_vs_frame"] = (NAMES.get(column, column), _floats(df[column]))
    drawn = []
    for what, (label, values) in series.items():
        path = paths.session_graph(kind, what)
        write_bytes(path, draw(spec_name, label, [Curve(f"session {paths.session}", frames, values)]))
        drawn.append(path)
    return drawn


def trial_graphs(local: dict[str, Any], spec_name: str, paths: Paths, extra: bool = False) -> list[Path]:
    """Draw a trial's local metrics: returns and their average, also beside the spec; with `extra` all the others."""
    frames = [_floats(series) for series in local["frames"]]
    averages = [moving_average(_floats(series)) for series in local["mean_returns"]]
    longest = max(frames, key=len, default=np.empty(0))
    returns = {
        "mean_returns_vs_frames": (NAMES["mean_returns"], mean_curve(frames, local["mean_returns"])),
        "mean_returns_ma_vs_frames": (average_label(longest), mean_curve(frames, averages)),
    }
    drawn = []
    for what, (label, curve) in returns.items():
        image, path = draw(spec_name, label, [curve]), paths.trial_graph(what)
        for copy in (path, paths.beside_spec(path)):
            write_bytes(copy, image)
            drawn.append(copy)
    for metric in EXTRA if extra else ():
        curve, path = _metric_curve(metric, frames, local[metric]), paths.trial_graph(f"{metric}_vs_frames")
        write_bytes(path, draw(spec_name, NAMES[metric], [curve], metric in UP_TO_ONE))
        drawn.append(path)
    return drawn


def _metric_curve(metric: str, frames: Sequence[Array], series: Any) -> Curve:
    """One metric of a trial; `consistencies` is already one series over all sessions."""
    if metric != "consistencies":
        return mean_curve(frames, series)
    values = _floats(series)
    shortest = min((own for own in frames if len(own)), key=len, default=np.empty(0))
    rows = min(len(values), len(shortest))
    return Curve("trial", shortest[:rows], values[:rows])


def mean_curve(frames: Sequence[ArrayLike], series: Sequence[ArrayLike], label: str = "") -> Curve:
    """The mean over sessions with its 95 % band, on the frames all of them have; sessions without rows are left out."""
    members = tuple((_floats(x), _floats(y)) for x, y in zip(frames, series, strict=True) if len(_floats(x)))
    if not members:
        return Curve(label or "no sessions", np.empty(0), np.empty(0))
    shared = reduce(np.intersect1d, (x for x, _ in members))
    table = np.stack([y[np.isin(x, shared)] for x, y in members])
    present = (~np.isnan(table)).sum(axis=0)
    mean = np.divide(np.nansum(table, axis=0), present, out=np.full(len(shared), np.nan), where=present > 0)
    if len(members) == 1:
        return Curve(label or "session", shared, mean)
    return Curve(label or f"mean of {len(members)} sessions", shared, mean, bootstrap_band(table), members)


def draw(
    title: str,
    ylabel: str,
    curves: Sequence[Curve],
    up_to_one: bool = False,
    xlabel: str = "frames",
    legend: Literal["inside", "below", "none"] = "inside",
) -> bytes:
    """One graph, over frames unless told, as PNG bytes."""
    figure = new_figure(INCHES, INCHES)
    axes = figure.add_subplot()
    dress(axes, title, ylabel, xlabel)
    known = [curve for curve in curves if np.isfinite(curve.values).any()]
    for index, curve in enumerate(known):
        _add(axes, curve, curve.color or COLORS[index % len(COLORS)], alone=len(known) == 1)
    if not known:
        axes.text(0.5, 0.5, "nothing to draw yet", transform=axes.transAxes, ha="center", va="center", color="0.5")
        axes.set(xticks=[], yticks=[])
    elif up_to_one:
        axes.set_ylim(bottom=max(axes.get_ylim()[0], -1.05), top=1.05)
    if len(known) > 1 and any(curve.band is not None for curve in known):
        axes.fill_between([], [], [], color="0.5", alpha=0.25, linewidth=0, label=BAND)
    entries = axes.get_legend_handles_labels()[0]
    if legend == "inside" and len(entries) > 1:
        axes.legend(loc="best", fontsize=8, framealpha=0.8, edgecolor="0.9")
    elif legend == "below":
        figure.legend(loc="outside lower center", fontsize=8, ncols=min(3, len(entries)), frameon=False)
    return png(figure)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)  # the figure keeps it: no window system, no state shared between figures
    return figure


def png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _add(axes: Axes, curve: Curve, color: str, alone: bool) -> None:
    """A curve: its sessions thin, its band pale, its line on top; one that is `alone` explains all of them."""
    for number, (frames, values) in enumerate(curve.members):
        label = "single sessions" if alone and number == 0 else ""
        axes.plot(frames, values, color=color, alpha=0.35, linewidth=0.6, label=label)
    if curve.band is not None:
        axes.fill_between(curve.frames, *curve.band, color=color, alpha=0.2, linewidth=0, label=BAND if alone else "")
    marker = "o" if np.isfinite(curve.values).sum() < SPARSE else ""
    width = 1.6 if curve.members else 1.2
    axes.plot(curve.frames, curve.values, color=color, linewidth=width, marker=marker, markersize=3, label=curve.label)


def dress(axes: Axes, title: str, ylabel: str, xlabel: str) -> None:
    """Title, labels, a pale grid and ticks such as 50k."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set_title(title, fontsize=min(11, 480 / max(len(title), 1)), parse_math=False)
    axes.set_xlabel(xlabel, fontsize=9)
    axes.set_ylabel(ylabel, fontsize=9)
    axes.tick_params(labelsize=8, color="0.7")
    axes.grid(color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.margins(x=0.02)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color("0.7")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(7, steps=[1, 2, 2.5, 5, 10]))
        axis.set_major_formatter(FuncFormatter(lambda value, _: engineering(value)))


def average_label(frames: Array) -> str:
    """The moving average's window in rows and, as rows stand apart differently from run to run, in frames."""
    spacing = f" = {engineering(WINDOW * float(np.median(np.diff(frames))))} frames" if len(frames) > 1 else ""
    return f"mean return, average of the last {WINDOW} rows{spacing}"


def _floats(values: Any) -> Array:
    """Numbers as float64 [K], null as NaN."""
    return np.asarray(values, dtype=float)
