"""What an agent adds to what an env shows: allowed actions, and what its nets remember of each env's episode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from slm_lab.types import MASK, Act, Array, Obs, Spaces, State


class Context:
    """Entries beside those of the env. An observation that was one array becomes the entry `obs`."""

    def __init__(self, hidden: Mapping[str, int], num_envs: int) -> None:
        self.hidden = {entry: np.zeros((num_envs, size), np.float32) for entry, size in hidden.items()}

    def __call__(self, obs: Obs, mask: Array | None) -> Obs:
        """Observations [N, ...] before an action."""
        return with_entries(obs, mask, self.hidden)

    def carry(self, act: Act, ended: Array) -> None:
        """Remember what a decision left behind; nothing where the episode ended, [N]."""
        if self.hidden:
            over = ended[:, None]
            self.hidden = {entry: np.where(over, np.float32(0), value) for entry, value in act.hidden.items()}

    def state_dict(self) -> State:
        return {entry: value.copy() for entry, value in self.hidden.items()}

    def load_state_dict(self, state: State) -> None:
        self.hidden = {entry: np.array(value, np.float32) for entry, value in state.items()}


def with_entries(obs: Obs, mask: Array | None, hidden: Mapping[str, Array]) -> Obs:
    """Observations with a mask and what is remembered, where there is any."""
    if mask is None and not hidden:
        return obs
    entries = dict(obs) if isinstance(obs, dict) else {"obs": obs}
    return {**entries, **hidden} if mask is None else {**entries, MASK: mask, **hidden}


def with_spaces(spaces: Spaces, hidden: Mapping[str, int]) -> Spaces:
    """Spaces of what `with_entries` gives."""
    if not spaces.mask_size and not hidden:
        return spaces
    shape = spaces.obs_shape if isinstance(spaces.obs_shape, dict) else {"obs": spaces.obs_shape}
    dtype = spaces.obs_dtype if isinstance(spaces.obs_dtype, dict) else {"obs": spaces.obs_dtype}
    if spaces.mask_size:
        shape, dtype = {**shape, MASK: (spaces.mask_size,)}, {**dtype, MASK: np.dtype(bool)}
    return replace(
        spaces,
        obs_shape={**shape, **{entry: (size,) for entry, size in hidden.items()}},
        obs_dtype={**dtype, **dict.fromkeys(hidden, np.dtype(np.float32))},
    )
