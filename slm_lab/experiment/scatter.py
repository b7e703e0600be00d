"""Metrics of a search's trials against what was drawn for them, as a grid of small graphs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from slm_lab.experiment.plot import dress, new_figure, png
from slm_lab.types import Array

SIDE = 2.6  # inches of a panel


def scatter_grid(title: str, table: pd.DataFrame, drawn: Sequence[str], metrics: Sequence[str]) -> bytes:
    """Rows are metrics, columns drawn values; a point is a trial, its colour the score. PNG bytes."""
    figure = new_figure(SIDE * max(len(drawn), 2), SIDE * len(metrics) + 0.6)
    figure.suptitle(title, fontsize=11)
    grid = figure.subplots(len(metrics), len(drawn), squeeze=False, sharey="row")
    score = table["total_reward_ma"].to_numpy(dtype=float)
    for row, metric in enumerate(metrics):
        for column, path in enumerate(drawn):
            axes = grid[row][column]
            dress(axes, "", metric if column == 0 else "", path.rpartition(".")[2] if row == len(metrics) - 1 else "")
            places, labels = _places(table[path])
            axes.scatter(places, table[metric].to_numpy(dtype=float), c=score, cmap="viridis", s=18)
            if labels:
                axes.set_xticks(range(len(labels)), labels, rotation=30, ha="right", fontsize=7)
            elif _spans_decades(places):
                axes.set_xscale("log")
    return png(figure)


def _places(values: pd.Series) -> tuple[Array, list[str]]:
    """Where trials lie on an axis, and its labels where values are not numbers."""
    numbers = pd.to_numeric(values, errors="coerce")
    if numbers.notna().all() and values.dtype != bool:
        return numbers.to_numpy(dtype=float), []
    labels = sorted(set(map(str, values)))
    return np.array([labels.index(str(value)) for value in values], float), labels


def _spans_decades(values: Array) -> bool:
    positive = bool(len(values)) and float(values.min()) > 0
    return positive and float(values.max() / values.min()) > 30
