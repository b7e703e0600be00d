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
CONV: dict[str, Any] = {"type": "ConvNet", "conv_hid_layers": [[16, 3, 2, 1]], "fc_hid_layers": [64], "normalize": True}

ENTROPY: dict[str, Any] = {"start_val": 0.01}
CLIP: dict[str, Any] = {"start_val": 0.2}
PPO: dict[str, Any] = {"lam": 0.95, "clip_eps_spec": CLIP, "time_horizon": 32, "minibatch_size": 64, "training_epoch": 4}
STEPS: dict[str, dict[str, Any]] = {
    "ActorCritic": {"lam": 0.95, "training_frequency": 20, "entropy_coef_spec": ENTROPY},
    "DQN": {"training_frequency": 16, "training_start_step": 500},
    "DoubleDQN": {"training_frequency": 16, "training_start_step": 500},
    "PPO": {**PPO, "entropy_coef_spec": ENTROPY},
    "Random": {},
    "Reinforce": {"training_frequency": 40},
    "SARSA": {"training_frequency": 8, "action_policy": "epsilon_greedy"},
    "SoftActorCritic": {"training_frequency": 8, "training_iter": 1, "training_start_step": 500, "fixed_alpha": 0.02},
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
    falling = {"name": "LinearToZero", "frame": frames}
    agent = {
        "agent.algorithm": algorithm,
        "agent.memory": MEMORIES.get(name, {"name": "OnPolicyBatchReplay"}),
        "agent.net": {**net, "optim_spec": {"name": "Adam", "lr": lr}, "lr_scheduler_spec": falling, **follow},
    }
    if name == "Random":
        agent = {}
    return tiny_spec(name, f"task_envs:{env}", num_envs=8, max_frame=frames, **agent, **{"meta.log_frequency": frames})
