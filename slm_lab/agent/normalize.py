"""Running observation statistics: they belong to the agent, because a policy is worth nothing without them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from slm_lab.lib.moments import RunningMoments
from slm_lab.types import Array, Batch, Lessons, Obs, Sequences, Shape, State, map_obs

EPSILON = 1e-8


class ObsNormalizer:
    """(x - mean) / deviation, clipped; per entry where observations are dicts. Output is float32."""

    def __init__(self, shape: Shape | dict[str, Shape], normalize: bool, clip: float | None) -> None:
        self.normalize, self.clip = normalize, clip
        shapes = shape if isinstance(shape, dict) else {"obs": shape}
        self.moments = {key: RunningMoments(entry) for key, entry in shapes.items()}

    def update(self, obs: Obs) -> None:
        """Take in what the agent is about to act on, [N, ...]."""
        if self.normalize:
            entries = obs if isinstance(obs, dict) else {"obs": obs}
            for key, moments in self.moments.items():
                moments.update(entries[key])

    def __call__(self, obs: Obs) -> Obs:
        """Entries of the env's own; what an agent added to them stays as it is."""
        if not isinstance(obs, dict):
            return self._entry(obs, self.moments["obs"])
        return {key: self._entry(x, self.moments[key]) if key in self.moments else x for key, x in obs.items()}

    def _entry(self, x: Array, moments: RunningMoments) -> Array:
        if self.normalize:
            x = (x - moments.mean) / np.sqrt(moments.var + EPSILON)
        if self.clip is not None:
            x = np.clip(x, -self.clip, self.clip)
        return x.astype(np.float32)

    def state_dict(self) -> State:
        return {key: moments.state_dict() for key, moments in self.moments.items()}

    def load_state_dict(self, state: State) -> None:
        for key, moments in self.moments.items():
            moments.load_state_dict(state[key])


class NormalizedMemory:
    """What an algorithm sees of a memory of raw observations."""

    def __init__(self, memory: Lessons, normalizer: ObsNormalizer) -> None:
        self.memory, self.normalizer = memory, normalizer

    def sample(self) -> Batch:
        batch = self.memory.sample()
        return replace(batch, obs=self._normalized(batch.obs), next_obs=self._normalized(batch.next_obs))

    def _normalized(self, obs: Any) -> Any:
        if isinstance(obs, Sequences):
            return replace(obs, entries=self._normalized(obs.entries))
        return map_obs(torch.from_numpy, self.normalizer(map_obs(lambda x: x.numpy(), obs)))

    def feedback(self, batch: Batch, error: Tensor) -> None:
        self.memory.feedback(batch, error)
