"""What a spec asks of EnvPool: which of its tasks, with which arguments, and what is refused with a reason."""

from __future__ import annotations

import warnings
from contextlib import suppress
from ctypes import CDLL, RTLD_GLOBAL
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

from gymnasium import spaces

from slm_lab.env.check import no_switches, unknown_keys
from slm_lab.env.seeds import LARGEST
from slm_lab.lib.errors import LabError, SpecError, hint
from slm_lab.spec.schema import EnvSpec

ALE = "ALE/"
STICKY = 0.25  # registered for ALE's v5 ids; EnvPool's own default is 0
RESPELT = {"TicTacToe3D-v5": "TicTacToe3d-v5"}

# arguments of EnvPool that are no part of a spec
OURS = {
    "base_path",
    "batch_size",
    "gym_reset_return_info",
    "max_num_players",
    "num_envs",
    "reward_threshold",
    "task",
    "task_name",
    "thread_affinity_offset",
}
REFUSED = {
    "env_seed": "seeds follow from meta.random_seed",
    "episodic_life": "it swallows an action and what it scores at every lost life; with life_loss_info a lost life "
    "ends what is learnt from, and the game goes on",
    "max_episode_steps": "write max_t",
    "reward_clip": "scores would be lost; clip_reward clips what is learnt from",
    "seed": "seeds follow from meta.random_seed",
}
SWITCHES = ("life_loss_info", "privileged")  # keys of a spec that EnvPool itself does not know


class PoolTask(NamedTuple):
    """One task of EnvPool as a spec wants it."""

    id: str
    arguments: dict[str, Any]  # of envpool.make
    limit: int  # steps of an episode
    shown: str | tuple[str, ...] | None = None  # the entry of an observation, or the entries end to end; None for all
    says_terminated: bool = False  # beside truncated: else an end at the limit counts as truncated only
    atari: bool = False
    lives_count: bool = False  # a lost life ends what is learnt from
    fixed_length: bool = False  # only the limit ends an episode


def library() -> ModuleType:
    """EnvPool's package."""
    with suppress(OSError):
        load_egl()
    try:
        return import_module("envpool")
    except ImportError as error:
        raise SpecError(
            f"env.backend: EnvPool is not installed ({error}). Install it with `pip install 'slm-lab[envpool]'`."
        ) from None


def load_egl() -> None:
    """What EnvPool's MuJoCo draws by; where that is not there when EnvPool is imported, drawing ends the process."""
    CDLL("libEGL.so.1", RTLD_GLOBAL)


def check_egl() -> None:
    """LabError where EnvPool cannot draw."""
    try:
        load_egl()
    except OSError as error:
        raise LabError(f"env.backend: EnvPool draws by EGL, which is not installed ({error}).") from None


def pool_task(spec: EnvSpec, training: bool) -> PoolTask:
    """The task behind a Gymnasium id or an id of EnvPool's own; SpecError for keys it does not take."""
    task_id = pool_id(spec.name)
    sticky = {"repeat_action_probability": STICKY} if spec.name.startswith(ALE) else {}
    return settle(task_id, sticky | spec.kwargs, spec.max_t, training)


def pool_id(name: str) -> str:
    """EnvPool's id for a Gymnasium id, or a SpecError with the nearest of its ids."""
    task_id = name.removeprefix(ALE)
    task_id = RESPELT.get(task_id, task_id)
    known = library().list_all_envs()
    if task_id not in known:
        raise SpecError(f"env.name: EnvPool has no {name!r}.{hint(task_id, known)} Or write backend: auto.")
    return task_id


def settle(
    task_id: str, kwargs: dict[str, Any], max_t: int | None, training: bool, length: int | None = None
) -> PoolTask:
    """Check `kwargs` and fill in the rest; `length` stands for the task's own number of steps. Nothing is built."""
    module, spec = library().registration.registry.specs[task_id][0], _spec(task_id)
    atari, says_terminated = module == "envpool.atari", "info:terminated" in spec.state_array_spec
    shown = entries(task_id)
    switches = {"life_loss_info"} if atari else {"privileged"} if "privileged_state" in shown else set()
    if spec.config.max_num_players > 1:
        raise SpecError(f"env.name: {task_id} is a game of {spec.config.max_num_players} players; only one can learn.")
    _check(kwargs, {*spec.config._fields} - OURS, switches)
    limit = min(length or spec.config.max_episode_steps, max_t or LARGEST)
    return PoolTask(
        id=task_id,
        # a step of room lets an end at the limit be told from the limit; some observations show the share of time left
        arguments={key: value for key, value in kwargs.items() if key not in SWITCHES}
        | {"max_episode_steps": limit if says_terminated else min(limit + 1, LARGEST)},
        limit=limit,
        shown="state" if "state" in shown and not kwargs.get("privileged") else None,
        says_terminated=says_terminated,
        atari=atari,
        lives_count=training and bool(kwargs.get("life_loss_info")),
        fixed_length=module == "envpool.mujoco.dmc",
    )


def entries(task_id: str) -> tuple[str, ...]:
    """Names of the entries of a task's observations; none where those are one array."""
    with quietly():
        space = _spec(task_id).gymnasium_observation_space
    return tuple(space.spaces) if isinstance(space, spaces.Dict) else ()


def _spec(task_id: str) -> Any:
    """EnvPool's own description of a task."""
    try:
        return library().make_spec(task_id)
    except ImportError as error:
        raise SpecError(f"env.name: {task_id} needs a library that is not installed: {error}") from None


def _check(kwargs: dict[str, Any], arguments: set[str], switches: set[str]) -> None:
    """SpecError for keys that are refused, unknown, or no switch where they should be one."""
    known = {*EnvSpec.model_fields, *arguments, *switches} - {*REFUSED}
    wrong = [f"env.{key}: {REFUSED[key]}." for key in kwargs if key in REFUSED]
    wrong += unknown_keys([key for key in kwargs if key not in REFUSED], known)
    wrong += no_switches(kwargs, switches)
    if wrong:
        raise SpecError("\n".join(wrong))


def quietly() -> warnings.catch_warnings[None]:
    """Where EnvPool's spaces are read: their bounds lose digits, which Gymnasium warns of."""
    return warnings.catch_warnings(action="ignore")
