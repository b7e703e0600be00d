"""Frames a second of PPO with a recurrent net on CartPole, against sb3-contrib's RecurrentPPO with the same settings.

8 envs, T 128, minibatches of 256 rows, 10 epochs, 64 recurrent units each for policy and value, gradients through the
whole rollout; one thread.
RecurrentPPO has LSTM cells only: ours are measured with GRU and with LSTM.
Run: python -m perf.recurrent_cartpole   (needs the extra `perf`)
"""

from __future__ import annotations

from typing import Any

from sb3_contrib import RecurrentPPO
from stable_baselines3.common.env_util import make_vec_env

from perf.compare import compare, quiet
from perf.runners import Ours, Peer

ENVS, STEPS, ROWS, EPOCHS, UNITS = 8, 128, 256, 10, 64
FRAMES = 2 * ENVS * STEPS


def spec(cell: str) -> dict[str, Any]:
    return {
        "agent": {
            "algorithm": {
                "name": "PPO",
                "gamma": 0.99,
                "lam": 0.95,
                "clip_eps_spec": {"start_val": 0.2},
                "time_horizon": STEPS,
                "minibatch_size": ROWS,
                "training_epoch": EPOCHS,
                "val_loss_coef": 0.5,
            },
            "memory": {"name": "OnPolicyBatchReplay"},
            "net": {
                "type": "RecurrentNet",
                "cell_type": cell,
                "rnn_hidden_size": UNITS,
                "seq_len": STEPS,
                "hid_layers_activation": "tanh",
                "clip_grad_val": 0.5,
                "optim_spec": {"name": "Adam", "lr": 3e-4},
                "gpu": False,
            },
        },
        "env": {"name": "CartPole-v1", "num_envs": ENVS, "max_frame": 10_000_000},
        "meta": {"max_session": 1},
    }


def peer() -> Peer:
    model = RecurrentPPO(
        "MlpLstmPolicy",
        make_vec_env("CartPole-v1", n_envs=ENVS, seed=0),
        n_steps=STEPS,
        batch_size=ROWS,
        n_epochs=EPOCHS,
        policy_kwargs={"lstm_hidden_size": UNITS, "net_arch": []},
        device="cpu",
        seed=0,
    )
    return Peer(model)


def main() -> None:
    quiet()
    for cell in ("GRU", "LSTM"):
        compare(f"PPO {cell} CartPole-v1", Ours(spec(cell)), peer(), "RecurrentPPO", FRAMES, warm_up=FRAMES)


if __name__ == "__main__":
    main()
