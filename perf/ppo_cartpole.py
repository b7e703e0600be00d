"""Frames a second of PPO on CartPole: this lab against Stable-Baselines3, same settings, one thread, steady state.

Run: python -m perf.ppo_cartpole   (needs the extra `perf`)
"""

from __future__ import annotations

from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from perf.compare import Ours, Peer, compare, quiet
from slm_lab.spec.load import dump, load

FILE, NAME = "slm_lab/spec/benchmark/ppo/ppo_cartpole.json", "ppo_cartpole"


def peer() -> Peer:
    """Stable-Baselines3 with the packaged spec's settings."""
    spec = load(FILE, NAME).spec
    algorithm, net = spec.agent.algorithm, spec.agent.net
    model = PPO(
        "MlpPolicy",
        make_vec_env(spec.env.name, n_envs=spec.env.num_envs, seed=0),
        n_steps=algorithm["time_horizon"],
        batch_size=algorithm["minibatch_size"],
        n_epochs=algorithm["training_epoch"],
        gamma=algorithm["gamma"],
        gae_lambda=algorithm["lam"],
        clip_range=algorithm["clip_eps_spec"]["start_val"],
        ent_coef=algorithm["entropy_coef_spec"]["start_val"],
        vf_coef=algorithm["val_loss_coef"],
        learning_rate=net["actor_optim_spec"]["lr"],
        max_grad_norm=net["clip_grad_val"],
        policy_kwargs={"net_arch": {"pi": net["hid_layers"], "vf": net["hid_layers"]}},
        device="cpu",
        seed=0,
    )
    return Peer(model)


def main() -> None:
    quiet()
    ours = Ours(dump(load(FILE, NAME, ["max_frame=10000000"]).spec))
    compare("PPO CartPole-v1", ours, peer(), "Stable-Baselines3", frames=20_480, warm_up=2048)


if __name__ == "__main__":
    main()
