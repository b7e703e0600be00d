"""Gymnasium spaces as the lab sees them: observations as arrays (or a dict of arrays), actions by kind and size."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space, spaces

from slm_lab.lib.errors import SpecError
from slm_lab.types import MASK, ActionKind, Array, Obs, Shape, Spaces

FLOAT = np.dtype(np.float32)
FLAT = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary, spaces.Dict, spaces.Tuple)  # one float vector


Write = Callable[[Any, int, Any], None]  # (rows, row, raw value): the raw value becomes rows[row]


class Entry(NamedTuple):
    """One array of an observation: its shape, its dtype and how a raw value gets into a row of it."""

    shape: Shape
    dtype: np.dtype[Any]
    write: Write


class ObsCodec:
    """Raw observations of one space as rows of arrays; `masked` where a Dict carries an action mask."""

    def __init__(self, space: Space[Any]) -> None:
        self.masked = isinstance(space, spaces.Dict) and MASK in space.spaces
        self.entries: Entry | dict[str, Entry]
        self.write: Write
        parts = _parts(space)
        if parts is None:
            self.entries = _entry(space)
            self.write = self.entries.write
        elif not parts:
            raise SpecError(f"env.name: observation space {space} holds no observation.")
        else:
            self.entries = {str(key): _entry(part) for key, part in parts.items()}
            self.write = _write_each(
                [(key, entry.write) for key, entry in zip(parts, self.entries.values(), strict=True)]
            )

    @property
    def shape(self) -> Shape | dict[str, Shape]:
        return self.entries.shape if isinstance(self.entries, Entry) else {k: e.shape for k, e in self.entries.items()}

    @property
    def dtype(self) -> np.dtype[Any] | dict[str, np.dtype[Any]]:
        return self.entries.dtype if isinstance(self.entries, Entry) else {k: e.dtype for k, e in self.entries.items()}

    def empty(self, n: int) -> Obs:
        """Room for n observations."""
        if isinstance(self.entries, Entry):
            return np.empty((n, *self.entries.shape), self.entries.dtype)
        return {key: np.empty((n, *entry.shape), entry.dtype) for key, entry in self.entries.items()}

    def encode(self, raw: Any) -> Obs:
        """One observation, without the leading dim."""
        rows = self.empty(1)
        self.write(rows, 0, raw)
        return {key: value[0] for key, value in rows.items()} if isinstance(rows, dict) else rows[0]


def _parts(space: Space[Any]) -> dict[Any, Space[Any]] | None:
    """Parts of a Dict or Tuple space by the key of its raw values, without the action mask; None for other spaces."""
    if isinstance(space, spaces.Dict):
        return {key: part for key, part in space.spaces.items() if key != MASK}
    return dict(enumerate(space.spaces)) if isinstance(space, spaces.Tuple) else None


def _entry(space: Space[Any]) -> Entry:
    """How one array of an observation is stored: images as bytes, everything else as float32."""
    if isinstance(space, spaces.Box):
        # numpy's own assignment casts as it copies: no Python call per env and step
        return Entry(space.shape or (1,), space.dtype if space.dtype == np.uint8 else FLOAT, operator.setitem)
    if not isinstance(space, FLAT) or not space.is_np_flattenable:
        raise SpecError(
            f"env.name: observation space {space} is not supported. "
            "Allowed: Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of these."
        )
    return Entry((spaces.flatdim(space),), FLOAT, _write_flat(space))


def _write_flat(space: Space[Any]) -> Write:
    def write(rows: Any, row: int, raw: Any) -> None:
        rows[row] = spaces.flatten(space, raw)

    return write


def _write_each(parts: list[tuple[Any, Write]]) -> Write:
    def write(rows: Any, row: int, raw: Any) -> None:
        for key, write_part in parts:
            write_part(rows[str(key)], row, raw[key])

    return write


def action_size(space: Space[Any]) -> tuple[ActionKind, int, Shape]:
    """Kind of an action space, its number of actions, dims or components, and the choices per component."""
    if isinstance(space, spaces.Discrete):
        return "discrete", int(space.n), ()
    if isinstance(space, spaces.Box):
        return "continuous", int(np.prod(space.shape)), ()
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return "multi_discrete", len(space.nvec), tuple(space.nvec.tolist())
    if isinstance(space, spaces.MultiBinary):
        return "multi_binary", int(np.prod(space.shape)), ()
    raise SpecError(
        f"env.name: action space {space} is not supported. Allowed: Discrete, Box, MultiDiscrete (1-D), MultiBinary."
    )


def mask_size(space: Space[Any]) -> int:
    """Entries of an action mask: one per action, or per choice of every component; 0 where a mask means nothing."""
    kind, dim, nvec = action_size(space)
    return dim if kind == "discrete" else sum(nvec)


def mask_row(mask: Any) -> Array:
    """An env's own mask as booleans [mask_size]; masks of several components are joined."""
    parts = mask if isinstance(mask, tuple | list) else [mask]
    return np.concatenate([np.ravel(part) for part in parts]).astype(bool)


def spaces_of(observation: Space[Any], action: Space[Any], num_envs: int) -> Spaces:
    """What an agent must know of an env with these spaces."""
    codec = ObsCodec(observation)
    kind, dim, nvec = action_size(action)
    return Spaces(codec.shape, codec.dtype, kind, dim, num_envs, nvec, mask_size(action) if codec.masked else 0)
