"""How a net values a rollout: all rows and what follows the last, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from slm_lab.agent.net.program import Compiler, Program, Work
from slm_lab.lib.noise import Wishes
from slm_lab.types import Array, Batch, entries_in, map_obs, rows_in

ROWS, NUMBERS = 2**13, 2**23  # of observations in a pass without gradient; more memory costs more than more passes


class NetValues:
    """V of observations [B, ...] without gradient, as numpy [B]."""

    def __init__(self, value: Callable[[Any], Tensor]) -> None:
        self.value = value
        self._program: Program | None = None
        self._keys: tuple[str, ...] | None = None  # of observations with several entries

    def compile(self, compiler: Compiler, nets: nn.Module) -> None:
        """From now on value rollouts by a compiled function; `nets` hold the one that does."""
        self._program = Program("value", self._valued, nets, [], compiler)

    def _valued(self, work: Work) -> dict[str, Tensor]:
        """Values, as they are compiled."""
        obs = work.inputs[0] if self._keys is None else dict(zip(self._keys, work.inputs, strict=True))
        with torch.no_grad():
            return {"value": self.value(obs)}

    def __call__(self, obs: Any) -> Array:
        """Of any number of rows."""
        with torch.no_grad():
            return np.asarray(torch.cat([self.value(chunk) for chunk in chunks(obs)]).cpu().numpy())

    def of_rollout(self, rollout: Batch) -> tuple[Array, Array]:
        """Of each row and of its true successor, [T, N] each.

        Successors are the rows that follow, but for the last row and where an episode ends; how many of these there
        are differs from rollout to rollout, so that they have a pass of their own.
        """
        steps, envs = rollout.reward.shape
        value = self._fixed(_with_last(rollout)).reshape(steps + 1, envs)
        next_value, inner = value[1:].copy(), rollout.ended[:-1]
        if inner.any():
            next_value[:-1][inner.cpu().numpy()] = self(map_obs(lambda x: x[:-1][inner], rollout.next_obs))
        return value[:-1], next_value

    def of_successors(self, rollout: Batch, value: Array) -> Array:
        """Of the true successor of each row, where `value` is that of the rows; [T, N] both."""
        cut = rollout.ended.clone()
        cut[-1] = True
        next_value = np.roll(value, -1, axis=0)
        next_value[cut.cpu().numpy()] = self(map_obs(lambda x: x[cut], rollout.next_obs))
        return next_value

    def _fixed(self, obs: Any) -> Array:
        """Of as many rows as every time."""
        if self._program is None:
            return self(obs)
        self._keys = tuple(obs) if isinstance(obs, dict) else None
        return np.asarray(self._program(rows_in(obs), [], entries_in(obs), Wishes())["value"].cpu().numpy())


def chunks(obs: Any) -> Iterator[Any]:
    """Observations [B, ...] in pieces that a pass may take at once: views."""
    size = max(1, min(ROWS, NUMBERS // sum(entry[0].numel() for entry in entries_in(obs))))
    for start in range(0, rows_in(obs), size):
        yield map_obs(itemgetter(slice(start, start + size)), obs)


def _with_last(rollout: Batch) -> Any:
    """Observations of all rows and what followed the last, [(T + 1) * N, ...]."""
    if isinstance(rollout.obs, dict):
        assert isinstance(rollout.next_obs, dict)
        last = rollout.next_obs
        return {key: torch.cat([x, last[key][-1:]]).flatten(0, 1) for key, x in rollout.obs.items()}
    assert isinstance(rollout.obs, Tensor)
    assert isinstance(rollout.next_obs, Tensor)
    return torch.cat([rollout.obs, rollout.next_obs[-1:]]).flatten(0, 1)
