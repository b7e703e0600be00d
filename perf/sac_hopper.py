"""Frames a second of SAC on Hopper: this lab against Stable-Baselines3, same settings, one thread, steady state.

1 env, one update a frame, batch 256, [256, 256].
Run: python -m perf.sac_hopper   (needs the extra `perf`)
"""

from __future__ import annotations

from typing import Any

from stable_baselines3 import SAC
from stable_baselines3.common.env_util import make_vec_env

from perf.compare import Ours, Peer, compare, quiet


def spec() -> dict[str, Any]:
    return {
        "agent": {
            "algorithm": {
                "name": "SoftActorCritic",
                "gamma": 0.99,
                "training_frequency": 1,
                "training_iter": 1,
                "training_start_step": 300,
            },
            "memory": {"name": "Replay", "batch_size": 256, "max_size": 1_000_000},
            "net": {
                "type": "MLPNet",
                "hid_layers": [256, 256],
                "hid_layers_activation": "relu",
                "optim_spec": {"name": "Adam", "lr": 3e-4},
                "update_type": "polyak",
                "polyak_coef": 0.005,
                "gpu": False,
            },
        },
        "env": {"name": "Hopper-v5", "num_envs": 1, "max_frame": 10_000_000},
        "meta": {"max_session": 1},
    }


def peer() -> Peer:
    env = make_vec_env("Hopper-v5", n_envs=1, seed=0)
    return Peer(SAC("MlpPolicy", env, learning_starts=300, device="cpu", seed=0))  # its defaults are the spec's


def main() -> None:
    quiet()
    compare("SAC Hopper-v5", Ours(spec()), peer(), "Stable-Baselines3", frames=1000, warm_up=600)


if __name__ == "__main__":
    main()
