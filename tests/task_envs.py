"""Small tasks that only the right net solves; named in specs as `task_envs:Name`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from slm_lab.types import Array

Info = dict[str, Any]
SIDE, STEPS, CHOICES = 10, 5, 4


class Catch(gym.Env[Any, Any]):
    """A ball falls through a 10 x 10 image, a paddle below moves left or right: +1 for a catch, -1 for a miss."""

    observation_space = spaces.Box(0, 255, (1, SIDE, SIDE), np.uint8)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Array, Info]:
        super().reset(seed=seed)
        self.ball = [0, int(self.np_random.integers(SIDE))]
        self.paddle = SIDE // 2
        return self.observe(), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, Info]:
        self.paddle = int(np.clip(self.paddle + action - 1, 0, SIDE - 1))
        self.ball[0] += 1
        over = self.ball[0] == SIDE - 1
        return self.observe(), (1.0 if self.ball[1] == self.paddle else -1.0) if over else 0.0, over, False, {}

    def observe(self) -> Array:
        image = np.zeros((1, SIDE, SIDE), np.uint8)
        image[0, SIDE - 1, self.paddle] = image[0, self.ball[0], self.ball[1]] = 255
        return image


class Recall(gym.Env[Any, Any]):
    """Shows +1 or -1 at first and 0 from then on; the last of 5 actions should say which it was: +1, else -1."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space: spaces.Space[Any] = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Array, Info]:
        super().reset(seed=seed)
        self.t, self.cue = 0, int(self.np_random.integers(2))
        return self.observe(), {}

    def right(self, action: Any) -> bool:
        return int(action) == self.cue

    def step(self, action: Any) -> tuple[Array, float, bool, bool, Info]:
        self.t += 1
        over = self.t == STEPS
        return self.observe(), (1.0 if self.right(action) else -1.0) if over else 0.0, over, False, {}

    def observe(self) -> Array:
        return np.array([2 * self.cue - 1 if self.t == 0 else 0, self.t / STEPS], np.float32)


class RecallAim(Recall):
    """The same, said by the sign of a continuous action."""

    action_space: spaces.Space[Any] = spaces.Box(-1, 1, (1,), np.float32)

    def right(self, action: Any) -> bool:
        return bool((action[0] > 0) == bool(self.cue))


class Both(gym.Env[Any, Any]):
    """A number in a vector and a light in an image, each 0 or 1: the right action is whether they differ."""

    observation_space = spaces.Dict(
        {
            "light": spaces.Box(0, 255, (1, 6, 6), np.uint8),
            "number": spaces.Discrete(2),
            "noise": spaces.Box(-1, 1, (2,)),
        }
    )
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self.pair = [int(x) for x in self.np_random.integers(2, size=2)]
        return self.observe(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, Info]:
        return self.observe(), 1.0 if action == self.pair[0] ^ self.pair[1] else -1.0, True, False, {}

    def observe(self) -> Any:
        light = np.zeros((1, 6, 6), np.uint8)
        light[0, 2, 2 + self.pair[0]] = 255
        return {"light": light, "number": self.pair[1], "noise": self.np_random.uniform(-1, 1, 2).astype(np.float32)}


class Masked(gym.Env[Any, Any]):
    """Some of 4 actions are allowed at each step, said in `info`; higher ones pay more, and any other ends the test."""

    observation_space: spaces.Space[Any] = spaces.Box(0, 1, (CHOICES,), np.float32)
    action_space: spaces.Space[Any] = spaces.Discrete(CHOICES)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self.t = 0
        return self.observe()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        reward = self.worth(action)
        self.t += 1
        obs, info = self.observe()
        return obs, reward, self.t == 8, False, info

    def worth(self, action: Any) -> float:
        if not self.mask[action]:
            raise AssertionError(f"action {action} was not allowed")
        return float(action == np.flatnonzero(self.mask).max())

    def draw(self) -> Array:
        mask = self.np_random.random(CHOICES) < 0.5
        mask[self.np_random.integers(CHOICES)] = True
        return mask

    def observe(self) -> tuple[Any, Info]:
        self.mask = self.draw()
        return self.mask.astype(np.float32), {"action_mask": self.mask.astype(np.int8)}


class MaskedEntry(Masked):
    """The mask is an entry of the observation instead."""

    observation_space = spaces.Dict(
        {"obs": spaces.Box(0, 1, (CHOICES,), np.float32), "action_mask": spaces.MultiBinary(CHOICES)}
    )

    def observe(self) -> tuple[Any, Info]:
        obs, info = super().observe()
        return {"obs": obs, **info}, {}


class MaskedPair(Masked):
    """Two components of 2 and 3 choices, each with its own mask."""

    observation_space = spaces.Box(0, 1, (5,), np.float32)
    action_space = spaces.MultiDiscrete([2, 3])

    def worth(self, action: Any) -> float:
        parts = self.mask[:2], self.mask[2:]
        for part, choice in zip(parts, action, strict=True):
            if not part[choice]:
                raise AssertionError(f"action {action} was not allowed")
        return float(all(choice == np.flatnonzero(part).max() for part, choice in zip(parts, action, strict=True)))

    def draw(self) -> Array:
        mask = self.np_random.random(5) < 0.5
        mask[self.np_random.integers(2)] = mask[2 + self.np_random.integers(3)] = True
        return mask
