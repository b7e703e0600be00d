"""What a trained agent needs of an env without its episodes: to read observations and to write actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space

from slm_lab.env.spaces import ObsCodec, mask_row, spaces_of
from slm_lab.env.wrapper import action_map
from slm_lab.types import MASK, Array, Obs, map_obs


def as_it_is(value: Any) -> Any:
    return value


class Face(NamedTuple):
    """One env as its own library shows it: `read` and `write` stand between that and what the lab's engine takes."""

    observation_space: Space[Any]
    action_space: Space[Any]
    read: Callable[[Any], Any] = as_it_is  # one observation of the library -> one of `observation_space`
    write: Callable[[Array], Array] = as_it_is  # actions [1, ...] of `action_space` -> those of the library


class Adapter:
    """Observations as the env gives them to arrays [1, ...], actions [1, ...] to what the env takes."""

    def __init__(self, face: Face) -> None:
        self._face = face
        self.codec = ObsCodec(face.observation_space)
        self.spaces = spaces_of(face.observation_space, face.action_space, 1)
        self._map = action_map(face.action_space, 1)
        self._discrete = self.spaces.action_kind == "discrete"

    def encode(self, obs: Any) -> Obs:
        """One observation as a batch of one."""
        encoded: Obs = map_obs(lambda x: np.asarray(x)[None], self.codec.encode(self._face.read(obs)))
        return encoded

    def mask(self, obs: Any, given: Any = None) -> Array | None:
        """Allowed actions as a batch of one: those given, or those that the observation holds."""
        mask = obs[MASK] if given is None and self.codec.masked else given
        return None if mask is None else mask_row(mask)[None]

    def action(self, action: Array) -> Any:
        """The only action of a batch of one, as env.step takes it."""
        mapped = self._face.write(self._map(action))[0]
        return int(mapped) if self._discrete else mapped
