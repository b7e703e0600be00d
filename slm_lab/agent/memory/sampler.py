"""Which rows of a ring of `size` slots a replay memory draws: any alike, or by priority."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from slm_lab.agent.memory.tree import Tree
from slm_lab.lib.rng import Rng
from slm_lab.types import Array, State, Stateful


class Sampler(Stateful, Protocol):
    """Draws rows, and hears which rows come and go and how wrong the agent was about them."""

    def added(self, index: Array) -> None: ...
    def removed(self, index: Array) -> None: ...
    def draw(self, batch: int, rng: Rng, first: int, count: int) -> Array: ...
    def weights(self, index: Array, count: int, beta: float) -> Array | None: ...
    def update(self, index: Array, error: Array) -> None: ...


class Uniform:
    """Every valid row alike, with replacement."""

    def __init__(self, size: int) -> None:
        self.size = size

    def added(self, index: Array) -> None:
        """Nothing to keep: `draw` is told which rows are valid."""

    def removed(self, index: Array) -> None:
        """Nothing to keep: `draw` is told which rows are valid."""

    def draw(self, batch: int, rng: Rng, first: int, count: int) -> Array:
        """Slots [batch] out of the `count` valid ones, which begin at `first` and go round the ring."""
        return (first + rng.numpy.integers(count, size=batch)) % self.size

    def weights(self, index: Array, count: int, beta: float) -> None:
        """None: all rows weigh the same."""

    def update(self, index: Array, error: Array) -> None:
        """Nothing to keep: errors do not matter here."""

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        """Nothing to bring back."""


class Prioritized:
    """Rows in proportion to their priority (|error| + epsilon)^alpha; a row that is not valid has none."""

    def __init__(self, size: int, alpha: float, epsilon: float) -> None:
        self.alpha, self.epsilon = alpha, epsilon
        self.sums = Tree(size, np.add)
        self.minima = Tree(size, np.minimum)
        self.highest = 1.0  # priority seen so far

    def added(self, index: Array) -> None:
        """Rows [k] became valid: they get the highest priority so far, so that each is soon seen."""
        self.sums.set(index, self.highest)
        self.minima.set(index, self.highest)

    def removed(self, index: Array) -> None:
        """Rows [k] are no longer valid."""
        self.sums.set(index, 0.0)
        self.minima.set(index, np.inf)

    def draw(self, batch: int, rng: Rng, first: int, count: int) -> Array:
        """Slots [batch], one from each of `batch` equal slices of the total priority."""
        return self.sums.find((np.arange(batch) + rng.numpy.random(batch)) * (self.sums.total / batch))

    def weights(self, index: Array, count: int, beta: float) -> Array:
        """Importance weights [B], (count * P)^-beta over the largest of the whole memory."""
        scale = count / self.sums.total
        largest = (scale * self.minima.total) ** -beta
        weight: Array = (scale * self.sums[index]) ** -beta / largest
        return weight.astype(np.float32)

    def update(self, index: Array, error: Array) -> None:
        """New priorities for rows [B]; an error that is not finite changes nothing, nor does one of a row now gone."""
        kept = np.isfinite(error) & (self.sums[index] > 0)
        priority = (np.abs(error[kept], dtype=np.float64) + self.epsilon) ** self.alpha
        self.sums.set(index[kept], priority)
        self.minima.set(index[kept], priority)
        self.highest = float(priority.max(initial=self.highest))

    def state_dict(self) -> State:
        return {"leaves": self.sums.leaves.copy(), "highest": self.highest}

    def load_state_dict(self, state: State) -> None:
        leaves: Array = state["leaves"]
        self.sums.load(leaves)
        self.minima.load(np.where(leaves > 0, leaves, np.inf))
        self.highest = state["highest"]
