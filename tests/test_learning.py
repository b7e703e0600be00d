"""Does it learn? Short runs that a correct algorithm passes, and one with a wrong sign, mask or target does not.

Two seeds must pass, or two of three where the first two disagree.
"""

from __future__ import annotations

from typing import Any

import pytest
from specs_for_tests import assert_learns, tiny_spec

from slm_lab.spec.load import load
from slm_lab.spec.schema import Spec

QUIET: dict[str, Any] = {"meta.log_frequency": 10_000}

MLP: dict[str, Any] = {
    "type": "MLPNet",
    "hid_layers": [64, 64],
    "hid_layers_activation": "tanh",
    "init_fn": "orthogonal_",
    "actor_init_std": 0.01,
    "critic_init_std": 1.0,
    "clip_grad_val": 0.5,
}


def linear(start: float, end: float, frames: int) -> dict[str, Any]:
    return {"name": "linear_decay", "start_val": start, "end_val": end, "end_step": frames}


def adam(lr: float, frames: int) -> dict[str, Any]:
    """Adam whose rate falls to zero over the run."""
    lr_spec = {"name": "LinearToZero", "frame": frames}
    return {"optim_spec": {"name": "Adam", "lr": lr, "eps": 1e-5}, "lr_scheduler_spec": lr_spec}


def ppo(env: str, num_envs: int, frames: int, lr: float, algorithm: dict[str, Any], **overrides: Any) -> Spec:
    """PPO with settings that are usual for small tasks."""
    keys: dict[str, Any] = {"name": "PPO", "lam": 0.95, "val_loss_coef": 0.5, "clip_eps_spec": {"start_val": 0.2}}
    net = {**MLP, **adam(lr, frames), **overrides.pop("net", {})}
    return tiny_spec(
        "PPO",
        env,
        num_envs=num_envs,
        max_frame=frames,
        **{"agent.algorithm": {**keys, **algorithm}, "agent.net": net, **QUIET, **overrides},
    )


def ppo_cartpole() -> Spec:
    algorithm = {
        "gamma": 0.98,
        "lam": 0.8,
        "clip_eps_spec": linear(0.2, 0.0, 30_000),
        "time_horizon": 64,
        "minibatch_size": 256,
        "training_epoch": 20,
    }
    return ppo("CartPole-v1", 4, 30_000, 1e-3, algorithm)


def ppo_inverted_pendulum() -> Spec:
    algorithm = {"gamma": 0.99, "time_horizon": 64, "minibatch_size": 256, "training_epoch": 10, "recompute_adv": True}
    return ppo(
        "InvertedPendulum-v5",
        8,
        40_000,
        3e-4,
        algorithm,
        net={"log_std_init": 0.0},
        normalize_obs=True,
        normalize_reward=True,
    )


def ppo_tanh_pendulum() -> Spec:
    algorithm = {
        "gamma": 0.9,
        "time_horizon": 128,
        "minibatch_size": 128,
        "training_epoch": 10,
        "action_pdtype": "NormalTanh",
    }
    return ppo("Pendulum-v1", 8, 40_000, 1e-3, algorithm, net={"log_std_init": 0.0}, reward_scale=0.1)


def a2c_cartpole() -> Spec:
    net = {**MLP, "actor_optim_spec": {"name": "Adam", "lr": 1e-3}, "critic_optim_spec": {"name": "Adam", "lr": 3e-3}}
    algorithm = {
        "name": "ActorCritic",
        "gamma": 0.99,
        "lam": 0.95,
        "training_frequency": 32,
        "entropy_coef_spec": linear(0.01, 1e-4, 60_000),
    }
    return tiny_spec("ActorCritic", max_frame=60_000, **{"agent.algorithm": algorithm, "agent.net": net, **QUIET})


def reinforce_cartpole() -> Spec:
    net = {key: value for key, value in MLP.items() if key != "critic_init_std"} | adam(2e-3, 60_000)
    algorithm = {"name": "Reinforce", "gamma": 0.99, "training_frequency": 256}
    return tiny_spec("Reinforce", max_frame=60_000, **{"agent.algorithm": algorithm, "agent.net": net, **QUIET})


def sarsa_cartpole() -> Spec:
    frames = 40_000
    sets = [f"max_frame={frames}", f"agent.net.lr_scheduler_spec.frame={frames}", "meta.log_frequency=10000"]
    return load("benchmark/sarsa/sarsa_cartpole.json", "sarsa_boltzmann_cartpole", sets).spec


def q_cartpole(name: str, memory: dict[str, Any]) -> Spec:
    """The value of a failure is far from all others and rare: a squared loss minds it."""
    frames = 20_000
    algorithm = {
        "name": name,
        "gamma": 0.99,
        "explore_var_spec": linear(1.0, 0.02, 6000),
        "training_frequency": 4,
        "training_iter": 2,
        "training_start_step": 500,
    }
    follow = {} if name == "VanillaDQN" else {"update_type": "polyak", "polyak_coef": 0.01}
    net = {"type": "MLPNet", "hid_layers": [64, 64], "clip_grad_val": 10.0, **adam(1e-3, frames), **follow}
    memory = {"batch_size": 64, "max_size": 20_000, **memory}
    keys = {"agent.algorithm": algorithm, "agent.memory": memory, "agent.net": net}
    return tiny_spec(name, max_frame=frames, **keys, **QUIET)


UNIFORM: dict[str, Any] = {"name": "Replay"}
PRIORITIZED: dict[str, Any] = {"name": "PrioritizedReplay", "beta_spec": linear(0.4, 1.0, 20_000)}


def soft(name: str, env: str, frames: int, algorithm: dict[str, Any], net: dict[str, Any], **overrides: Any) -> Spec:
    keys = {"name": name, "gamma": 0.95, "training_frequency": 4, "training_start_step": 400, **algorithm}
    memory = {"name": "Replay", "batch_size": 64, "max_size": frames}
    plain = {"type": "MLPNet", "hid_layers": [64, 64], "optim_spec": {"name": "Adam", "lr": 2e-3}, **net}
    agent = {"agent.algorithm": keys, "agent.memory": memory, "agent.net": plain}
    return tiny_spec(name, env, max_frame=frames, **agent, **QUIET, **overrides)


FOLLOW: dict[str, Any] = {"update_type": "polyak", "polyak_coef": 0.01}


def sac_pendulum() -> Spec:
    return soft("SoftActorCritic", "Pendulum-v1", 10_000, {"training_iter": 2}, FOLLOW)


def sac_cartpole() -> Spec:
    return soft("SoftActorCritic", "CartPole-v1", 15_000, {"training_iter": 1, "fixed_alpha": 0.05}, FOLLOW)


def crossq_pendulum() -> Spec:
    net = {"batch_renorm": {"warmup_steps": 1000}, "optim_spec": {"name": "Adam", "lr": 2e-3, "betas": [0.5, 0.999]}}
    critic = {"type": "MLPNet", "hid_layers": [128, 128], **net}
    algorithm = {"training_iter": 2, "policy_delay": 2}
    return soft("CrossQ", "Pendulum-v1", 8000, algorithm, net, **{"agent.critic_net": critic})


@pytest.mark.parametrize(
    ("spec", "least"),
    [
        pytest.param(ppo_cartpole(), 250, id="PPO CartPole"),
        pytest.param(ppo_inverted_pendulum(), 300, id="PPO InvertedPendulum"),
        pytest.param(ppo_tanh_pendulum(), -500, id="PPO NormalTanh Pendulum"),
        pytest.param(a2c_cartpole(), 150, id="A2C CartPole"),
        pytest.param(reinforce_cartpole(), 100, id="REINFORCE CartPole"),
        pytest.param(sarsa_cartpole(), 80, id="SARSA CartPole"),
        pytest.param(q_cartpole("VanillaDQN", UNIFORM), 100, id="VanillaDQN CartPole"),
        pytest.param(q_cartpole("DQN", UNIFORM), 100, id="DQN CartPole"),
        pytest.param(q_cartpole("DoubleDQN", PRIORITIZED), 100, id="DoubleDQN and PER CartPole"),
        pytest.param(sac_pendulum(), -350, id="SAC Pendulum"),
        pytest.param(sac_cartpole(), 100, id="SAC CartPole"),
        pytest.param(crossq_pendulum(), -350, id="CrossQ Pendulum"),
    ],
)
def test_it_learns(spec: Spec, least: float) -> None:
    assert_learns(spec, least)


def packaged(name: str, frames: int) -> Spec:
    """A packaged PPO spec over fewer frames, its learning rate still falling to zero."""
    sets = [f"max_frame={frames}", f"agent.net.lr_scheduler_spec.frame={frames}", "meta.log_frequency=10000"]
    return load(f"benchmark/ppo/{name}.json", name, sets).spec


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("name", "frames", "least"),
    [
        ("ppo_lunar", 200_000, 100),
        # with states stored across resets, or heads at full size, Hopper stays near 250
        ("ppo_hopper", 500_000, 1000),
    ],
)
def test_a_packaged_spec_learns(name: str, frames: int, least: float) -> None:
    assert_learns(packaged(name, frames), least)
