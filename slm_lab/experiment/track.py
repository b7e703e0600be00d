"""A session's running score and its table: rows are appended as they come and cut back when a session resumes."""

from __future__ import annotations

import csv
import math
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from slm_lab.lib.errors import RunError
from slm_lab.lib.io import sync, write_text
from slm_lab.types import Clock, Metrics, State

WINDOW = 100  # episodes in total_reward, and rows in total_reward_ma
COLUMNS = (
    *("total_reward", "total_reward_ma", "loss", "fps", "frame", "wall_t", "t", "epi", "opt_step", "lr"),
    "nan_skips",
)
Row = dict[str, float | int]


class Tracker:
    """Returns of the last episodes, the moving average of rows, the best of it, and how many rows were written."""

    def __init__(self, table: Path | None, extra: Sequence[str] = ()) -> None:
        self.table, self.columns = table, (*COLUMNS, *extra)
        self.returns: deque[float] = deque(maxlen=WINDOW)
        self.rewards: deque[float] = deque(maxlen=WINDOW)  # total_reward of the last rows
        self.best = -math.inf
        self.rows = 0
        self.latest: Metrics = {}  # what the last update reported

    def add(self, returns: Sequence[float]) -> None:
        """Take in the raw returns of episodes that just ended."""
        self.returns.extend(returns)

    @property
    def total_reward(self) -> float:
        return float(np.mean(self.returns)) if self.returns else math.nan

    def row(self, clock: Clock, metrics: Mapping[str, float], total_reward: float | None = None) -> Row:
        """One row of the table, appended to its file. Evaluation gives its own `total_reward`."""
        self.rewards.append(self.total_reward if total_reward is None else total_reward)
        known = [reward for reward in self.rewards if not math.isnan(reward)]
        wall = int(clock.wall_t)
        row: Row = {
            "total_reward": self.rewards[-1],
            "total_reward_ma": float(np.mean(known)) if known else math.nan,
            "loss": metrics.get("loss", math.nan),
            "fps": clock.frame / clock.wall_t if clock.wall_t > 0 else 0.0,
            "frame": clock.frame,
            "wall_t": wall,
            "t": clock.t,
            "epi": clock.epi,
            "opt_step": clock.opt_step,
            "lr": metrics.get("lr", math.nan),
            "nan_skips": int(metrics.get("nan_skips", 0)),
        }
        row |= {key: metrics.get(key, math.nan) for key in self.columns[len(COLUMNS) :]}
        self._append(row)
        return row

    def improved(self, row: Row) -> bool:
        """Whether this row is the best so far; NaN never is."""
        if not row["total_reward_ma"] >= self.best:
            return False
        self.best = float(row["total_reward_ma"])
        return True

    def _append(self, row: Row) -> None:
        self.rows += 1
        if self.table is None:
            return
        with open(self.table, "a" if self.rows > 1 else "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            if self.rows == 1:
                writer.writerow(self.columns)
            writer.writerow("" if math.isnan(row[key]) else row[key] for key in self.columns)

    def state_dict(self) -> State:
        return {
            "returns": list(self.returns),
            "rewards": list(self.rewards),
            "best": self.best,
            "rows": self.rows,
            "latest": dict(self.latest),
        }

    def load_state_dict(self, state: State) -> None:
        self.returns = deque(state["returns"], maxlen=WINDOW)
        self.rewards = deque(state["rewards"], maxlen=WINDOW)
        self.best, self.rows, self.latest = state["best"], state["rows"], dict(state["latest"])
        self._cut()

    def sync(self) -> None:
        """Make the table durable: a checkpoint counts on its rows."""
        if self.table is not None and self.rows:
            sync(self.table)

    def _cut(self) -> None:
        """Drop rows written after the checkpoint: they come again, the same."""
        if self.table is None or not self.rows:  # the first row starts the table anew
            return
        lines = self.table.read_text().splitlines(keepends=True) if self.table.exists() else []
        if len(lines) < self.rows + 1:
            found = f"{max(len(lines) - 1, 0)} of the {self.rows} rows its checkpoint counts on"
            raise RunError(f"{self.table}: holds {found}; bring it back, or delete the session's checkpoints.")
        if len(lines) > self.rows + 1:
            write_text(self.table, "".join(lines[: self.rows + 1]))
