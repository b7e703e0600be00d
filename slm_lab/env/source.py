"""Where a single env comes from: Gymnasium's registry, or a callable of the user's own; and how it is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple, cast

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec as Registration
from gymnasium.envs.registration import load_env_creator

from slm_lab.lib.errors import SpecError, hint
from slm_lab.spec.schema import EnvSpec

Env = gym.Env[Any, Any]


class Source(NamedTuple):
    """What makes the env: `creator`, and its entry in Gymnasium's registry where it has one."""

    creator: Callable[..., Env]
    registration: Registration | None


def find(name: str) -> Source:
    """The source for `Id-v0`, `module:Id-v0` or `module:callable`; SpecError for anything else."""
    module_name, _, rest = name.rpartition(":")
    module = _import(module_name) if module_name else None
    if rest in gym.registry:
        return Source(_creator(gym.registry[rest]), gym.registry[rest])
    if module is not None and callable(vars(module).get(rest)):
        return Source(vars(module)[rest], None)
    runnable = [r.id for r in gym.registry.values() if isinstance(r.entry_point, str)]  # ids that are gone only raise
    near = hint(rest, [*runnable, *(vars(module) if module else ())])
    raise SpecError(
        f"env.name: unknown env {name!r}.{near} Allowed: an id in gymnasium.registry, `module:Id-v0`, "
        "or `module:callable` that returns a gymnasium.Env."
    )


def _import(name: str) -> ModuleType:
    try:
        return import_module(name)
    except Exception as error:  # whatever a module does when it is first run
        raise SpecError(f"env.name: cannot import {name!r}: {type(error).__name__}: {error}.") from error


def _creator(registration: Registration) -> Callable[..., Env]:
    """The constructor behind a registered id; its packages may be missing."""
    if callable(registration.entry_point):
        return registration.entry_point
    try:
        return cast("Callable[..., Env]", load_env_creator(str(registration.entry_point)))
    except (ImportError, gym.error.DependencyNotInstalled) as error:
        raise SpecError(f"env.name: {registration.id!r} needs a package that is not installed: {error}") from None


def episode_limit(spec: EnvSpec) -> int | None:
    """Steps after which an episode is truncated: the registered limit, or `max_t` where smaller."""
    registration = find(spec.name).registration
    limits = [limit for limit in (registration and registration.max_episode_steps, spec.max_t) if limit]
    return min(limits, default=None)


def build(spec: EnvSpec, render_mode: str | None = None) -> Env:
    """One Gymnasium env with its time limit and nothing else around it."""
    source = find(spec.name)
    kwargs = spec.kwargs | ({"render_mode": render_mode} if render_mode else {})
    limit = episode_limit(spec)
    if source.registration is not None:
        # a slot always resets before it steps: that check would cost a call per step
        registration = replace(source.registration, order_enforce=False)
        return gym.make(registration, max_episode_steps=limit, disable_env_checker=True, **kwargs)
    env = source.creator(**kwargs)
    if not isinstance(env, gym.Env):
        raise SpecError(f"env.name: {spec.name!r} must return a gymnasium.Env, got {type(env).__name__}.")
    return gym.wrappers.TimeLimit(env, limit) if limit else env
