"""A Gymnasium env that is only drawn, for engines that keep the states of their envs themselves."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from slm_lab.env.source import Env, build
from slm_lab.spec.schema import EnvSpec
from slm_lab.types import Array

RATE = 30.0  # steps a second, where an env does not say how fast its world is


class Painter:
    """Draws the state that it is shown through `env`."""

    def __init__(self, spec: EnvSpec) -> None:
        self._outer = build(spec, "rgb_array")
        self._outer.reset()
        self.env = cast("Any", self._outer.unwrapped)
        self.rate = rate_of(self._outer)

    def picture(self) -> Array:
        return np.asarray(self._outer.render())

    def close(self) -> None:
        self._outer.close()


def rate_of(env: Env) -> float:
    """Steps a second of an env's world."""
    return float(env.metadata.get("render_fps") or RATE)
