"""Does it learn what only the right net can? Images, memory, several entries and allowed actions, in short runs.

As in test_learning.py, two seeds must pass, or two of three where the first two disagree.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from specs_for_tests import assert_learns, score, tiny_session, tiny_spec
from task_envs import Masked, MaskedEntry, MaskedPair

from slm_lab.experiment.evaluate import evaluate
from slm_lab.spec.schema import Spec

LAST = 100  # episodes a score is the mean of: they are short

GRU: dict[str, Any] = {"type": "RecurrentNet", "rnn_hidden_size": 32, "seq_len": 5}
MLP: dict[str, Any] = {"type": "MLPNet", "hid_layers": [64], "hid_layers_activation": "tanh"}
# a margin of one: without it the paddle, in the last row, would be out of sight
CONV: dict[str, Any] = {"type": "ConvNet", "conv_hid_layers": [[16, 3, 2, 1]], "fc_hid_layers": [64], "normalize": True}

ENTROPY: dict[str, Any] = {"start_val": 0.01}
CLIP: dict[str, Any] = {"start_val": 0.2}
PPO: dict[str, Any] = {
    "lam": 0.95,
    "clip_eps_spec": CLIP,
    "time_horizon": 32,
    "minibatch_size": 64,
    "training_epoch": 4,
}
STEPS: dict[str, dict[str, Any]] = {
    "ActorCritic": {"lam": 0.95, "training_frequency": 20, "entropy_coef_spec": ENTROPY},
    "DQN": {"training_frequency": 16, "training_start_step": 500},
    "DoubleDQN": {"training_frequency": 16, "training_start_step": 500},
    "PPO": {**PPO, "entropy_coef_spec": ENTROPY},
    "Random": {},
    "Reinforce": {"training_frequency": 40},
    "SARSA": {"training_frequency": 8, "action_policy": "epsilon_greedy"},
    "SoftActorCritic": {"training_frequency": 16, "training_iter": 1, "training_start_step": 500, "fixed_alpha": 0.02},
}
UNIFORM: dict[str, Any] = {"name": "Replay", "batch_size": 32, "max_size": 20_000}
MEMORIES: dict[str, dict[str, Any]] = {
    "DQN": UNIFORM,
    "DoubleDQN": {**UNIFORM, "name": "PrioritizedReplay", "beta_spec": {"start_val": 0.4}},
    "SoftActorCritic": UNIFORM,
}
EXPLORING = ("DQN", "DoubleDQN", "SARSA")


def task(name: str, env: str, net: dict[str, Any], frames: int, lr: float = 3e-3, **keys: Any) -> Spec:
    """An algorithm on a task; `keys` are more of the algorithm's."""
    algorithm = {"name": name, "gamma": 0.99, **STEPS[name], **keys}
    if name in EXPLORING:
        epsilon = {"name": "linear_decay", "start_val": 1.0, "end_val": 0.02, "end_step": frames // 2}
        algorithm = {"explore_var_spec": epsilon, **algorithm}
    follow = {"update_type": "polyak", "polyak_coef": 0.02} if name in MEMORIES else {}
    agent = {
        "agent.algorithm": algorithm,
        "agent.memory": MEMORIES.get(name, {"name": "OnPolicyBatchReplay"}),
        "agent.net": {"clip_grad_val": 0.5, **net, "optim_spec": {"name": "Adam", "lr": lr}, **follow},
    }
    if name == "Random":
        agent = {}
    return tiny_spec(name, f"task_envs:{env}", num_envs=8, max_frame=frames, **agent, **{"meta.log_frequency": frames})


def recall(name: str, net: dict[str, Any]) -> Spec:
    if name == "PPO":
        falling = {"lr_scheduler_spec": {"name": "LinearToZero", "frame": 8000}, "clip_grad_val": None}
        return task(name, "Recall", {**net, **falling}, 8000)
    if name == "DQN":
        return task(name, "Recall", net, 10_000, training_frequency=32)
    return task(name, "Recall", net, {"ActorCritic": 14_000, "Reinforce": 20_000, "SoftActorCritic": 3000}[name])


def catch(name: str) -> Spec:
    if name == "PPO":
        keys = {"time_horizon": 64, "entropy_coef_spec": {"start_val": 0.02}}
        return task(name, "Catch", {**CONV, "shared": True}, 40_000, 2e-3, **keys)
    return task(name, "Catch", CONV, 32_000, 2e-3, gamma=0.95, training_iter=2)


@pytest.mark.parametrize("name", ["PPO", "DQN"])
def test_it_learns_from_images(name: str) -> None:
    assert_learns(catch(name), 0.8, LAST)  # at random about -0.6


@pytest.mark.parametrize("name", ["PPO", "ActorCritic", "Reinforce", "DQN", "SoftActorCritic"])
def test_it_learns_what_must_be_remembered(name: str) -> None:
    assert_learns(recall(name, GRU), 0.9, LAST)


def test_continuous_actions_learn_what_must_be_remembered() -> None:
    assert_learns(task("SoftActorCritic", "RecallAim", GRU, 5000), 0.9, LAST)


@pytest.mark.parametrize("name", ["PPO", "ActorCritic", "DQN"])
def test_without_a_memory_it_is_a_coin_flip(name: str) -> None:
    # a mean of 100 flips of +1 or -1 deviates by 0.1: 0.3 is three of these away
    assert max(score(recall(name, MLP), seed, LAST) for seed in (1, 2)) <= 0.3


@pytest.mark.parametrize(("name", "frames"), [("PPO", 8000), ("DQN", 6000)])
def test_it_learns_what_takes_both_entries(name: str, frames: int) -> None:
    assert_learns(task(name, "Both", MLP, frames), 0.9, LAST)


@pytest.mark.parametrize(
    ("name", "env"), [("PPO", "Masked"), ("PPO", "MaskedEntry"), ("PPO", "MaskedPair"), ("DQN", "Masked")]
)
def test_it_learns_which_allowed_action_is_best(name: str, env: str) -> None:
    assert_learns(task(name, env, MLP, 8000), 7.2, LAST)  # of 8


def test_masked_tasks_end_the_test_where_an_action_is_not_allowed() -> None:
    for env in (Masked(), MaskedEntry()):
        env.reset(seed=0)
        env.mask = np.array([True, False, True, True])
        with pytest.raises(AssertionError, match="action 1 was not allowed"):
            env.step(1)
    pair = MaskedPair()
    pair.reset(seed=0)
    for mask in ([True, False, True, True, True], [True, True, True, True, False]):
        pair.mask = np.array(mask)
        with pytest.raises(AssertionError, match="was not allowed"):
            pair.step(np.array([1, 2]))


BOLTZMANN: dict[str, Any] = {"action_policy": "boltzmann", "action_pdtype": "Categorical"}
ACTING: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "A2C": ("ActorCritic", MLP, {}),
    "Boltzmann DQN": ("DQN", MLP, BOLTZMANN),
    "DQN": ("DQN", MLP, {}),
    "DoubleDQN and PER": ("DoubleDQN", MLP, {}),
    "PPO": ("PPO", MLP, {}),
    "REINFORCE": ("Reinforce", MLP, {}),
    "Random": ("Random", {}, {}),
    "SAC": ("SoftActorCritic", MLP, {}),
    "SARSA": ("SARSA", MLP, {}),
    "recurrent DQN": ("DQN", GRU, {}),
    "recurrent PPO": ("PPO", GRU, {}),
    "recurrent SAC": ("SoftActorCritic", GRU, {}),
}
SEVERAL = ("A2C", "PPO", "REINFORCE", "Random", "recurrent PPO")  # take actions of several components


@pytest.mark.parametrize(
    ("who", "env"),
    [(who, env) for who in ACTING for env in ("Masked", "MaskedEntry", "MaskedPair")[: 3 if who in SEVERAL else 2]],
)
def test_no_action_is_taken_that_is_not_allowed(who: str, env: str) -> None:
    name, net, keys = ACTING[who]
    session = tiny_session(task(name, env, net, 1600, **keys))
    try:
        session.run()
        assert (session.clock.opt_step > 0) == (name != "Random")
        for deterministic in (True, False):
            returns = evaluate(session.agent, session.spec.env, session.key, 0, 24, deterministic)
            assert len(returns) == 24
    finally:
        session.close()
