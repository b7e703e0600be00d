"""What an env is made for, and envs that somebody looks at: pictures of the first one at each reset and step."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from slm_lab.env.engine import Engine, Transition
from slm_lab.types import Array, Obs, State

Picture = Callable[[], Array]  # draws the first env now [H, W, 3], bytes


class Drawn(Engine, Protocol):
    """An engine whose first env can be drawn."""

    @property
    def rate(self) -> float: ...  # steps a second of the world it shows

    def picture(self) -> Array: ...


class Watch(Protocol):
    """Looks at pictures, or lets them pass undrawn; `rate` is steps a second, `first` the start of an episode."""

    def __call__(self, picture: Picture, rate: float, first: bool) -> None: ...


class Use(NamedTuple):
    """What a vector env is made for; threads share the work where an engine can use them, and change no numbers."""

    training: bool = True
    watch: Watch | None = None
    threads: int = 1


class WatchedEngine:
    """An engine that offers a picture of its first env after each reset and step of it."""

    def __init__(self, engine: Drawn, watch: Watch) -> None:
        self._engine, self._watch = engine, watch
        self.num_envs = engine.num_envs
        self.observation_space, self.action_space = engine.observation_space, engine.action_space

    def reset(self, index: Array) -> tuple[Obs, Array | None]:
        shown = self._engine.reset(index)
        if np.any(index == 0):
            self._watch(self._engine.picture, self._engine.rate, first=True)
        return shown

    def step(self, action: Array) -> Transition:
        transition = self._engine.step(action)
        self._watch(self._engine.picture, self._engine.rate, first=False)
        return transition

    def current(self) -> tuple[Obs, Array | None]:
        return self._engine.current()

    def state_dict(self) -> State:
        return self._engine.state_dict()

    def load_state_dict(self, state: State) -> list[int]:
        return self._engine.load_state_dict(state)

    def close(self) -> None:
        self._engine.close()


SMALLEST = 400  # pixels of height that can be seen well


def enlarged(pixels: Array) -> Array:
    """A picture [H, W, 3] with each pixel repeated until it is large enough to look at: Atari's has 210 rows."""
    factor = max(1, -(-SMALLEST // pixels.shape[0]))
    return pixels.repeat(factor, axis=0).repeat(factor, axis=1)
