"""Envs so small that what must be learnt in them is known exactly; named in specs as `probe_envs:Name`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from slm_lab.types import Array

Info = dict[str, Any]
LINE = spaces.Box(-np.inf, np.inf, (1,), np.float32)
ONLY_ONE, TWO = spaces.Discrete(1), spaces.Discrete(2)


def number(value: float) -> Array:
    return np.array([value], np.float32)


class Probe(gym.Env[Any, Any]):
    """Counts steps; what it observes, pays and when it ends is up to each probe."""

    observation_space: spaces.Space[Any] = LINE
    action_space: spaces.Space[Any] = ONLY_ONE
    t = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self.t = 0
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        reward = self.reward(action)
        self.t += 1
        return self.observe(), reward, self.over(), False, {}

    def observe(self) -> Any:
        return number(0)

    def reward(self, action: Any) -> float:
        return 1.0

    def over(self) -> bool:
        return True


class One(Probe):
    """Probe 1: one step, reward 1. V(0) = 1."""


class Drawn(Probe):
    """Probe 2: observes +1 or -1 by chance, and that is the reward. V(x) = x."""

    sign = 1.0
    scale = 1.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self.sign = float(self.np_random.choice([-1.0, 1.0]))
        return self.observe(), {}

    def observe(self) -> Any:
        return number(self.scale * self.sign)

    def reward(self, action: Any) -> float:
        return self.sign


class Two(Probe):
    """Probe 3: observes 0, then 1; reward 1 at the end. V(0) = gamma, V(1) = 1."""

    def observe(self) -> Any:
        return number(min(self.t, 1))

    def reward(self, action: Any) -> float:
        return float(self.t == 1)

    def over(self) -> bool:
        return self.t == 2


class Choice(Probe):
    """Probe 4: action 1 pays 1, action 0 costs 1."""

    action_space = TWO

    def reward(self, action: Any) -> float:
        return 1.0 if action == 1 else -1.0


class Match(Drawn):
    """Probes 5 and 9: action 1 is right at +1, action 0 at -1; observations may be of another scale."""

    action_space = TWO

    def __init__(self, scale: float = 1.0, shift: float = 0.0) -> None:
        self.scale, self.shift = scale, shift

    def observe(self) -> Any:
        return number(self.scale * self.sign + self.shift)

    def reward(self, action: Any) -> float:
        return 1.0 if (action == 1) == (self.sign > 0) else -1.0


class Endless(Probe):
    """Probe 6: nothing ever changes; the first reward of an episode may be another. Only a time limit ends it."""

    def __init__(self, first: float = 1.0) -> None:
        self.first = first

    def reward(self, action: Any) -> float:
        return self.first if self.t == 0 else 1.0

    def over(self) -> bool:
        return False


class Five(Probe):
    """Probe 6, the counterpart: observes the step, reward 1, really over after five."""

    observation_space = spaces.Discrete(6)

    def observe(self) -> Any:
        return self.t

    def over(self) -> bool:
        return self.t == 5


class Doomed(Probe):
    """Probe 7: x, then y, then z, which is the end: rewards 9 and 1. V(x) = 10 and V(y) = 1 without discount."""

    X, Y, Z = range(3)
    observation_space = spaces.Discrete(3)

    def observe(self) -> Any:
        return self.t

    def reward(self, action: Any) -> float:
        return 9.0 if self.t == 0 else 1.0

    def over(self) -> bool:
        return self.t == 2


class Aim(Probe):
    """Probe 8: one step, reward -(a - goal)^2 of an action within +-1."""

    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, goal: float = 0.5) -> None:
        self.goal = goal

    def reward(self, action: Any) -> float:
        assert self.action_space.contains(action), f"the env got {action}"
        return -float((action[0] - self.goal) ** 2)


class Numbered(Probe):
    """Probe 10: every env has a number from its seed, which it observes and pays in each of three steps."""

    mine = 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        if seed is not None:
            self.mine = float(self.np_random.uniform(-1, 1))
        return self.observe(), {}

    def observe(self) -> Any:
        return number(self.mine)

    def reward(self, action: Any) -> float:
        return self.mine

    def over(self) -> bool:
        return self.t == 3
