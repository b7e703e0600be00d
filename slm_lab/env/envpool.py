"""EnvPool as a backend: N envs stepped in C++, many more tasks than Gymnasium's; an open episode cannot be saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from slm_lab.env.adapter import Face
from slm_lab.env.engine import Engine, Transition, put, take
from slm_lab.env.envpool_task import PoolTask, check_egl, library, pool_task, quietly
from slm_lab.env.known import FIXED_LENGTH
from slm_lab.env.painter import rate_of
from slm_lab.env.seeds import LARGEST, env_seeds, later_seeds
from slm_lab.env.spaces import Entry, ObsCodec
from slm_lab.env.vec_env import RestartingVecEnv
from slm_lab.env.watch import Use, WatchedEngine
from slm_lab.env.wrapper import ActionMap, clipped_unless_shaped
from slm_lab.lib.errors import SpecError
from slm_lab.spec.schema import EnvSpec
from slm_lab.types import MASK, Array, Obs, State, VecEnv, map_obs


class EnvPoolEngine:
    """N envs of one task. Loading starts new episodes, from seeds that follow from the saved ones.

    EnvPool would restart an ended env in its next step and ignore the action of that step. A reset right after an end
    takes that restart's place, so that every row is a real step. Env i gets the ith seed, cut to the 31 bits allowed.
    """

    def __init__(self, task: PoolTask, seeds: Sequence[int], drawn: bool = False, threads: int = 1) -> None:
        self._task = task
        # the spec's own number of threads counts more
        self._arguments = {"num_threads": threads, "render_mode": "rgb_array" if drawn else None} | task.arguments
        self.num_envs = len(seeds)
        self._seeds = [int(seed) for seed in seeds]
        self._steps = 0
        observation, action = self._build(self._seeds)
        self.view = View(observation, task)
        self.observation_space, self.action_space = self.view.space, action
        self._obs: Obs
        self._mask: Array | None
        self._lives = np.zeros(self.num_envs, np.int32)

    def _build(self, seeds: list[int]) -> tuple[Space[Any], Space[Any]]:
        """A new pool; its spaces of observations and actions."""
        self._now = seeds
        self._pool: Any = library().make_gymnasium(
            self._task.id, num_envs=self.num_envs, seed=[seed & LARGEST for seed in seeds], **self._arguments
        )
        with quietly():  # made when first asked for, and then kept
            return self._pool.observation_space, self._pool.action_space

    def reset(self, index: Array) -> tuple[Obs, Array | None]:
        raw, info = self._pool.reset(index.astype(np.int32))
        if self._task.lives_count:
            self._lives[index] = info["lives"]
        obs, mask = self.view.obs(raw), self.view.mask(raw)
        if len(index) == self.num_envs:
            order = np.argsort(index)
            self._obs, self._mask = take(obs, order), None if mask is None else mask[order]
            return obs, mask
        self._obs = take(self._obs, slice(None))  # because what was given out stays as it is
        put(self._obs, index, obs)
        if self._mask is not None:
            self._mask = self._mask.copy()
            self._mask[index] = mask
        return obs, mask

    def step(self, action: Array) -> Transition:
        raw, reward, terminated, truncated, info = self._pool.step(np.asarray(action, self.action_space.dtype))
        self._steps += 1
        self._obs, self._mask = self.view.obs(raw), self.view.mask(raw)
        if self._task.says_terminated:
            terminated = info["terminated"].astype(bool)
        else:
            truncated = truncated | (info["elapsed_step"] >= self._task.limit)
        over = None
        if self._task.lives_count:
            over, lives = terminated | truncated, info["lives"]
            terminated = terminated | ((lives < self._lives) & (lives > 0))
            self._lives = lives.copy()
        return Transition(self._obs, reward.astype(np.float64), terminated, truncated, self._mask, over)

    def current(self) -> tuple[Obs, Array | None]:
        return self._obs, self._mask

    def first_limits(self) -> Array:
        """Steps [N] after which the first episodes are cut, so that envs of fixed length do not run in phase."""
        return np.random.default_rng(self._now).integers(1, self._task.limit + 1, self.num_envs)

    @property
    def rate(self) -> float:
        """Steps a second of its world, as far as EnvPool says."""
        return rate_of(self._pool)

    def picture(self) -> Array:
        """The first env as it looks now [H, W, 3], where the pool was made to be drawn."""
        return np.asarray(self._pool.render(0)[0])

    def state_dict(self) -> State:
        return {"seeds": list(self._seeds), "steps": self._steps}

    def load_state_dict(self, state: State) -> list[int]:
        """Start episodes whose seeds follow from the saved ones and from when they were saved; nothing is replayed."""
        self._seeds, self._steps = [int(seed) for seed in state["seeds"]], int(state["steps"])
        self._build(later_seeds(self._seeds, self._steps))
        self.reset(np.arange(self.num_envs))
        return []

    def close(self) -> None:
        """EnvPool's threads end with its object."""
        self._pool.close()
        del self._pool


class View:
    """EnvPool's observations as the lab sees them: the entries a task shows, images as bytes, all else as float32."""

    def __init__(self, space: Space[Any], task: PoolTask) -> None:
        self._shown = task.shown
        self.space = _shown_space(space, task.shown)
        self._masked = ObsCodec(self.space).masked
        self._read: Read | dict[str, Read]
        if isinstance(self.space, spaces.Dict):
            self._read = {key: _reader(part) for key, part in self.space.spaces.items() if key != MASK}
        else:
            self._read = _reader(self.space)

    def obs(self, raw: Any) -> Obs:
        """Observations [n, ...]."""
        if isinstance(self._shown, str):
            raw = raw[self._shown]
        elif self._shown is not None:
            raw = np.concatenate([raw[key].reshape(len(raw[key]), -1) for key in self._shown], axis=1)
        if isinstance(self._read, dict):
            return {key: read(raw[key]) for key, read in self._read.items()}
        return self._read(raw)

    def one(self, raw: Any) -> Any:
        """One observation; one that shows only what the lab does is taken as it is."""
        if not isinstance(raw, Mapping):
            return raw
        obs: Any = map_obs(lambda rows: rows[0], self.obs({key: np.asarray(part)[None] for key, part in raw.items()}))
        return obs

    def mask(self, raw: Any) -> Array | None:
        """Allowed actions [n, A], where the task says which."""
        return raw[MASK].reshape(len(raw[MASK]), -1).astype(bool) if self._masked else None


Read = Callable[[Any], Array]


def _shown_space(space: Space[Any], shown: str | tuple[str, ...] | None) -> Space[Any]:
    """The space of what is shown; floats have no bounds, because those that EnvPool states do not always hold."""
    if isinstance(space, spaces.Dict):
        if isinstance(shown, str):
            return _shown_space(space[shown], None)
        if shown is not None:
            return spaces.Box(-np.inf, np.inf, (sum(spaces.flatdim(space[key]) for key in shown),))
        return spaces.Dict({key: _shown_space(part, None) for key, part in space.spaces.items()})
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return spaces.Box(-np.inf, np.inf, space.shape)
    return space


def _reader(space: Space[Any]) -> Read:
    """What turns EnvPool's rows [n, ...] of one space into the lab's."""
    entry = ObsCodec(space).entries
    if not isinstance(entry, Entry):
        raise SpecError(f"env.name: observation space {space} has entries within entries, which is not supported.")
    shape, dtype, write = entry
    if isinstance(space, spaces.Box):
        return lambda raw: np.asarray(raw, dtype).reshape(-1, *shape)

    def read(raw: Any) -> Array:
        rows = np.empty((len(raw), *shape), dtype)
        for row, value in enumerate(raw):
            write(rows, row, value)
        return rows

    return read


def make_envpool(spec: EnvSpec, key: tuple[int, ...], use: Use) -> VecEnv:
    """A Gymnasium id, or one of EnvPool's own, as a vector env that takes the policy's actions."""
    task = pool_task(spec, use.training)
    return make_pool(spec, task._replace(fixed_length=task.fixed_length or spec.name in FIXED_LENGTH), key, use)


def make_pool(spec: EnvSpec, task: PoolTask, key: tuple[int, ...], use: Use) -> VecEnv:
    """A vector env of a task; Atari's learning rewards are clipped to [-1, 1] unless the spec says otherwise."""
    if use.watch is not None:
        check_egl()
    pool = EnvPoolEngine(task, env_seeds(spec, key, use.training), use.watch is not None, use.threads)
    engine: Engine = WatchedEngine(pool, use.watch) if use.watch else pool
    staggered = use.training and spec.num_envs > 1 and task.fixed_length
    vector = RestartingVecEnv(engine, "EnvPool's episodes", pool.first_limits if staggered else None)
    env = ActionMap(vector, engine.action_space)
    return clipped_unless_shaped(env, spec) if task.atari and use.training else env


def envpool_face(spec: EnvSpec) -> Face:
    """The spaces of a task as the lab sees it."""
    return pool_face(pool_task(spec, training=False))


def pool_face(task: PoolTask) -> Face:
    """The spaces of a task, and how to read an observation as EnvPool gives it: with all of its entries."""
    engine = EnvPoolEngine(task, [0])
    engine.close()
    return Face(engine.observation_space, engine.action_space, engine.view.one)


def check_envpool(spec: EnvSpec) -> None:
    """SpecError for an id or an argument that EnvPool does not have; nothing is built."""
    pool_task(spec, training=True)
