"""The engine that steps N classic control envs in one go: bit for bit what N single Gymnasium envs give."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gymnasium.utils.seeding import np_random

from slm_lab.env.classic_acrobot import ACROBOT
from slm_lab.env.classic_envs import CART_POLE, CONTINUOUS_CAR, MOUNTAIN_CAR, PENDULUM
from slm_lab.env.classic_physics import Physics
from slm_lab.env.engine import Transition
from slm_lab.env.painter import Painter
from slm_lab.env.source import build, episode_limit
from slm_lab.spec.schema import EnvSpec
from slm_lab.types import Array, Obs, State

CLASSIC: dict[str, Physics] = {
    "Acrobot-v1": ACROBOT,
    "CartPole-v0": CART_POLE,
    "CartPole-v1": CART_POLE,
    "MountainCar-v0": MOUNTAIN_CAR,
    "MountainCarContinuous-v0": CONTINUOUS_CAR,
    "Pendulum-v1": PENDULUM,
}


def can_vectorise(spec: EnvSpec) -> bool:
    """Whether ClassicEngine steps this env: a known id with its constructor's own settings, and enough of them."""
    return spec.name in CLASSIC and not spec.kwargs and spec.num_envs >= CLASSIC[spec.name].fewest


class ClassicEngine:
    """N envs as one array of states [N, d], each with its own generator."""

    def __init__(self, spec: EnvSpec, seeds: Sequence[int]) -> None:
        self._painter = Painter(spec)
        self._physics = CLASSIC[spec.name]
        self._limit = episode_limit(spec) or np.inf
        env = build(spec)
        self.observation_space, self.action_space = env.observation_space, env.action_space
        env.close()
        self.num_envs = len(seeds)
        self._rngs = [np_random(seed)[0] for seed in seeds]
        self._state = np.zeros((self.num_envs, self._physics.size))
        self._t = 0  # vector steps
        self._began = np.zeros(self.num_envs, np.int64)  # `t` at the last reset

    def reset(self, index: Array) -> tuple[Obs, Array | None]:
        rows = np.zeros((len(index), self._physics.size), self._physics.start)
        for row, i in enumerate(index.tolist()):
            drawn = self._physics.draw(self._rngs[i])
            rows[row, : len(drawn)] = drawn
        self._state[index] = rows
        self._began[index] = self._t
        return self._physics.observe(rows), None

    def step(self, action: Array) -> Transition:
        action = np.asarray(action, self.action_space.dtype)
        self._state, reward, terminated = self._physics.step(self._state, action)
        self._t += 1
        truncated = self._began <= self._t - self._limit
        return Transition(self._physics.observe(self._state), reward, terminated, truncated, None)

    def current(self) -> tuple[Obs, Array | None]:
        obs = self._physics.observe(self._state)
        start = self._began == self._t
        obs[start] = self._physics.observe(self._state[start].astype(self._physics.start))
        return obs, None

    def state_dict(self) -> State:
        rngs = [rng.bit_generator.state for rng in self._rngs]
        return {"state": self._state.copy(), "elapsed": self._t - self._began, "rngs": rngs}

    def load_state_dict(self, state: State) -> list[int]:
        """Go on exactly where the saved envs were: none differs."""
        self._state = np.array(state["state"], np.float64)
        self._t, self._began = 0, -np.array(state["elapsed"], np.int64)
        for rng, saved in zip(self._rngs, state["rngs"], strict=True):
            rng.bit_generator.state = saved
        return []

    @property
    def rate(self) -> float:
        return self._painter.rate

    def picture(self) -> Array:
        """The first env as it looks now [H, W, 3]."""
        self._painter.env.state = self._state[0]
        return self._painter.picture()

    def close(self) -> None:
        self._painter.close()
