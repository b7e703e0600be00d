"""A tree of sums or minima over many leaves, read and written a batch at a time."""

from __future__ import annotations

import numpy as np

from slm_lab.types import Array

FAN = 16  # children of a node: fewer make more levels, more make each level slower to search
TOP = 1024  # most nodes of the top level, which is searched as one array: quicker than another level
NEUTRAL: dict[np.ufunc, float] = {np.add: 0.0, np.minimum: np.inf}  # what a leaf counts for before it is set


class Tree:
    """`size` float64 leaves under levels of nodes, each the sum or the minimum of its children.

    A node is always computed anew from its children, so that rounding errors never add up.
    """

    def __init__(self, size: int, reduction: np.ufunc) -> None:
        self.reduction = reduction
        self.blocks: list[Array] = []  # each level below the top as [parents, FAN], leaves first
        width = size
        while width > TOP:
            width = -(-width // FAN)
            self.blocks.append(np.full((width, FAN), NEUTRAL[reduction]))
        self.top = np.full(width, NEUTRAL[reduction])
        self.levels = [*(block.reshape(-1) for block in self.blocks), self.top]  # every level as a flat view
        self.leaves = self.levels[0][:size]

    def __getitem__(self, index: Array) -> Array:
        """Leaves [B] at index [B]."""
        return self.leaves.take(index)

    @property
    def total(self) -> float:
        """The sum or minimum of all leaves."""
        return float(self.reduction.reduce(self.top))

    def set(self, index: Array, value: Array | float) -> None:
        """Write leaves [B] at index [B] and renew the nodes above; of a repeated index the last value stays."""
        self.leaves[index] = value
        for children, parents in zip(self.blocks, self.levels[1:], strict=True):
            index = index // FAN
            parents[index] = self.reduction.reduce(children.take(index, axis=0), axis=1)

    def load(self, leaves: Array) -> None:
        """Replace all leaves [size] and rebuild every level."""
        self.leaves[:] = leaves
        for children, parents in zip(self.blocks, self.levels[1:], strict=True):
            parents[: len(children)] = self.reduction.reduce(children, axis=1)

    def find(self, prefix: Array) -> Array:
        """For sums: the leaves [B] whose stretch of the running sum holds prefix [B], 0 <= prefix <= total > 0.

        Leaves of zero are never found: their stretch is empty.
        """
        below = np.zeros(len(self.top) + 1)  # sum of the nodes before each
        self.top.cumsum(out=below[1:])
        prefix = under(prefix, below[-1])
        node = below[1:].searchsorted(prefix, side="right")
        prefix -= below[node]
        row = np.arange(len(prefix))
        below = np.zeros((len(prefix), FAN + 1))
        for children in reversed(self.blocks):
            children.take(node, axis=0).cumsum(axis=1, out=below[:, 1:])
            prefix = under(prefix, below[:, -1])
            child = (below[:, 1:] > prefix[:, None]).argmax(axis=1)
            prefix -= below[row, child]
            node = node * FAN + child
        return node


def under(prefix: Array, end: Array) -> Array:
    """The prefix, moved below the end of the running sum where rounding put it there or past it."""
    return np.minimum(prefix, np.nextafter(end, 0.0))
