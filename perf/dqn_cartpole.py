"""Frames a second of DQN on CartPole: against Stable-Baselines3 with the same settings, and uniform against PER.

4 envs, one update a vector step, batch 32, [64, 64]; one thread, steady state.
Run: python -m perf.dqn_cartpole   (needs the extra `perf`)
"""

from __future__ import annotations

from typing import Any

from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env

from perf.compare import Ours, Peer, compare, quiet

FRAMES = 10_000


def spec(memory: dict[str, Any]) -> dict[str, Any]:
    epsilon = {"name": "linear_decay", "start_val": 1.0, "end_val": 0.05, "start_step": 0, "end_step": 10_000}
    return {
        "agent": {
            "algorithm": {
                "name": "DQN",
                "gamma": 0.99,
                "explore_var_spec": epsilon,
                "training_frequency": 4,
                "training_start_step": 1000,
            },
            "memory": {"batch_size": 32, "max_size": 100_000, **memory},
            "net": {
                "type": "MLPNet",
                "hid_layers": [64, 64],
                "hid_layers_activation": "relu",
                "clip_grad_val": 10.0,
                "loss_spec": {"name": "SmoothL1Loss"},
                "optim_spec": {"name": "Adam", "lr": 1e-4},
                "update_frequency": 1000,
                "gpu": False,
            },
        },
        "env": {"name": "CartPole-v1", "num_envs": 4, "max_frame": 10_000_000},
        "meta": {"max_session": 1},
    }


def peer() -> Peer:
    model = DQN(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=4, seed=0),
        learning_rate=1e-4,
        buffer_size=100_000,
        learning_starts=1000,
        batch_size=32,
        gamma=0.99,
        train_freq=1,
        gradient_steps=1,
        target_update_interval=1000,
        exploration_fraction=1e-3,
        policy_kwargs={"net_arch": [64, 64]},
        device="cpu",
        seed=0,
    )
    return Peer(model)


def main() -> None:
    quiet()
    uniform = {"name": "Replay"}
    prioritized = {"name": "PrioritizedReplay", "alpha": 0.6, "epsilon": 1e-6, "beta_spec": 0.4}
    compare("DQN CartPole-v1", Ours(spec(uniform)), peer(), "Stable-Baselines3", FRAMES, warm_up=2000)
    compare("DQN with PER", Ours(spec(prioritized)), Ours(spec(uniform)), "uniform", FRAMES, warm_up=2000)


if __name__ == "__main__":
    main()
