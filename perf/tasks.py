"""What is trained: one set of settings each, as our spec and as the arguments that the peers take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

GAMMA, LAM, CLIP, ENTROPY, VALUE, NORM, RATE = 0.99, 0.95, 0.2, 0.01, 0.5, 0.5, 3e-4
ENDLESS = 1_000_000_000  # frames: no session here ends by itself


@dataclass(frozen=True)
class Task:
    """A spec of ours, and the class, policy and arguments of Stable-Baselines3 and SBX that mean the same."""

    spec: dict[str, Any]
    algorithm: str
    policy: str
    arguments: dict[str, Any]


def mlp(hidden: Sequence[int], activation: str) -> dict[str, Any]:
    return {"type": "MLPNet", "hid_layers": list(hidden), "hid_layers_activation": activation, "gpu": False}


def nature_cnn() -> dict[str, Any]:
    """The net of the Nature paper, one body for policy and value."""
    return {
        "type": "ConvNet",
        "shared": True,
        "conv_hid_layers": [[32, 8, 4], [64, 4, 2], [64, 3, 1]],
        "fc_hid_layers": [512],
        "hid_layers_activation": "relu",
        "batch_norm": False,
        "normalize": True,
        "gpu": False,
    }


def ppo(env: str, num_envs: int, horizon: int, minibatch: int, epochs: int, net: dict[str, Any]) -> Task:
    """PPO with one Adam for policy and value, on an MLP that they do not share or on the Nature CNN."""
    algorithm = {
        "name": "PPO",
        "gamma": GAMMA,
        "lam": LAM,
        "clip_eps_spec": {"start_val": CLIP},
        "entropy_coef_spec": {"start_val": ENTROPY},
        "val_loss_coef": VALUE,
        "time_horizon": horizon,
        "minibatch_size": minibatch,
        "training_epoch": epochs,
    }
    learning = {
        "use_same_optim": True,
        "clip_grad_val": NORM,
        "optim_spec": {"name": "Adam", "lr": RATE, "eps": 1e-5},
    }
    arguments: dict[str, Any] = {
        "learning_rate": RATE,
        "n_steps": horizon,
        "batch_size": minibatch,
        "n_epochs": epochs,
        "gamma": GAMMA,
        "gae_lambda": LAM,
        "clip_range": CLIP,
        "ent_coef": ENTROPY,
        "vf_coef": VALUE,
        "max_grad_norm": NORM,
    }
    if "hid_layers" in net:
        arguments["policy_kwargs"] = {"net_arch": {"pi": net["hid_layers"], "vf": net["hid_layers"]}}
    spec = _spec(algorithm, {"name": "OnPolicyBatchReplay"}, net | learning, env, num_envs)
    return Task(spec, "PPO", "MlpPolicy" if "hid_layers" in net else "CnnPolicy", arguments)


def a2c(env: str, num_envs: int, horizon: int, hidden: Sequence[int]) -> Task:
    """A2C with RMSprop, which Stable-Baselines3 takes unless told otherwise."""
    rate, alpha, eps = 7e-4, 0.99, 1e-5
    algorithm = {
        "name": "ActorCritic",
        "gamma": GAMMA,
        "lam": 1.0,
        "training_frequency": horizon,
        "entropy_coef_spec": {"start_val": ENTROPY},
        "val_loss_coef": VALUE,
        "normalize_advantages": "none",
    }
    net = mlp(hidden, "tanh") | {
        "use_same_optim": True,
        "clip_grad_val": NORM,
        "optim_spec": {"name": "RMSprop", "lr": rate, "alpha": alpha, "eps": eps},
    }
    arguments = {
        "learning_rate": rate,
        "n_steps": horizon,
        "gamma": GAMMA,
        "gae_lambda": 1.0,
        "ent_coef": ENTROPY,
        "vf_coef": VALUE,
        "max_grad_norm": NORM,
        "rms_prop_eps": eps,
        "policy_kwargs": {"net_arch": {"pi": list(hidden), "vf": list(hidden)}},
    }
    return Task(_spec(algorithm, {"name": "OnPolicyBatchReplay"}, net, env, num_envs), "A2C", "MlpPolicy", arguments)


def sac(env: str, batch: int, hidden: Sequence[int], start: int) -> Task:
    """SAC on one env, one update a frame from frame `start` on, with a learnt temperature."""
    size, tau = 1_000_000, 0.005
    algorithm = {
        "name": "SoftActorCritic",
        "gamma": GAMMA,
        "training_frequency": 1,
        "training_iter": 1,
        "training_start_step": start,
    }
    net = mlp(hidden, "relu") | {
        "optim_spec": {"name": "Adam", "lr": RATE},
        "update_type": "polyak",
        "polyak_coef": tau,
    }
    arguments = {
        "learning_rate": RATE,
        "buffer_size": size,
        "learning_starts": start,
        "batch_size": batch,
        "tau": tau,
        "gamma": GAMMA,
        "train_freq": 1,
        "gradient_steps": 1,
        "policy_kwargs": {"net_arch": list(hidden)},
    }
    memory = {"name": "Replay", "batch_size": batch, "max_size": size}
    return Task(_spec(algorithm, memory, net, env, 1), "SAC", "MlpPolicy", arguments)


def dqn(
    env: str,
    num_envs: int,
    batch: int,
    hidden: Sequence[int],
    size: int,
    start: int,
    memory: dict[str, Any] | None = None,
) -> Task:
    """DQN with one update a vector step from frame `start` on; `memory` is a replay of ours, uniform unless told."""
    rate, target = 1e-4, 1000
    algorithm = {
        "name": "DQN",
        "gamma": GAMMA,
        "explore_var_spec": {"start_val": 0.05},
        "training_frequency": num_envs,
        "training_start_step": start,
    }
    net = mlp(hidden, "relu") | {
        "clip_grad_val": 10.0,
        "loss_spec": {"name": "SmoothL1Loss"},
        "optim_spec": {"name": "Adam", "lr": rate},
        "update_frequency": target,
    }
    arguments = {
        "learning_rate": rate,
        "buffer_size": size,
        "learning_starts": start,
        "batch_size": batch,
        "gamma": GAMMA,
        "train_freq": 1,
        "gradient_steps": 1,
        "target_update_interval": target,
        "exploration_initial_eps": 0.05,
        "exploration_final_eps": 0.05,
        "policy_kwargs": {"net_arch": list(hidden)},
    }
    replay = (memory or {"name": "Replay"}) | {"batch_size": batch, "max_size": size}
    return Task(_spec(algorithm, replay, net, env, num_envs), "DQN", "MlpPolicy", arguments)


def _spec(
    algorithm: dict[str, Any], memory: dict[str, Any], net: dict[str, Any], env: str, num_envs: int
) -> dict[str, Any]:
    return {
        "agent": {"algorithm": algorithm, "memory": memory, "net": net},
        "env": {"name": env, "num_envs": num_envs, "max_frame": ENDLESS},
        "meta": {"max_session": 1},
    }
