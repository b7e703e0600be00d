"""The rows of the table: what is trained, by whom, on how many threads, and the ratio that is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from perf.tasks import Task, a2c, dqn, mlp, nature_cnn, ppo, sac

Library = Literal["ours", "sb3", "sbx"]
TURNS = 4  # of each contestant in a round, so that a slow moment of the machine meets all of them
JAX = ("PPO", "SAC", "DQN")  # algorithms here that SBX has


@dataclass(frozen=True)
class Contestant:
    """A library and the threads it is given."""

    library: Library
    threads: int

    @property
    def name(self) -> str:
        """Its column: `sb3_2` is Stable-Baselines3 on two threads."""
        return "sb3_2" if (self.library, self.threads) == ("sb3", 2) else self.library


@dataclass(frozen=True)
class Row:
    """A comparison: `frames` a round after `warm_up`; turns are multiples of `unit`, and end with an update."""

    number: int
    title: str
    settings: str
    task: Task
    unit: int
    frames: int
    warm_up: int
    threads: int = 1  # of ours
    asked: dict[str, float] = field(default_factory=dict)  # library -> least ratio of ours to it

    @property
    def contestants(self) -> tuple[Contestant, ...]:
        """Ours as the row says, Stable-Baselines3 on one thread and on ours, SBX on both cores."""
        peers = [Contestant("sb3", threads) for threads in sorted({1, self.threads})]
        jax = [Contestant("sbx", 2)] if self.task.algorithm in JAX else []
        return (Contestant("ours", self.threads), *peers, *jax)


ROWS = (
    Row(
        1,
        "PPO CartPole-v1",
        "4 envs, T 256, minibatch 128, 15 epochs, separate [64, 64] tanh",
        ppo("CartPole-v1", 4, 256, 128, 15, mlp((64, 64), "tanh")),
        unit=1024,
        frames=20_480,
        warm_up=4096,
        asked={"sb3": 5.0},
    ),
    Row(
        2,
        "PPO HalfCheetah-v5",
        "16 envs, T 128, minibatch 64, 10 epochs, separate [256, 256] tanh; both cores for one session",
        ppo("HalfCheetah-v5", 16, 128, 64, 10, mlp((256, 256), "tanh") | {"log_std_init": 0.0}),
        unit=2048,
        frames=8192,
        warm_up=4096,
        threads=2,
        asked={"sb3": 2.5, "sbx": 1.5},
    ),
    Row(
        3,
        "SAC Hopper-v5",
        "1 env, one update a frame, batch 256, [256, 256] relu; both cores for one session",
        sac("Hopper-v5", 256, (256, 256), start=300),
        unit=1,
        frames=1500,
        warm_up=800,
        threads=2,
        asked={"sb3": 2.0, "sbx": 1.2},
    ),
    Row(
        4,
        "DQN CartPole-v1",
        "4 envs, one update a vector step, batch 32, [64, 64] relu; SBX clips no gradients",
        dqn("CartPole-v1", 4, 32, (64, 64), size=100_000, start=1000),
        unit=4,
        frames=24_000,
        warm_up=4000,
        asked={"sb3": 4.0},
    ),
    Row(
        5,
        "A2C CartPole-v1",
        "4 envs, T 5, separate [64, 64] tanh, RMSprop; SBX has no A2C",
        a2c("CartPole-v1", 4, 5, (64, 64)),
        unit=20,
        frames=40_000,
        warm_up=4000,
        asked={"sb3": 4.0},
    ),
    Row(
        6,
        "PPO ALE/Pong-v5",
        "8 envs, T 128, minibatch 256, 4 epochs, Nature CNN, frame skip 4, 84x84, 4 frames stacked",
        ppo("ALE/Pong-v5", 8, 128, 256, 4, nature_cnn()),
        unit=1024,
        frames=4096,
        warm_up=2048,
        asked={"sb3": 1.3},
    ),
)
