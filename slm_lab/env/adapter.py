"""An env's spaces without its episodes: what a trained agent needs to read observations and write actions."""

from __future__ import annotations

from typing import Any

import numpy as np

from slm_lab.env.source import build
from slm_lab.env.spaces import ObsCodec, mask_row, spaces_of
from slm_lab.env.wrapper import action_map
from slm_lab.spec.schema import EnvSpec
from slm_lab.types import MASK, Array, Obs, map_obs


class Adapter:
    """Observations as the env gives them to arrays [1, ...], actions [1, ...] to what the env takes."""

    def __init__(self, spec: EnvSpec) -> None:
        env = build(spec)
        self.codec = ObsCodec(env.observation_space)
        self.spaces = spaces_of(env.observation_space, env.action_space, 1)
        self._map = action_map(env.action_space, 1)
        self._discrete = self.spaces.action_kind == "discrete"
        env.close()

    def encode(self, obs: Any) -> Obs:
        """One observation as a batch of one."""
        encoded: Obs = map_obs(lambda x: np.asarray(x)[None], self.codec.encode(obs))
        return encoded

    def mask(self, obs: Any, given: Any = None) -> Array | None:
        """Allowed actions as a batch of one: those given, or those that the observation holds."""
        mask = obs[MASK] if given is None and self.codec.masked else given
        return None if mask is None else mask_row(mask)[None]

    def action(self, action: Array) -> Any:
        """The only action of a batch of one, as env.step takes it."""
        mapped = self._map(action)[0]
        return int(mapped) if self._discrete else mapped
