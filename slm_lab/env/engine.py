"""What steps N single envs: the contract, and the engine that steps them in turn. Engines know nothing of autoreset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium import Space

from slm_lab.env.painter import rate_of
from slm_lab.env.slot import Slot
from slm_lab.env.spaces import mask_row, mask_size
from slm_lab.spec.schema import EnvSpec
from slm_lab.types import Array, Obs, State


class Transition(NamedTuple):
    """One step of N envs: true successors [N, ...], raw float64 rewards [N], masks [N, A] where there are any.

    `over` [N] says which envs must be reset, where that is not simply every end: a lost life ends what is learnt from,
    and the game goes on. `broken` [N] says which envs lost their episode to a fault: the rest of their row means
    nothing, and they must be reset too.
    """

    obs: Obs
    reward: Array
    terminated: Array
    truncated: Array
    mask: Array | None
    over: Array | None = None
    broken: Array | None = None


class Engine(Protocol):
    """Steps N envs. Returned arrays are new ones: nobody writes to them again."""

    num_envs: int
    observation_space: Space[Any]
    action_space: Space[Any]

    def reset(self, index: Array) -> tuple[Obs, Array | None]: ...  # obs and mask of the envs at `index`
    def step(self, action: Array) -> Transition: ...
    def current(self) -> tuple[Obs, Array | None]: ...  # obs and mask of all envs now
    def state_dict(self) -> State: ...
    def load_state_dict(self, state: State) -> list[int]: ...  # envs that came back with another observation
    def close(self) -> None: ...


class SyncEngine:
    """Envs stepped in turn in this process."""

    def __init__(self, spec: EnvSpec, seeds: Sequence[int], render_mode: str | None = None) -> None:
        # only the first is drawn
        self._slots = [Slot(spec, seed, render_mode if i == 0 else None) for i, seed in enumerate(seeds)]
        self.num_envs = len(self._slots)
        first = self._slots[0]
        self.observation_space, self.action_space = first.env.observation_space, first.env.action_space
        self._codec = first.codec
        self._mask_size = mask_size(self.action_space)
        self._masked: bool | None = None  # known from the first reset on

    def reset(self, index: Array) -> tuple[Obs, Array | None]:
        slots = [self._slots[i] for i in index]
        for slot in slots:
            slot.reset()
        return self._show(slots)

    def current(self) -> tuple[Obs, Array | None]:
        return self._show(self._slots)

    def _show(self, slots: list[Slot]) -> tuple[Obs, Array | None]:
        obs = self._codec.empty(len(slots))
        for row, slot in enumerate(slots):
            self._codec.write(obs, row, slot.obs)
        masks = None if self._masked is False else self._masks(slots)
        self._masked = masks is not None
        return obs, masks

    def _masks(self, slots: list[Slot]) -> Array | None:
        """Masks [len(slots), A] from the observations or infos; an env that says nothing allows everything."""
        masks = [slot.obs["action_mask"] if self._codec.masked else slot.info.get("action_mask") for slot in slots]
        if not self._mask_size or all(mask is None for mask in masks):
            return None
        everything = np.ones(self._mask_size, bool)
        return np.stack([everything if mask is None else mask_row(mask) for mask in masks])

    def step(self, action: Array) -> Transition:
        n, write = self.num_envs, self._codec.write
        obs = self._codec.empty(n)
        reward, terminated, truncated = np.empty(n), np.empty(n, bool), np.empty(n, bool)
        rows = action.copy()  # because slots keep them
        for i, slot in enumerate(self._slots):
            raw, reward[i], terminated[i], truncated[i], _ = slot.step(rows[i])
            write(obs, i, raw)
        return Transition(obs, reward, terminated, truncated, self._masks(self._slots) if self._masked else None)

    def picture(self) -> Array:
        """The first env as it looks now [H, W, 3], where it was made to be drawn."""
        return np.asarray(self._slots[0].env.render())

    @property
    def rate(self) -> float:
        """Steps a second of its world."""
        return rate_of(self._slots[0].env)

    def state_dict(self) -> State:
        return {"slots": [slot.state_dict() for slot in self._slots]}

    def load_state_dict(self, state: State) -> list[int]:
        pairs = zip(self._slots, state["slots"], strict=True)
        return [i for i, (slot, saved) in enumerate(pairs) if not slot.load_state_dict(saved)]

    def close(self) -> None:
        for slot in self._slots:
            slot.close()


def take(obs: Obs, index: Any) -> Obs:
    """Rows of an observation, copied."""
    return {key: value[index].copy() for key, value in obs.items()} if isinstance(obs, dict) else obs[index].copy()


def put(obs: Obs, index: Any, rows: Obs) -> None:
    """Write rows into an observation."""
    if isinstance(obs, dict) and isinstance(rows, dict):
        for key, value in rows.items():
            obs[key][index] = value
    elif not isinstance(obs, dict):
        obs[index] = rows
