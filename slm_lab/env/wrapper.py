"""Wrappers around a vector env: each changes one thing, holds the env inside and is unknown to it. Returns stay raw."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from slm_lab.lib.moments import RunningMoments
from slm_lab.spec.schema import EnvSpec
from slm_lab.types import Array, Shape, State, Step, VecEnv


class Wrapper:
    """Passes everything on."""

    def __init__(self, env: VecEnv) -> None:
        self._env = env
        self.spaces = env.spaces
        self.exact = env.exact
        self.obs, self.action_mask = env.obs, env.action_mask

    def step(self, action: Array) -> Step:
        step = self._env.step(action)
        self.obs, self.action_mask = self._env.obs, self._env.action_mask
        return step

    def close(self) -> None:
        self._env.close()

    def state_dict(self) -> State:
        return self._env.state_dict()

    def load_state_dict(self, state: State) -> None:
        self._env.load_state_dict(state)
        self.obs, self.action_mask = self._env.obs, self._env.action_mask


class ActionMap(Wrapper):
    """From the policy's actions to the env's: continuous from [-1, 1], indices to a space that starts elsewhere."""

    def __init__(self, env: VecEnv, space: Space[Any]) -> None:
        super().__init__(env)
        self._map = action_map(space, env.spaces.num_envs)

    def step(self, action: Array) -> Step:
        return super().step(self._map(action))


def action_map(space: Space[Any], num_envs: int) -> Callable[[Array], Array]:
    """What turns the policy's actions [N, ...] into actions of the env's own space."""
    shape = (num_envs, *(space.shape or ()))
    if isinstance(space, Box):
        return BoxMap(space, shape)
    if isinstance(space, Discrete) and space.start == 0:
        return np.asarray
    start = space.start if isinstance(space, Discrete | MultiDiscrete) else 0
    return lambda action: (action + start).astype(space.dtype).reshape(shape)


class BoxMap:
    """Actions [N, A] to a Box: affine per dim where both bounds are finite, else only clipped."""

    def __init__(self, space: Box, shape: Shape) -> None:
        self._shape = shape
        with np.errstate(over="ignore"):  # bounds at the largest float are no bounds
            span = space.high.astype(np.float64) - space.low
            bounded = np.isfinite(span.astype(np.float32))
        one = np.ones_like(span)
        self._low, self._high, self._dtype = space.low, space.high, space.dtype
        self._clip = np.where(bounded, one, np.inf)
        self._half = np.where(bounded, span / 2, one)
        self._centre = np.where(bounded, space.high - self._half, 0.0)

    def __call__(self, action: Array) -> Array:
        scaled = self._centre + self._half * np.clip(action.reshape(self._shape), -self._clip, self._clip)
        if not np.issubdtype(self._dtype, np.floating):
            scaled = np.rint(scaled)
        return np.asarray(np.clip(scaled, self._low, self._high), self._dtype)


class RewardScale(Wrapper):
    """Rewards times a factor, or only their sign."""

    def __init__(self, env: VecEnv, scale: float | Literal["sign"]) -> None:
        super().__init__(env)
        self._scale = scale

    def step(self, action: Array) -> Step:
        step = super().step(action)
        reward = np.sign(step.reward) if self._scale == "sign" else step.reward * np.float32(self._scale)
        return Step(reward, *step[1:])


class NormalizeReward(Wrapper):
    """Rewards over the running deviation of the discounted return; no mean is taken off."""

    def __init__(self, env: VecEnv, gamma: float) -> None:
        super().__init__(env)
        self._gamma = gamma
        self._moments = RunningMoments()
        self._discounted = np.zeros(env.spaces.num_envs)

    def step(self, action: Array) -> Step:
        step = super().step(action)
        self._discounted = self._gamma * self._discounted + step.reward
        self._moments.update(self._discounted)
        self._discounted[step.terminated | step.truncated] = 0  # after use: the last reward belongs to its episode
        reward = step.reward / np.sqrt(self._moments.var + 1e-8)
        return Step(reward.astype(np.float32), *step[1:])

    def state_dict(self) -> State:
        own = {"moments": self._moments.state_dict(), "discounted": self._discounted.copy()}
        return {"env": super().state_dict(), **own}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state["env"])
        self._moments.load_state_dict(state["moments"])
        self._discounted = np.array(state["discounted"], np.float64)


class ClipReward(Wrapper):
    """Rewards cut to [low, high]."""

    def __init__(self, env: VecEnv, low: float, high: float) -> None:
        super().__init__(env)
        self._low, self._high = np.float32(low), np.float32(high)

    def step(self, action: Array) -> Step:
        step = super().step(action)
        return Step(np.minimum(np.maximum(step.reward, self._low), self._high), *step[1:])  # half the cost of clip


def clipped_unless_shaped(env: VecEnv, spec: EnvSpec) -> VecEnv:
    """Rewards cut to [-1, 1], as is usual for Atari, unless the spec says what becomes of them."""
    shaped = spec.clip_reward is not None or spec.normalize_reward or spec.reward_scale != 1.0
    return env if shaped else ClipReward(env, -1, 1)
