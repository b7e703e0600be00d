"""What a mode changes in a spec."""

from __future__ import annotations

from typing import Any

import pytest

from slm_lab.spec.load import for_mode, from_mapping
from slm_lab.spec.schema import Spec


def spec(algorithm: dict[str, Any], memory: dict[str, Any], **env: Any) -> Spec:
    data = {
        "agent": {"algorithm": algorithm, "memory": memory},
        "env": {"name": "CartPole-v1", "max_frame": 200000, "num_envs": 4, **env},
        "meta": {"max_session": 4, "max_trial": 10},
    }
    return from_mapping(data, "a").spec


PPO = {"name": "PPO", "time_horizon": 128, "minibatch_size": 64, "training_epoch": 4}


def test_dev_is_one_session_at_full_length() -> None:
    old = spec(PPO, {})
    new = for_mode(old, "dev")
    assert (new.meta.max_session, new.meta.max_trial) == (1, 2)
    assert (new.agent, new.env) == (old.agent, old.env)
    assert old.meta.max_session == 4


def test_enjoy_is_one_session() -> None:
    new = for_mode(spec(PPO, {}), "enjoy")
    assert (new.meta.max_session, new.meta.max_trial) == (1, 10)


@pytest.mark.parametrize("mode", ["train", "search", ""])
def test_other_modes_change_nothing(mode: str) -> None:
    old = spec(PPO, {})
    assert for_mode(old, mode) == old


def test_test_mode_is_forty_frames_with_two_rollouts() -> None:
    old = spec(PPO, {"name": "OnPolicyBatchReplay"})
    new = for_mode(old, "test")
    assert new.agent.algorithm == {"name": "PPO", "time_horizon": 8, "minibatch_size": 8, "training_epoch": 4}
    assert (new.env.max_frame, new.env.max_t, new.env.num_envs) == (40, 12, 2)
    meta = new.meta
    assert (meta.max_session, meta.max_trial, meta.log_frequency, meta.eval_frequency) == (1, 2, 10, 10)
    assert old.agent.algorithm == PPO


def test_test_mode_keeps_a_single_env_and_smaller_minibatches() -> None:
    new = for_mode(spec({**PPO, "minibatch_size": 4}, {}, num_envs=1), "test")
    assert (new.env.num_envs, new.agent.algorithm["minibatch_size"]) == (1, 4)


def test_test_mode_trains_replay_algorithms_from_the_first_frame() -> None:
    algorithm = {"name": "DQN", "training_frequency": 4, "training_start_step": 1000, "training_iter": 3}
    algorithm["training_batch_iter"] = 2
    new = for_mode(spec(algorithm, {"name": "Replay", "batch_size": 32, "max_size": 1000}), "test")
    assert new.agent.algorithm == {
        "name": "DQN",
        "training_frequency": 8,
        "training_start_step": 1,
        "training_iter": 1,
        "training_batch_iter": 1,
    }
    assert new.agent.memory == {"name": "Replay", "batch_size": 8, "max_size": 1000}


def test_test_mode_trains_after_every_episode_where_the_memory_is_episodic() -> None:
    new = for_mode(spec({"name": "Reinforce", "training_frequency": 5}, {"name": "OnPolicyReplay"}), "test")
    assert new.agent.algorithm == {"name": "Reinforce", "training_frequency": 1}


@pytest.mark.parametrize(("given", "expected"), [(32, 8), (5, 5), (None, None)])
def test_test_mode_shortens_n_step_returns(given: int | None, expected: int | None) -> None:
    new = for_mode(spec({"name": "ActorCritic", "num_step_returns": given}, {}), "test")
    assert new.agent.algorithm["num_step_returns"] == expected


@pytest.mark.parametrize("name", ["SoftActorCritic", "CrossQ"])
def test_test_mode_sets_the_start_of_algorithms_that_start_late_by_default(name: str) -> None:
    assert for_mode(spec({"name": name}, {}), "test").agent.algorithm == {"name": name, "training_start_step": 1}
