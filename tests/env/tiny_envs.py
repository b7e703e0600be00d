"""Single envs small enough to work out by hand; importable by worker processes as `tiny_envs:Name`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

Result = tuple[Any, float, bool, bool, dict[str, Any]]
TERMINAL = 99.0


class Countdown(gym.Env[Any, Any]):
    """Observes its step count; the last observation is TERMINAL. Reward 1, 2, 3, ... until it ends after `length`."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space: spaces.Space[Any] = spaces.Discrete(2)

    def __init__(self, length: int = 3, truncates: bool = False) -> None:
        self.length, self.truncates, self.t = length, truncates, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1), {}

    def step(self, action: Any) -> Result:
        self.t += 1
        ended = self.t >= self.length
        obs = np.full(1, TERMINAL if ended else self.t)
        return obs, float(self.t), ended and not self.truncates, ended and self.truncates, {}


class Echo(Countdown):
    """Observes the action it was given: one dim in [-2, 2], one in [0, 4], one without bounds."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Box(np.array([-2, 0, -np.inf], np.float32), np.array([2, 4, np.inf], np.float32))

    def step(self, action: Any) -> Result:
        assert action.dtype == np.float32
        _, reward, terminated, truncated, info = super().step(action)
        return action, reward, terminated, truncated, info


class StartsAtFive(Countdown):
    """Actions 5, 6 and 7; observes the one it was given."""

    action_space = spaces.Discrete(3, start=5)

    def step(self, action: Any) -> Result:
        assert self.action_space.contains(action)
        return np.full(1, float(action)), 0.0, False, False, {}


class Mixed(Countdown):
    """A Dict observation with an image, an index and a mask that allows the action that was not taken last."""

    observation_space = spaces.Dict(  # type: ignore[assignment]
        image=spaces.Box(0, 255, (2, 2), np.uint8), index=spaces.Discrete(3), action_mask=spaces.MultiBinary(2)
    )

    def _obs(self, action: int) -> dict[str, Any]:
        image = np.full((2, 2), self.t, np.uint8)
        return {"image": image, "index": np.int64(self.t % 3), "action_mask": np.eye(2, dtype=np.int8)[1 - action]}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._obs(1), {}

    def step(self, action: Any) -> Result:
        _, *rest = super().step(action)
        return self._obs(int(action)), *rest  # type: ignore[return-value]


class Infos(Countdown):
    """A Tuple observation, and a mask in the info."""

    observation_space = spaces.Tuple((spaces.Discrete(4), spaces.Box(-1, 1, (2,))))  # type: ignore[assignment]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return (0, np.zeros(2, np.float32)), {"action_mask": np.array([1, 0], np.int8)}

    def step(self, action: Any) -> Result:
        _, reward, terminated, truncated, _ = super().step(action)
        obs = (self.t, np.full(2, 0.5, np.float32))
        return obs, reward, terminated, truncated, {"action_mask": np.array([1, 1], np.int8)}


class Broken(Countdown):
    """Fails in its second step."""

    def step(self, action: Any) -> Result:
        if self.t == 1:
            raise ZeroDivisionError("the pole is on fire")
        return super().step(action)


class Unrepeatable(Countdown):
    """Draws from a source that no seed reaches."""

    def step(self, action: Any) -> Result:
        _, *rest = super().step(action)
        return np.random.default_rng().random(1), *rest  # type: ignore[return-value]


def takes_anything(**kwargs: Any) -> Countdown:
    """A plain function whose signature says nothing."""
    return Countdown(**kwargs)


def not_an_env() -> int:
    return 3


def rows(obs: Any) -> list[Any]:
    """An observation [N, ...] as lists."""
    return obs.tolist()  # type: ignore[no-any-return]
