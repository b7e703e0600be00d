"""MuJoCo Playground's tasks through its own library: N envs in one compiled call of JAX, on CPU or GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from slm_lab.env.adapter import Face
from slm_lab.env.engine import Engine, Transition, take
from slm_lab.env.playground_config import JaxTask, load
from slm_lab.env.seeds import env_seeds
from slm_lab.env.vec_env import GymVecEnv
from slm_lab.env.watch import Use, WatchedEngine
from slm_lab.env.wrapper import ActionMap
from slm_lab.lib.errors import SpecError
from slm_lab.spec.schema import EnvSpec
from slm_lab.types import Array, Obs, State, VecEnv, map_obs

Call = Callable[..., Any]


class JaxEngine:
    """N envs of one task. Their keys and states are one tree of arrays, saved whole and restored bit for bit.

    Every env draws its episodes from a key of its own, split at each reset. Arrays come to the lab by DLPack: those of
    a CPU without a copy; those of a GPU without a copy to torch, then to the host, where the lab keeps its rows.
    """

    def __init__(self, env: Any, seeds: Sequence[int], limit: int, repeat: int = 1, privileged: bool = False) -> None:
        self._jax = import_module("jax")
        self.num_envs, self._limit = len(seeds), limit
        self._env, self._repeat = env, repeat
        self._show = shown(privileged)
        # reset and step are compiled once each: they work on all envs, however many have ended
        self._fresh = self._jax.jit(new_episodes(env))
        self._pick = self._jax.jit(pick)
        self._step = self._jax.jit(one_action(env, repeat, self._show))
        keys = self._jax.vmap(self._jax.random.PRNGKey)(np.array(seeds, np.uint32))
        self._world: Any = self._fresh(keys)  # keys [N, ...], states [N, ...]
        self._steps = np.zeros(self.num_envs, np.int64)
        self._obs: Obs = self._look()
        self.observation_space: Space[Any] = _space(self._obs)
        self.action_space: Space[Any] = spaces.Box(-1, 1, (env.action_size,))

    def _look(self) -> Obs:
        obs: Obs = map_obs(_host, self._show(self._world[1].obs))
        return obs

    def reset(self, index: Array) -> tuple[Obs, Array | None]:
        chosen = np.zeros(self.num_envs, bool)
        chosen[index] = True
        self._world = self._pick(chosen, self._fresh(self._world[0]), self._world)
        self._steps[index] = 0
        self._obs = self._look()
        return take(self._obs, index), None

    def step(self, action: Array) -> Transition:
        keys, state = self._world
        state, reward, sound = self._step(state, action)
        self._world = keys, state
        self._obs = self._look()
        self._steps += 1
        broken = ~_host(sound)
        return Transition(
            self._obs,
            _host(reward).astype(np.float64),
            _host(state.done) > 0,
            self._steps >= self._limit,
            None,
            broken=broken if broken.any() else None,
        )

    def current(self) -> tuple[Obs, Array | None]:
        return self._obs, None

    @property
    def rate(self) -> float:
        """Actions a second of the first env's world."""
        return 1 / float(self._env.dt * self._repeat)

    def picture(self) -> Array:
        """The first env as it looks now [H, W, 3]."""
        first = self._jax.tree.map(lambda leaf: leaf[0], self._world[1])
        return np.asarray(self._env.render(first, height=480, width=480))

    def state_dict(self) -> State:
        world = [np.array(leaf) for leaf in self._jax.tree.leaves(self._world)]
        return {"world": world, "steps": self._steps.copy()}

    def load_state_dict(self, state: State) -> list[int]:
        leaves = [self._jax.numpy.asarray(leaf) for leaf in state["world"]]
        self._world = self._jax.tree.unflatten(self._jax.tree.structure(self._world), leaves)
        self._steps = np.array(state["steps"], np.int64)
        self._obs = self._look()
        return []

    def close(self) -> None:
        """JAX frees arrays when nothing holds them."""
        del self._world


def shown(privileged: bool) -> Call:
    """What the lab sees of an observation: one array; of entries the policy's `state` alone, or all of them."""

    def show(obs: Any) -> Any:
        if isinstance(obs, Mapping):
            return dict(obs) if privileged else obs["state"]
        if privileged:
            raise SpecError("env.privileged: this task has no entry that only a critic may see.")
        return obs

    return show


def new_episodes(env: Any) -> Call:
    """Keys [N, ...] -> the keys to go on from and states [N, ...] at the start of an episode."""
    jax = import_module("jax")

    def fresh(keys: Any) -> Any:
        pairs = jax.vmap(jax.random.split)(keys)
        states = jax.vmap(env.reset)(pairs[:, 1])
        # a number of no firm type would make the first step's input differ from the second's, and compile it twice
        return pairs[:, 0], jax.tree.map(lambda x: jax.lax.convert_element_type(x, x.dtype), states)

    return fresh


def pick(chosen: Any, left: Any, right: Any) -> Any:
    """Rows of `left` where chosen [N], else of `right`; arrays that are not rows of envs, of `right`."""
    jax = import_module("jax")

    def rows(a: Any, b: Any) -> Any:
        if a.ndim == 0 or len(a) != len(chosen):  # MuJoCo Warp shares its contacts among all envs
            return b
        return jax.numpy.where(chosen.reshape(-1, *[1] * (a.ndim - 1)), a, b)

    return jax.tree.map(rows, left, right)


def one_action(env: Any, repeat: int, show: Call) -> Call:
    """States and actions [N, A] -> states, rewards and where both are sound [N]: physics can blow up."""
    jax = import_module("jax")
    numpy, steps = jax.numpy, jax.vmap(env.step)

    def repeated(state: Any, action: Any) -> tuple[Any, Any]:
        """The action taken several times, until an episode ends; rewards are summed."""

        def again(state: Any, _: None) -> tuple[Any, Any]:
            over, after = state.done > 0, steps(state, action)
            return pick(over, state, after), numpy.where(over, 0, after.reward)

        state, rewards = jax.lax.scan(again, state, None, repeat)
        return state, rewards.sum(0)

    def once(state: Any, action: Any) -> tuple[Any, Any]:
        state = steps(state, action)
        return state, state.reward

    def step(state: Any, action: Any) -> tuple[Any, Any, Any]:
        state, reward = (once if repeat == 1 else repeated)(state, action)
        sound = numpy.isfinite(reward)
        for entry in jax.tree.leaves(show(state.obs)):
            sound &= numpy.isfinite(entry).reshape(len(entry), -1).all(1)
        return state, reward, sound

    return step


def _host(array: Any) -> Array:
    """A JAX array as numpy, without a copy where it is on the CPU."""
    import torch  # late: worker processes import this package, and torch would cost each of them seconds

    rows: Array = torch.from_dlpack(array).cpu().numpy()
    return rows


def _space(obs: Obs) -> Space[Any]:
    """The space of observations [N, ...]."""
    if isinstance(obs, dict):
        return spaces.Dict({key: _space(rows) for key, rows in obs.items()})
    return spaces.Box(-np.inf, np.inf, obs.shape[1:])


def make_jax(spec: EnvSpec, task: JaxTask, fixed_length: bool, key: tuple[int, ...], use: Use) -> VecEnv:
    """A vector env of a task that takes the policy's actions."""
    from slm_lab.lib.rng import Consumer, Rng  # late, as above

    jax = JaxEngine(load(task), env_seeds(spec, key, use.training), task.limit, task.repeat, task.privileged)
    engine: Engine = WatchedEngine(jax, use.watch) if use.watch else jax
    staggered = use.training and spec.num_envs > 1 and fixed_length
    limits = Rng(*key, Consumer.ENV).numpy.integers(1, task.limit + 1, spec.num_envs) if staggered else None
    return ActionMap(GymVecEnv(engine, limits, "exact" if task.on_cpu else "unverified"), engine.action_space)


def jax_face(task: JaxTask) -> Face:
    """The spaces of a task, and how to read an observation as the library gives it."""
    engine = JaxEngine(load(task), [0], task.limit, task.repeat, task.privileged)
    show = shown(task.privileged)
    return Face(engine.observation_space, engine.action_space, lambda obs: map_obs(np.asarray, show(obs)))
