"""A Gymnasium env that is only drawn, for engines that keep the states of their envs themselves."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from slm_lab.env.source import Env, build
from slm_lab.spec.schema import EnvSpec
from slm_lab.types import Array

RATE = 30.0  # steps a second, where an env does not say how fast its world is


class Painter:
    """Draws the state that it is shown through `env`, which is made when first asked for."""

    def __init__(self, spec: EnvSpec) -> None:
        self._spec = spec

    @cached_property
    def _outer(self) -> Env:
        outer = build(self._spec, "rgb_array")
        outer.reset()
        return outer

    @property
    def env(self) -> Any:
        return self._outer.unwrapped

    @property
    def rate(self) -> float:
        return rate_of(self._outer)

    def picture(self) -> Array:
        return np.asarray(self._outer.render())

    def close(self) -> None:
        if "_outer" in vars(self):
            self._outer.close()


def rate_of(env: Env) -> float:
    """Steps a second of an env's world."""
    return float(env.metadata.get("render_fps") or RATE)
