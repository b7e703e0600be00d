"""Stretches of episodes out of a replay memory, for nets with a memory of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from slm_lab.agent.memory.base import MemoryBase
from slm_lab.agent.memory.replay import Replay, draw
from slm_lab.lib.errors import SpecError
from slm_lab.types import Act, Array, Batch, Obs, Sequences, State, Step, episode_starts

WORST = 0.9  # weight of a stretch's largest error in its priority; the rest is that of the mean (Kapturowski 2019)


class SequenceReplay(MemoryBase):
    """Draws `batch_size` stretches of `length` steps after `burn_in` steps that only warm up what nets remember.

    A stretch goes on where one episode ends and the next begins. A stretch drawn by priority begins at the row drawn.
    """

    kind: ClassVar = "replay"
    stores_raw: ClassVar = True

    def __init__(self, replay: Replay, length: int, burn_in: int) -> None:
        self.replay, self.length, self.burn_in = replay, length, burn_in
        self.steps = length + burn_in
        if replay.keep < self.steps:
            got = f"got {replay.spec.max_size}, which is {replay.keep} steps of {replay.envs} envs"
            needed = f"at least {self.steps * replay.envs}, for seq_len {length} after burn_in {burn_in}"
            raise SpecError(f"agent.memory.max_size: {got}; allowed: {needed}.")

    def add(self, obs: Obs, act: Act, step: Step) -> None:
        self.replay.add(obs, act, step)

    def ready(self) -> bool:
        return self.replay.ready() and self.replay.ring.written - self.replay.first >= self.steps

    def sample(self) -> Batch:
        """Observations as stretches [K, S], all else as the rows that count, [length * S]; extra `index` is [S]."""
        replay, ring = self.replay, self.replay.ring
        index, weight = draw(replay.spec, ring, replay.sampler, replay.rng, replay.first, replay.fresh, self.steps)
        replay.fresh = 0
        batch = replay.rows_at(self._slots(index).ravel())
        count = len(index)
        rows = batch.map(lambda x: x[self.burn_in * count :])
        extra = {**rows.extra, "index": torch.from_numpy(index)}
        if weight is not None:
            extra["weight"] = torch.from_numpy(weight).repeat(self.length)
        first = episode_starts(batch.ended.view(self.steps, count))
        return replace(
            rows, obs=self._stretches(batch.obs, first), next_obs=self._stretches(batch.next_obs, first), extra=extra
        )

    def _slots(self, index: Array) -> Array:
        """Slots [K, S] of the stretches that begin at slots [S]; where too little follows, they begin earlier."""
        ring, first = self.replay.ring, self.replay.first
        row, env = np.divmod(index, ring.width)
        since = np.minimum((row - first) % ring.rows, ring.written - first - self.steps)
        rows = (first + since + np.arange(self.steps)[:, None]) % ring.rows
        slots: Array = rows * ring.width + env
        return slots

    def _stretches(self, obs: Any, first: Tensor) -> Sequences:
        entries = {key: value.view(*first.shape, *value.shape[1:]) for key, value in obs.items()}
        keep = torch.arange(self.burn_in * first.shape[1], first.numel())
        return Sequences(entries, first, keep, self.burn_in)

    def feedback(self, batch: Batch, error: Tensor) -> None:
        size = error.abs().view(self.length, -1)
        mixed = WORST * size.amax(0) + (1 - WORST) * size.mean(0)
        self.replay.sampler.update(batch.extra["index"].cpu().numpy(), mixed.cpu().numpy())

    def state_dict(self) -> State:
        return self.replay.state_dict()

    def load_state_dict(self, state: State) -> None:
        self.replay.load_state_dict(state)
