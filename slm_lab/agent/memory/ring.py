"""Rows of experience in a ring of preallocated tensors: the newest overwrite the oldest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from slm_lab.types import Array, Rows, Shape

Layout = Mapping[str, tuple[Shape, "np.dtype[np.generic]"]]  # column -> shape and type of one row
PIECE = 16 << 20  # bytes that are saved in one piece


class Ring:
    """`rows` rows of `width` slots each, numbered from 0 for ever; column tensors are [rows * width, ...]."""

    def __init__(self, layout: Layout, rows: int, width: int = 1) -> None:
        self.rows, self.width, self.slots = rows, width, rows * width
        self.columns = {
            # numpy's zeros are not in memory before they are written, torch's are
            name: torch.from_numpy(np.zeros((self.slots, *shape), dtype))
            for name, (shape, dtype) in layout.items()
        }
        self.views = {name: column.numpy() for name, column in self.columns.items()}
        self.written = 0  # rows ever

    @property
    def first(self) -> int:
        """Number of the oldest row that is still there."""
        return max(0, self.written - self.rows)

    def slot(self, row: int) -> int:
        """The first slot of a row."""
        return row % self.rows * self.width

    def write(self, values: Mapping[str, Array]) -> None:
        """The next row: [width, ...] for each column."""
        start = self.slot(self.written)
        for name, value in values.items():
            self.views[name][start : start + self.width] = value
        self.written += 1

    def extend(self, values: Mapping[str, Array]) -> Array:
        """Any number of next rows, [rows * width, ...] for each column; the slots of those that are still there."""
        count = len(next(iter(values.values()))) // self.width
        kept = min(count, self.rows)
        slots = self._slots(self.written + count - kept, kept)
        for name, value in values.items():
            self.views[name][slots] = value[(count - kept) * self.width :]
        self.written += count
        return slots

    def _slots(self, first: int, count: int) -> Array:
        """All slots of `count` rows from `first` on, at most once round the ring."""
        starts = np.arange(first, first + count) % self.rows * self.width
        return (starts[:, None] + np.arange(self.width)).ravel()

    def take(self, index: Tensor) -> dict[str, Tensor]:
        """Slots [B] as new tensors [B, ...]."""
        return {name: column.index_select(0, index) for name, column in self.columns.items()}

    def rows_from(self, name: str, first: int) -> Rows:
        """Rows from `first` on, for a checkpoint."""
        return Rows(name, first, self.written, self._parts)

    def _parts(self, first: int) -> Iterator[tuple[int, dict[str, Array]]]:
        at_once = max(1, PIECE // max(1, sum(view.nbytes for view in self.views.values()) // self.rows))
        while first < self.written:
            # up to the end of the ring at most, so that a piece is one slice
            stop = min(self.written, first + at_once, first + self.rows - first % self.rows)
            start = self.slot(first)
            end = start + (stop - first) * self.width
            yield first, {name: view[start:end].copy() for name, view in self.views.items()}
            first = stop

    def load_rows(self, rows: Rows) -> None:
        """Bring saved rows back to where they were."""
        for first, part in rows.parts(rows.start):
            count = len(next(iter(part.values()))) // self.width
            slots = self._slots(first, count)
            for name, view in self.views.items():
                view[slots] = part[name]
        self.written = rows.stop
