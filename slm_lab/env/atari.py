"""Atari games through ALE's own vector env: whole games are played and scored, lost lives matter to learning only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box

from slm_lab.env.adapter import Face
from slm_lab.env.atari_settings import COLOUR, ale, ale_arguments, check_atari
from slm_lab.env.engine import Engine, Transition
from slm_lab.env.seeds import LARGEST, env_seeds, later_seeds
from slm_lab.env.vec_env import RestartingVecEnv
from slm_lab.env.watch import Use, WatchedEngine
from slm_lab.env.wrapper import ActionMap, clipped_unless_shaped
from slm_lab.spec.schema import EnvSpec
from slm_lab.types import Array, Obs, State, VecEnv

EMULATED = 60.0  # frames a second of the console


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


class ColourEngine:
    """Games that can be drawn: the same are played once more in colour, by the same seeds and actions."""

    def __init__(self, spec: EnvSpec, seeds: Sequence[int], training: bool = True, threads: int = 1) -> None:
        self._games = AtariEngine(spec, seeds, training, threads)
        self._screens = AtariEngine(spec.model_copy(update=COLOUR), seeds, training, threads)
        self.num_envs = len(seeds)
        self.observation_space, self.action_space = self._games.observation_space, self._games.action_space
        self.rate = EMULATED / ale_arguments(spec, threads)["frameskip"]

    def picture(self) -> Array:
        """The first game's screen [210, 160, 3]."""
        screens = self._screens.current()[0]
        assert not isinstance(screens, dict)
        return np.asarray(screens[0, 0])

    def reset(self, index: Array) -> tuple[Obs, Array | None]:
        self._screens.reset(index)
        return self._games.reset(index)

    def step(self, action: Array) -> Transition:
        self._screens.step(action)
        return self._games.step(action)

    def current(self) -> tuple[Obs, Array | None]:
        return self._games.current()

    def state_dict(self) -> State:
        return self._games.state_dict()

    def load_state_dict(self, state: State) -> list[int]:
        self._screens.load_state_dict(state)
        return self._games.load_state_dict(state)

    def close(self) -> None:
        self._screens.close()
        self._games.close()


def make_atari(spec: EnvSpec, key: tuple[int, ...], use: Use) -> VecEnv:
    """A vector of games; learning rewards are clipped to [-1, 1] unless the spec says what becomes of them."""
    seeds = env_seeds(spec, key, use.training)
    if use.watch is None:
        engine: Engine = AtariEngine(spec, seeds, use.training, use.threads)
    else:
        engine = WatchedEngine(ColourEngine(spec, seeds, use.training, use.threads), use.watch)
    env = ActionMap(RestartingVecEnv(engine, "Atari games"), engine.action_space)
    return clipped_unless_shaped(env, spec) if use.training else env


def atari_face(spec: EnvSpec) -> Face:
    """A game's spaces; ALE takes the joystick in polar form."""
    engine = AtariEngine(spec, [0])
    face = Face(engine.observation_space, engine.action_space)
    engine.close()
    return face._replace(write=polar) if spec.kwargs.get("continuous") else face
