"""What a mode changes in a spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slm_lab.spec.schema import AgentSpec, EnvSpec, Spec

_LATE_STARTERS = ("SoftActorCritic", "CrossQ")
"""Algorithms whose default `training_start_step` lies past the frames of test mode."""


def for_mode(spec: Spec, mode: str) -> Spec:
    """The spec as a mode runs it: shorter for `dev` and `enjoy`, tiny for `test`."""
    if mode == "dev":
        return spec.model_copy(update={"meta": spec.meta.model_copy(update={"max_session": 1, "max_trial": 2})})
    if mode == "enjoy":
        return spec.model_copy(update={"meta": spec.meta.model_copy(update={"max_session": 1})})
    if mode == "test":
        meta = {"max_session": 1, "max_trial": 2, "log_frequency": 10, "eval_frequency": 10}
        sections = {"agent": _tiny_agent(spec.agent), "env": _tiny_env(spec.env)}
        return spec.model_copy(update={**sections, "meta": spec.meta.model_copy(update=meta)})
    return spec


def _tiny_env(env: EnvSpec) -> EnvSpec:
    return env.model_copy(update={"max_frame": 40, "max_t": 12, "num_envs": min(env.num_envs, 2)})


def _tiny_agent(agent: AgentSpec) -> AgentSpec:
    """Trains several times within 40 frames; sets only keys that are there, since each algorithm knows its own."""
    algorithm, memory = dict(agent.algorithm), dict(agent.memory)
    every = 1 if memory.get("name") == "OnPolicyReplay" else 8  # episodes there, steps elsewhere
    fixed = {"training_frequency": every, "time_horizon": every, "training_start_step": 1}
    fixed |= {"training_iter": 1, "training_batch_iter": 1}
    algorithm |= {key: value for key, value in fixed.items() if key in algorithm}
    if algorithm.get("name") in _LATE_STARTERS:
        algorithm["training_start_step"] = 1
    algorithm |= _capped(algorithm, "minibatch_size", "num_step_returns")
    memory |= _capped(memory, "batch_size")
    return agent.model_copy(update={"algorithm": algorithm, "memory": memory})


def _capped(section: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """The given keys, where set, at most 8; text is left for the component to judge."""
    return {key: min(section[key], 8) for key in keys if isinstance(section.get(key), int | float)}
