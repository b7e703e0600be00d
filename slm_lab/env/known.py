"""Facts about env ids that no registry holds: which restore exactly, and which need care."""

from __future__ import annotations

MUJOCO = (
    "Ant",
    "HalfCheetah",
    "Hopper",
    "Humanoid",
    "HumanoidStandup",
    "InvertedDoublePendulum",
    "InvertedPendulum",
    "Pusher",
    "Reacher",
    "Swimmer",
    "Walker2d",
)

# a test saves each of these in mid-episode, loads it elsewhere and compares the rest of the episode bit by bit
EXACT = frozenset(
    {
        "Acrobot-v1",
        "BipedalWalker-v3",
        "BipedalWalkerHardcore-v3",
        "CartPole-v1",
        "LunarLander-v3",
        "LunarLanderContinuous-v3",
        "MountainCar-v0",
        "MountainCarContinuous-v0",
        "Pendulum-v1",
        *(f"{name}-v5" for name in MUJOCO),
    }
)

# the Box2D world of these outlives a reset and keeps the order of its contacts, so every episode gets a new env
FRESH = frozenset({"BipedalWalker-v3", "BipedalWalkerHardcore-v3"})

# only the time limit ends these under a random policy: without staggering all envs run in phase
FIXED_LENGTH = frozenset(
    {
        "Pendulum-v1",
        *(
            f"{name}-{version}"
            for name in ("HalfCheetah", "HumanoidStandup", "Pusher", "Reacher", "Swimmer")
            for version in ("v4", "v5")
        ),
    }
)
