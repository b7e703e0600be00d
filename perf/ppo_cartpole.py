"""Frames a second of PPO on CartPole: this lab against Stable-Baselines3, same settings, one thread, steady state.

Run: python -m perf.ppo_cartpole   (needs the extra `perf`)
"""

from __future__ import annotations

import statistics
import time

import torch
from loguru import logger
from stable_baselines3 import PPO as PeerPPO
from stable_baselines3.common.env_util import make_vec_env

from slm_lab.agent.plan import plan_agent
from slm_lab.experiment.session import Session
from slm_lab.spec.load import load

FILE, NAME = "slm_lab/spec/benchmark/ppo/ppo_cartpole.json", "ppo_cartpole"
FRAMES = 20_480
ROUNDS = 3


class Ours:
    """The session of the packaged spec, stepped as the command line steps it."""

    def __init__(self) -> None:
        spec = load(FILE, NAME, ["max_frame=10000000"]).spec
        self.session = Session(spec, plan_agent(spec.agent, spec.env.num_envs, []), (0, 0, 0))

    def run(self, frames: int) -> None:
        self.session.run(until=self.session.clock.frame + frames)


class Peer:
    """Stable-Baselines3 with the spec's settings."""

    def __init__(self) -> None:
        spec = load(FILE, NAME).spec
        algorithm, net = spec.agent.algorithm, spec.agent.net
        self.model = PeerPPO(
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

    def run(self, frames: int) -> None:
        self.model.learn(frames, reset_num_timesteps=False)


def frames_a_second(runner: Ours | Peer) -> float:
    start = time.perf_counter()
    runner.run(FRAMES)
    return FRAMES / (time.perf_counter() - start)


def main() -> None:
    """Rounds alternate between the two, so that both meet the same moods of the machine."""
    logger.remove()  # log lines would be measured too
    torch.set_num_threads(1)
    ours, peer = Ours(), Peer()
    ours.run(2048)
    peer.run(2048)
    pairs = [(frames_a_second(ours), frames_a_second(peer)) for _ in range(ROUNDS)]
    mine, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(a / b for a, b in pairs)
    print(f"PPO CartPole-v1: {mine:,.0f} frames/s, Stable-Baselines3 {theirs:,.0f}, ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
