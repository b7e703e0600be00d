"""Running mean and variance of a stream of batches, merged exactly (Chan et al. 1979)."""

from __future__ import annotations

import numpy as np

from slm_lab.types import Array, Shape, State


class RunningMoments:
    """Mean and variance [*shape] in float64 of everything seen; starts at 0 and 1 with next to no weight."""

    def __init__(self, shape: Shape = (), count: float = 1e-4) -> None:
        self.mean: Array = np.zeros(shape)
        self.var: Array = np.ones(shape)
        self.count = count

    def update(self, batch: Array) -> None:
        """Take in a batch [N, *shape]."""
        n = len(batch)
        batch = np.asarray(batch, np.float64)
        batch_mean = batch.sum(0) / n  # on small batches sum and a division cost a third of mean()
        spread = batch - batch_mean
        delta = batch_mean - self.mean
        total = self.count + n
        squares = self.var * self.count + (spread * spread).sum(0) + delta * delta * (self.count * n / total)
        self.mean = self.mean + delta * (n / total)
        self.var = squares / total
        self.count = total

    def state_dict(self) -> State:
        return {"mean": np.array(self.mean), "var": np.array(self.var), "count": self.count}

    def load_state_dict(self, state: State) -> None:
        self.mean = np.array(state["mean"], np.float64)
        self.var = np.array(state["var"], np.float64)
        self.count = float(state["count"])
