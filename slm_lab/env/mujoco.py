"""The engine that steps N MuJoCo envs in threads: bit for bit what N single Gymnasium envs give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
from gymnasium.utils.seeding import np_random

from slm_lab.env.engine import Transition
from slm_lab.env.mujoco_envs import TASKS
from slm_lab.env.painter import Painter
from slm_lab.env.source import build, episode_limit
from slm_lab.spec.schema import EnvSpec
from slm_lab.types import Array, Obs, State

UNKNOWN = {"xml_file", "render_mode"}  # another robot may lack what is read, and windows are not ours

WORTH_THREADS = 1000  # joint speeds worked out in a vector step, from which on waking threads costs less than they save


def can_simulate(spec: EnvSpec) -> bool:
    """Whether MujocoEngine steps this env: a known id; other settings of its constructor are read off the made env."""
    return spec.name in TASKS and not UNKNOWN & spec.kwargs.keys()


class MujocoEngine:
    """N simulations of one model. One Gymnasium env starts all episodes: it is lent the simulation and the generator.

    Only the simulations advance in threads; what is shown and scored is worked out for all of them at once.
    """

    def __init__(self, spec: EnvSpec, seeds: Sequence[int], threads: int = 1, worth: int = WORTH_THREADS) -> None:
        import mujoco  # late: importing it takes most of a second

        self._mj, self._painter = mujoco, Painter(spec)
        self._limit = episode_limit(spec) or np.inf
        env = build(spec)
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self._env = cast("Any", env.unwrapped)
        self._task = TASKS[spec.name](self._env)
        self.num_envs = len(seeds)
        self._rngs = [np_random(seed)[0] for seed in seeds]
        self._sims = [mujoco.MjData(self._env.model) for _ in seeds]
        self._controls = [sim.ctrl for sim in self._sims]
        self._views = [self._task.read(sim) for sim in self._sims]
        self._rows = self._read(range(self.num_envs))
        self._t = 0  # vector steps
        self._began = np.zeros(self.num_envs, np.int64)  # `t` at the last reset
        work = self.num_envs * self._env.frame_skip * self._env.model.nv
        self._helpers = min(threads, self.num_envs) - 1 if work >= worth else 0  # this thread works, too
        self._pool = ThreadPoolExecutor(self._helpers) if self._helpers else None

    def _read(self, index: Sequence[int]) -> Array:
        """Rows [n, d] of the simulations at `index`, as they are now."""
        return np.concatenate([view for i in index for view in self._views[i]]).reshape(len(index), -1)

    def reset(self, index: Array) -> tuple[Obs, Array | None]:
        chosen = index.tolist()
        for i in chosen:
            self._env.data, self._env.np_random = self._sims[i], self._rngs[i]
            self._env.reset()
        rows = self._read(chosen) if chosen else self._rows[:0]
        self._rows = self._rows.copy()
        self._rows[index] = rows
        self._began[index] = self._t
        return self._task.observe(rows), None

    def step(self, action: Array) -> Transition:
        action = np.asarray(action, self.action_space.dtype)
        self._simulate(action)
        before, self._rows = self._rows, self._read(range(self.num_envs))
        reward, terminated = self._task.score(before, self._rows, action)
        self._t += 1
        truncated = self._began <= self._t - self._limit
        return Transition(self._task.observe(self._rows), reward, terminated, truncated, None)

    def _simulate(self, action: Array) -> None:
        """Advance all simulations: each thread takes the next one that is left."""
        left = iter(range(self.num_envs))
        helpers = [self._pool.submit(self._advance, left, action) for _ in range(self._helpers)] if self._pool else []
        self._advance(left, action)
        for helper in helpers:
            if not helper.cancel():  # it has begun
                helper.result()

    def _advance(self, left: Iterator[int], action: Array) -> None:
        model, skip, step, forces = self._env.model, self._env.frame_skip, self._mj.mj_step, self._task.forces
        for i in left:
            sim = self._sims[i]
            self._controls[i][:] = action[i]
            step(model, sim, skip)  # without Python's lock
            if forces:
                self._mj.mj_rnePostConstraint(model, sim)

    def current(self) -> tuple[Obs, Array | None]:
        return self._task.observe(self._rows), None

    def state_dict(self) -> State:
        """All that a simulation starts its next step from; rows, for they show how things were within the last one."""
        kind, model = self._mj.mjtState.mjSTATE_INTEGRATION, self._env.model
        sims = np.empty((self.num_envs, self._mj.mj_stateSize(model, kind)))
        for row, sim in zip(sims, self._sims, strict=True):
            self._mj.mj_getState(model, sim, row, kind)
        rngs = [rng.bit_generator.state for rng in self._rngs]
        return {"sims": sims, "rows": self._rows.copy(), "elapsed": self._t - self._began, "rngs": rngs}

    def load_state_dict(self, state: State) -> list[int]:
        """Go on exactly where the saved envs were: none differs."""
        kind, model = self._mj.mjtState.mjSTATE_INTEGRATION, self._env.model
        for saved, sim, rng, drawn in zip(state["sims"], self._sims, self._rngs, state["rngs"], strict=True):
            self._mj.mj_resetData(model, sim)
            self._mj.mj_setState(model, sim, saved, kind)
            rng.bit_generator.state = drawn
        self._rows = np.array(state["rows"], np.float64)
        self._t, self._began = 0, -np.array(state["elapsed"], np.int64)
        return []

    @property
    def rate(self) -> float:
        return self._painter.rate

    def picture(self) -> Array:
        """The first env as it looks now [H, W, 3]."""
        self._painter.env.set_state(self._sims[0].qpos, self._sims[0].qvel)
        return self._painter.picture()

    def close(self) -> None:
        self._painter.close()
        if self._pool is not None:
            self._pool.shutdown()
