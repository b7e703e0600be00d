"""What a spec asks of ALE: which game, which arguments, and what is refused with a reason."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

import gymnasium as gym

from slm_lab.env.check import arguments, unknown_keys
from slm_lab.lib.errors import SpecError, hint
from slm_lab.spec.schema import EnvSpec

# frames as nets for Atari expect them; sticky actions, frame skip and the cap on frames are registered with each game
STANDARD = {
    "img_height": 84,
    "img_width": 84,
    "grayscale": True,
    "stack_num": 4,
    "maxpool": True,
    "noop_max": 30,
    "use_fire_reset": True,
}
COLOUR = {"img_height": 210, "img_width": 160, "grayscale": False, "stack_num": 1}

# arguments of ALE that may only be false: they are so here
ALWAYS_OFF = {
    "reward_clipping": "scores would be lost; clip_reward clips what is learnt from, and is 1 by default",
    "episodic_life": "it restarts the game at every lost life; with life_loss_info a lost life ends what is learnt "
    "from, and the game goes on",
}
OURS = {"game", "num_envs", "batch_size", "autoreset_mode"}  # arguments of ALE that are no part of a spec


def ale(name: str) -> ModuleType:
    """ALE's package, which registers the games when it is imported; `name` is the one asked for."""
    try:
        return import_module("ale_py")
    except ImportError as error:
        raise SpecError(
            f"env.name: {name!r}: Atari support is not installed ({error}). Install it with `pip install ale-py`."
        ) from None


def check_atari(spec: EnvSpec) -> None:
    """SpecError for an unknown game, and for arguments that ALE does not take or that are refused here."""
    _registered(spec.name)
    known = arguments(ale(spec.name).AtariVectorEnv) or set()
    fields = {*EnvSpec.model_fields, *(known - OURS - ALWAYS_OFF.keys())}
    wrong = [f"env.{key}: got {value!r}; {ALWAYS_OFF[key]}." for key, value in _switched_on(spec).items()]
    wrong += unknown_keys([key for key in spec.kwargs if key not in ALWAYS_OFF], fields)
    if wrong:
        raise SpecError("\n".join(wrong))


def _switched_on(spec: EnvSpec) -> dict[str, Any]:
    return {key: value for key, value in spec.kwargs.items() if key in ALWAYS_OFF and value is not False}


def _registered(name: str) -> dict[str, Any]:
    """Arguments that are registered with a game, its name among them."""
    ale(name)
    games = [game for game in gym.registry if game.startswith("ALE/")]
    if name not in games:
        raise SpecError(
            f"env.name: unknown game {name!r}.{hint(name, games)} "
            f"Allowed: one of the {len(games)} ids in gymnasium.registry that start with ALE/."
        )
    return dict(gym.registry[name].kwargs)


def ale_arguments(spec: EnvSpec, threads: int) -> dict[str, Any]:
    """Arguments of ALE's vector env but for the number of games; rewards are raw, and only a game's end is an end."""
    asked = {key: value for key, value in spec.kwargs.items() if key not in ("life_loss_info", *ALWAYS_OFF)}
    given = STANDARD | _registered(spec.name) | {"num_threads": threads, "reward_clipping": False} | asked
    if spec.max_t:
        limit = given["max_num_frames_per_episode"]
        given["max_num_frames_per_episode"] = min(limit, spec.max_t * given["frameskip"])
    return given
