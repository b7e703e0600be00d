"""Small valid specs for any algorithm of the registry, and sessions of them that write nothing."""

from __future__ import annotations

from typing import Any

import torch

from slm_lab.agent.algorithm.base import Key
from slm_lab.agent.plan import plan_agent
from slm_lab.experiment.session import Session
from slm_lab.spec.load import from_mapping
from slm_lab.spec.schema import EnvSpec, Spec

torch.set_num_threads(1)  # as a session of its own process does: on nets this small more threads only get in the way

HORIZON = 16  # vector steps of a batch: 64 rows with the 4 envs below

NET: dict[str, Any] = {
    "type": "MLPNet",
    "hid_layers": [16],
    "hid_layers_activation": "tanh",
    "optim_spec": {"name": "Adam", "lr": 0.01},
}
ENTROPY: dict[str, Any] = {"name": "no_decay", "start_val": 0.001}

AGENTS: dict[str, dict[str, Any]] = {
    "ActorCritic": {
        "algorithm": {"gamma": 0.99, "lam": 0.95, "training_frequency": HORIZON, "entropy_coef_spec": ENTROPY},
        "memory": {"name": "OnPolicyBatchReplay"},
        "net": NET,
    },
    "PPO": {
        "algorithm": {
            "gamma": 0.99,
            "lam": 0.95,
            "clip_eps_spec": {"name": "no_decay", "start_val": 0.2},
            "entropy_coef_spec": ENTROPY,
            "time_horizon": HORIZON,
            "minibatch_size": 32,
            "training_epoch": 3,
        },
        "memory": {"name": "OnPolicyBatchReplay"},
        "net": NET,
    },
    "Random": {"algorithm": {}},
    "Reinforce": {
        "algorithm": {"gamma": 0.99, "training_frequency": HORIZON, "entropy_coef_spec": ENTROPY},
        "memory": {"name": "OnPolicyBatchReplay"},
        "net": NET,
    },
}
"""The agent section of each algorithm; a new algorithm needs an entry here."""


def tiny_spec(algorithm_name: str, env_name: str = "CartPole-v1", /, **overrides: Any) -> Spec:
    """A spec of 4 envs and 640 frames. Overrides are dotted paths, or bare keys of `env`: num_envs=2, **{"a.b": 1}."""
    tree: dict[str, Any] = {
        "agent": _copy(AGENTS[algorithm_name]),
        "env": {"name": env_name, "num_envs": 4, "max_frame": 640},
        "meta": {"max_session": 1, "log_frequency": 160},
    }
    tree["agent"]["algorithm"]["name"] = algorithm_name
    for path, value in overrides.items():
        _set(tree, path if "." in path else _env_path(path), value)
    return from_mapping(tree, f"tiny_{algorithm_name.lower()}").spec


def tiny_session(spec: Spec, key: Key = (0, 0, 0)) -> Session:
    """A session that writes no files."""
    return Session(spec, plan_agent(spec.agent, spec.env.num_envs, []), key)


def _env_path(key: str) -> str:
    assert key in EnvSpec.model_fields, f"{key!r} is no key of env: give its full path"
    return f"env.{key}"


def _set(tree: dict[str, Any], path: str, value: Any) -> None:
    """Set one value; parts of the path that do not exist become mappings."""
    *parents, last = path.split(".")
    for part in parents:
        tree = tree.setdefault(part, {})
    tree[last] = value


def _copy(value: Any) -> Any:
    return {key: _copy(item) for key, item in value.items()} if isinstance(value, dict) else value
