"""What a run is worth, as pure functions of its tables: metrics, averages, bootstrap bands, and how numbers are shown.

Letters: S sessions, K rows. A strength is a return less what random actions score. NaN marks what cannot be computed:
it is skipped in sums, takes its place in windows, and never compares as better.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypedDict

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from slm_lab.types import Array

WINDOW = 100  # rows of a table a moving average looks back over
RESAMPLES = 1000
CHUNK = 1000  # rows resampled at a time, to bound memory
SESSION_SCALARS = (
    "total_reward_ma",
    "strength",
    "max_strength",
    "final_strength",
    "sample_efficiency",
    "training_efficiency",
    "stability",
)
TRIAL_SCALARS = ("frame", *SESSION_SCALARS, "consistency")
SESSION_SERIES = (
    "mean_returns",
    "strengths",
    "sample_efficiencies",
    "training_efficiencies",
    "stabilities",
    "frames",
    "opt_steps",
)


class SessionMetrics(TypedDict):
    """Scalars, and series [K] over the rows of a session's table."""

    scalar: dict[str, float]
    local: dict[str, list[float]]


class TrialMetrics(TypedDict):
    """Means over sessions; each local metric is a list of S series, `consistencies` a single one."""

    scalar: dict[str, float]
    local: dict[str, list[list[float]] | list[float]]


def session_metrics(df: pd.DataFrame, baseline: float) -> SessionMetrics:
    """The metrics of one table of columns total_reward, frame, opt_step; `baseline` is what random actions score."""
    returns, frames, opt_steps = (_column(df, name) for name in ("total_reward", "frame", "opt_step"))
    strengths = returns - baseline
    drops = np.minimum(np.diff(strengths), 0)
    sample = _efficiencies(strengths, frames)
    training = _efficiencies(strengths, opt_steps)
    scalars = (
        _mean(returns[-WINDOW:]),
        _mean(strengths),
        float(np.nanmax(strengths)) if (~np.isnan(strengths)).any() else math.nan,
        _last(strengths),
        _last(sample),
        _last(training),
        float(1 - np.abs(_ratio(np.nansum(drops), np.nansum(strengths[:-1])))),
    )
    stabilities = 1 - np.abs(_ratio(drops, strengths[:-1]))
    if len(strengths):
        stabilities = np.concatenate([[math.nan], stabilities])  # the first row has nothing to drop from
    series = (returns, strengths, sample, training, stabilities, frames, opt_steps)
    return {
        "scalar": dict(zip(SESSION_SCALARS, scalars, strict=True)),
        "local": {key: values.tolist() for key, values in zip(SESSION_SERIES, series, strict=True)},
    }


def trial_metrics(sessions: Sequence[SessionMetrics], planned: int) -> TrialMetrics:
    """Means over the sessions there are, NaN where one of them is; says so when they are fewer than `planned`."""
    scalar = {"frame": _last(np.array(sessions[0]["local"]["frames"])) if sessions else math.nan}
    for key in SESSION_SCALARS:
        scalar[key] = float(np.mean([session["scalar"][key] for session in sessions])) if sessions else math.nan
    scalar["consistency"], consistencies = _consistency(
        [session["local"]["strengths"] for session in sessions], planned
    )
    if len(sessions) < planned:
        scalar |= {"sessions_done": len(sessions), "sessions_planned": planned}
    local: dict[str, list[list[float]] | list[float]] = {}
    for key in SESSION_SERIES:
        local[key] = [session["local"][key] for session in sessions]
        if key == "stabilities":
            local["consistencies"] = consistencies
    return {"scalar": scalar, "local": local}


def _consistency(strengths: Sequence[Sequence[float]], planned: int) -> tuple[float, list[float]]:
    """How alike the sessions are, over the run and by row [K] of the shortest: 1 - 2 std / mean over sessions."""
    rows = min((len(series) for series in strengths), default=0)
    if rows == 0:
        return math.nan, []
    if len(strengths) == 1:  # alone by plan it agrees with itself; one survivor of several says nothing
        alone = 1.0 if planned == 1 else math.nan
        return alone, [alone] * rows
    table = pd.DataFrame([series[:rows] for series in strengths], dtype=float)
    spread, mean = 2 * table.std(ddof=1).to_numpy(), table.mean().to_numpy()
    return float(1 - _ratio(np.nansum(spread), np.nansum(mean))), (1 - _ratio(spread, mean)).tolist()


def _efficiencies(strengths: Array, costs: Array) -> Array:
    """Strength earned per cost so far [K]: where a cost is 0 the term leaves the numerator only."""
    terms = _ratio(strengths, costs)
    return _ratio(np.nancumsum(terms), np.nancumsum(strengths))


def _ratio(numerator: ArrayLike, denominator: ArrayLike) -> Array:
    """Element-wise a / b, NaN where b is 0."""
    numerator, denominator = np.asarray(numerator, float), np.asarray(denominator, float)
    out: Array = np.full(denominator.shape, math.nan)
    np.divide(numerator, denominator, out=out, where=denominator != 0)
    return out


def _column(df: pd.DataFrame, name: str) -> Array:
    """A column as float64 [K]; a table without rows may come without columns."""
    return df[name].to_numpy(dtype=float) if len(df) else np.empty(0)


def _mean(values: Array) -> float:
    """The mean of what is not NaN."""
    return float(np.nanmean(values)) if (~np.isnan(values)).any() else math.nan


def _last(values: Array) -> float:
    return float(values[-1]) if len(values) else math.nan


def moving_average(values: ArrayLike, window: int = WINDOW) -> Array:
    """At each row the mean of the last `window` rows up to it [K] -> [K]; NaN rows are skipped but take their place."""
    padded = np.concatenate([np.full(window - 1, math.nan), np.asarray(values, float)])
    if len(padded) < window:
        return np.empty(0)
    windows = np.lib.stride_tricks.sliding_window_view(padded, window)
    return _ratio(np.nansum(windows, axis=1), (~np.isnan(windows)).sum(axis=1))


def better(a: float, b: float) -> bool:
    """Whether score `a` replaces `b`: at least as high, so the newest of equals is kept. NaN never beats a number."""
    return a >= b or (math.isnan(b) and not math.isnan(a))


def bootstrap_band(series: ArrayLike, level: float = 0.95, seed: int = 0) -> tuple[Array, Array]:
    """Percentile bootstrap of the mean over sessions, [S, K] -> low [K], high [K]; of one session the line itself."""
    values = np.asarray(series, float)
    sessions, rows = values.shape
    if sessions <= 1:
        line = values[0] if sessions else np.full(rows, math.nan)
        return line.copy(), line.copy()
    draws = np.random.default_rng(seed).multinomial(sessions, np.full(sessions, 1 / sessions), RESAMPLES).astype(float)
    bounds = np.full((2, rows), math.nan)
    for start in range(0, rows, CHUNK):
        bounds[:, start : start + CHUNK] = _bounds(values[:, start : start + CHUNK], draws, level)
    return bounds[0], bounds[1]


def _bounds(values: Array, draws: Array, level: float) -> Array:
    """Percentiles [2, K] of the means of sessions [S, K] drawn as often as `draws` [resamples, S] says."""
    present = ~np.isnan(values)
    means = _ratio(draws @ np.where(present, values, 0), draws @ present)
    tails = [50 * (1 - level), 50 * (1 + level)]
    bounds: Array = np.full((2, values.shape[1]), math.nan)
    known = present.any(axis=0)
    bounds[:, known] = np.nanpercentile(means[:, known], tails, axis=0)
    return bounds


def format_number(key: str, value: float) -> str:
    """A number as logs show it: frames as 1.00e+07, scores with 2 decimals, the rest with 4 significant digits."""
    if not math.isfinite(value):
        return f"{value:g}"
    if key == "frame":
        return f"{value:.2e}"
    if key in ("total_reward", "total_reward_ma"):
        return f"{value:.2f}"
    return f"{value:g}" if float(value).is_integer() else f"{value:.4g}"


def engineering(value: float) -> str:
    """A count as an axis shows it: 950, 50k, 1.25M."""
    if not math.isfinite(value):
        return f"{value:g}"
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.4g}{unit}"
    return f"{value:.4g}"


def trial_line(scalar: Mapping[str, float], done: int, planned: int) -> str:
    """The one line that scripts look for; ` | sessions:3/4` marks an incomplete trial."""
    items = [f"{key}:{format_number(key, scalar[key])}" for key in TRIAL_SCALARS]
    if done < planned:
        items.append(f"sessions:{done}/{planned}")
    return "trial_metrics: " + " | ".join(items)


def log_block(prefix: str, row: Mapping[str, float]) -> str:
    """A row of a table for reading: the prefix, then four `key:value` a line, in columns that stay from row to row."""
    width = max((len(key) for key in row), default=0) + 12
    items = [f"{key}:{format_number(key, value)}".ljust(width) for key, value in row.items()]
    lines = ["".join(items[start : start + 4]).rstrip() for start in range(0, len(items), 4)]
    return "\n".join([prefix, *lines])
