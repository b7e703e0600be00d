"""Atari games through ALE's own vector env: whole games are played and scored, lost lives matter to learning only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box

from slm_lab.env.atari_settings import COLOUR, ale, ale_arguments, check_atari
from slm_lab.env.engine import Transition
from slm_lab.env.seeds import LARGEST, env_seeds, later_seeds
from slm_lab.env.vec_env import RestartingVecEnv
from slm_lab.env.wrapper import ActionMap, clipped_unless_shaped
from slm_lab.lib.errors import LabError
from slm_lab.spec.schema import EnvSpec
from slm_lab.types import Array, Obs, State, VecEnv


class AtariEngine:
    """N games of one kind. ALE cannot save a game: loading starts new ones, from seeds that follow from the saved."""

    def __init__(self, spec: EnvSpec, seeds: Sequence[int], training: bool = True, threads: int = 1) -> None:
        check_atari(spec)
        self.num_envs = len(seeds)
        self._env = ale(spec.name).AtariVectorEnv(num_envs=self.num_envs, **ale_arguments(spec, threads))
        self._lives_count = training and bool(spec.kwargs.get("life_loss_info"))
        self.observation_space: Space[Any] = self._env.single_observation_space
        self._polar = bool(self._env.continuous)
        self.action_space: Space[Any] = Box(-1, 1, (3,)) if self._polar else self._env.single_action_space
        self._seeds = [int(seed) for seed in seeds]
        self._steps = 0
        self._started = False
        self._obs: Array
        self._lives: Array

    def reset(self, index: Array) -> tuple[Obs, Array | None]:
        """New games at `index`; only the first ones, which must be all, are seeded."""
        if self._started:
            self._begin(index, np.full(len(index), -1))
        else:
            self._begin(index, np.array(self._seeds)[index] & LARGEST)
        return self._obs[index], None

    def _begin(self, index: Array, seeds: Array) -> None:
        chosen = np.zeros(self.num_envs, bool)
        chosen[index] = True
        self._obs, info = self._env.reset(seed=seeds, options={"reset_mask": chosen})
        self._lives, self._started = info["lives"], True

    def step(self, action: Array) -> Transition:
        self._obs, reward, terminated, truncated, info = self._env.step(polar(action) if self._polar else action)
        over, lives = terminated | truncated, info["lives"]
        if self._lives_count:
            # as ALE's own life_loss_info; from ours it is always known which ends are a game's
            terminated = terminated | ((lives < self._lives) & (lives > 0))
        self._lives = lives
        self._steps += 1
        return Transition(self._obs, reward.astype(np.float64), terminated, truncated, None, over)

    def current(self) -> tuple[Obs, Array | None]:
        return self._obs, None

    def state_dict(self) -> State:
        return {"seeds": list(self._seeds), "steps": self._steps}

    def load_state_dict(self, state: State) -> list[int]:
        """Start games whose seeds follow from the saved ones and from when they were saved; nothing is replayed."""
        self._seeds, self._steps = [int(seed) for seed in state["seeds"]], int(state["steps"])
        self._begin(np.arange(self.num_envs), np.array(later_seeds(self._seeds, self._steps)) & LARGEST)
        return []

    def close(self) -> None:
        """ALE's threads end with its object."""
        del self._env


def polar(action: Array) -> Array:
    """Joystick actions [N, 3] in [-1, 1] (right, up, fire) as ALE takes them: radius, angle, and fire in [0, 1]."""
    x, y, fire = action.T
    columns = np.minimum(np.hypot(x, y), 1), np.arctan2(y, x), (fire + 1) / 2
    return np.stack(columns, axis=1).astype(np.float32)


def make_atari(spec: EnvSpec, key: tuple[int, ...], training: bool, render_mode: str | None) -> VecEnv:
    """A vector of games; learning rewards are clipped to [-1, 1] unless the spec says what becomes of them."""
    if render_mode is not None:
        raise LabError(f"env.name: {spec.name} opens no window; run it without rendering.")
    engine = AtariEngine(spec, env_seeds(spec, key, training), training)
    env = ActionMap(RestartingVecEnv(engine, "Atari games"), engine.action_space)
    return clipped_unless_shaped(env, spec) if training else env


def atari_screen(spec: EnvSpec, key: tuple[int, ...], training: bool = False) -> VecEnv:
    """The games of make_atari in colour, in step with them under the same actions: `obs` is [N, 1, 210, 160, 3]."""
    return make_atari(spec.model_copy(update=COLOUR), key, training, None)
