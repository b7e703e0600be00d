"""Small valid specs for any algorithm of the registry, sessions of them that write nothing, and whether they learn."""

from __future__ import annotations

from typing import Any

import numpy as np
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

A2C: dict[str, Any] = {"gamma": 0.99, "lam": 0.95, "training_frequency": HORIZON, "entropy_coef_spec": ENTROPY}
PPO: dict[str, Any] = {
    "gamma": 0.99,
    "lam": 0.95,
    "clip_eps_spec": {"name": "no_decay", "start_val": 0.2},
    "entropy_coef_spec": ENTROPY,
    "time_horizon": HORIZON,
    "minibatch_size": 32,
    "training_epoch": 3,
}
REPLAY: dict[str, Any] = {"batch_size": 32, "max_size": 400}
EPSILON: dict[str, Any] = {"name": "linear_decay", "start_val": 1.0, "end_val": 0.05, "end_step": 320}
Q_LEARNING: dict[str, Any] = {"gamma": 0.99, "explore_var_spec": EPSILON, "training_frequency": HORIZON}
SOFT: dict[str, Any] = {"gamma": 0.99, "training_frequency": HORIZON, "training_iter": 2, "training_start_step": 64}
IMITATION: dict[str, Any] = {"sil_policy_loss_coef": 0.1, "sil_val_loss_coef": 0.01, "training_iter": 2}

AGENTS: dict[str, dict[str, Any]] = {
    "ActorCritic": {
        "algorithm": A2C,
        "memory": {"name": "OnPolicyBatchReplay"},
        "net": NET,
    },
    "CrossQ": {
        "algorithm": {**SOFT, "policy_delay": 2},
        "memory": {"name": "Replay", **REPLAY},
        "net": {**NET, "batch_renorm": {"warmup_steps": 10}},
        "critic_net": {**NET, "hid_layers": [32], "batch_renorm": {"warmup_steps": 10}},
    },
    "DQN": {"algorithm": Q_LEARNING, "memory": {"name": "Replay", **REPLAY}, "net": {**NET, "update_frequency": 40}},
    "DoubleDQN": {
        "algorithm": Q_LEARNING,
        "memory": {"name": "PrioritizedReplay", **REPLAY, "beta_spec": {"start_val": 0.4}},
        "net": {**NET, "update_type": "polyak", "polyak_coef": 0.1},
    },
    "PPO": {
        "algorithm": PPO,
        "memory": {"name": "OnPolicyBatchReplay"},
        "net": NET,
    },
    "PPOSIL": {
        "algorithm": {**PPO, **IMITATION},
        "memory": {"name": "OnPolicyBatchReplay", "sil_replay_name": "PrioritizedReplay", **REPLAY, "beta_spec": 0.1},
        "net": NET,
    },
    "Random": {"algorithm": {}},
    "Reinforce": {
        "algorithm": {"gamma": 0.99, "training_frequency": HORIZON, "entropy_coef_spec": ENTROPY},
        "memory": {"name": "OnPolicyBatchReplay"},
        "net": NET,
    },
    "SARSA": {
        "algorithm": {**Q_LEARNING, "action_policy": "epsilon_greedy"},
        "memory": {"name": "OnPolicyBatchReplay"},
        "net": NET,
    },
    "SIL": {
        "algorithm": {**A2C, **IMITATION},
        "memory": {"name": "OnPolicyBatchReplay", "sil_replay_name": "Replay", **REPLAY},
        "net": NET,
    },
    "SoftActorCritic": {
        "algorithm": SOFT,
        "memory": {"name": "Replay", **REPLAY},
        "net": {**NET, "update_type": "polyak", "polyak_coef": 0.05},
    },
    "VanillaDQN": {"algorithm": Q_LEARNING, "memory": {"name": "Replay", **REPLAY, "use_cer": True}, "net": NET},
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


def score(spec: Spec, seed: int, last: int = 20) -> float:
    """Mean return of the last episodes of a run."""
    session = tiny_session(spec, (seed, 0, 0))
    try:
        session.run()
        returns = list(session.tracker.returns)[-last:]
    finally:
        session.close()
    assert len(returns) == last
    return float(np.mean(returns))


def assert_learns(spec: Spec, least: float, last: int = 20) -> None:
    """Two of three seeds reach `least`; the third is run only where it decides."""
    scores = [score(spec, seed, last) for seed in (1, 2)]
    if sum(value >= least for value in scores) == 1:
        scores.append(score(spec, 3, last))
    assert sum(value >= least for value in scores) >= 2, f"scores {scores}, wanted {least}"


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


def assert_trains(env_name: str, **rest: Any) -> None:
    """PPO steps an env for 40 frames and learns from them."""
    settings = {"agent.algorithm.time_horizon": 5, "agent.algorithm.minibatch_size": 8, **rest}
    session = tiny_session(tiny_spec("PPO", env_name, max_frame=40, **settings))
    session.run()
    session.close()
    assert session.clock.frame == 40
    assert session.clock.opt_step > 0
