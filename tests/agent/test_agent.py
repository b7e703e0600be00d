from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from specs_for_tests import tiny_session, tiny_spec

from slm_lab.agent import Agent
from slm_lab.agent.algorithm import ALGORITHMS
from slm_lab.agent.memory.onpolicy import OnPolicyBatchReplay
from slm_lab.agent.memory.replay import Replay
from slm_lab.experiment.session import Session
from slm_lab.lib.rng import Consumer, Rng
from slm_lab.types import Act, Array, Rows, Step

NORMALISED = {"normalize_obs": True}
ENVS = {"CartPole-v1": "discrete", "Pendulum-v1": "continuous"}
RUNS = [(name, env) for name, cls in ALGORITHMS.items() for env, kind in ENVS.items() if kind in cls.actions]


def session_of(name: str = "PPO", env: str = "CartPole-v1", session: int = 0, /, **overrides: Any) -> Session:
    return tiny_session(tiny_spec(name, env, **overrides), (0, 0, session))


def rollout(agent: Agent) -> dict[str, Array]:
    assert isinstance(agent.memory, OnPolicyBatchReplay)
    return agent.memory.columns.views


def equal(left: Any, right: Any) -> bool:
    """Equal states, number by number."""
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(equal(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(equal, left, right))
    if isinstance(left, Rows):
        return equal(list(left.parts(left.start)), list(right.parts(right.start)))
    if isinstance(left, torch.Tensor):
        left, right = left.numpy(), right.numpy()
    # NaN stands for what is not known yet
    return np.array_equal(left, right, equal_nan=True) if isinstance(left, np.ndarray) else bool(left == right)


def test_the_memory_holds_the_normalised_observation_that_was_acted_on() -> None:
    session = session_of(**NORMALISED)
    agent = session.agent
    assert agent.normalizer is not None
    obs = session.env.obs
    seen = agent.see(obs)
    act = agent.act(seen, 0)
    step = session.env.step(act.env_action)
    expected = agent.normalizer(step.next_obs)
    agent.learn(seen, act, step, 4)
    assert np.array_equal(rollout(agent)["obs"][0], seen.shown)  # type: ignore[arg-type]
    # the successor by the same statistics, though it has not been acted on yet
    assert np.array_equal(rollout(agent)["next_obs"][0], expected)  # type: ignore[arg-type]
    assert not np.allclose(rollout(agent)["next_obs"][0], step.next_obs)  # type: ignore[arg-type]


def test_a_replay_holds_raw_observations_and_hands_them_out_by_the_latest_statistics() -> None:
    session = session_of("DQN", **NORMALISED)
    agent = session.agent
    assert agent.normalizer is not None
    assert isinstance(agent.memory, Replay)
    assert agent.lessons is not None
    first = np.array(session.env.obs)
    session.run(until=16)
    agent.see(np.full((4, 4), 100.0, np.float32))  # after the last row was stored
    raw = agent.memory.ring.views["obs"][:16]  # 4 vector steps
    assert np.array_equal(raw[:4], first)
    rows = {row.tobytes() for row in np.asarray(agent.normalizer(raw))}
    batch = agent.lessons.sample()
    assert isinstance(batch.obs, torch.Tensor)
    assert batch.obs.dtype == torch.float32
    assert {row.tobytes() for row in batch.obs.numpy()} <= rows


def test_only_what_is_acted_on_moves_the_statistics() -> None:
    session = session_of(**NORMALISED)
    assert session.agent.normalizer is not None
    count = session.agent.normalizer.moments["obs"].count
    session.step()
    assert session.agent.normalizer.moments["obs"].count == pytest.approx(count + 4)
    session.agent.decide(session.env.obs)
    assert session.agent.normalizer.moments["obs"].count == pytest.approx(count + 4)


def test_without_normalising_observations_pass_as_they_are() -> None:
    session = session_of()
    assert session.agent.normalizer is None
    seen = session.agent.see(session.env.obs)
    assert seen.raw is session.env.obs
    assert seen.shown is session.env.obs


def test_a_clip_alone_does_not_normalise() -> None:
    agent = session_of(clip_obs=0.01).agent
    seen = agent.see(np.array([[5.0, -5.0, 0.001, 0.0]]))
    assert isinstance(seen.shown, np.ndarray)
    assert seen.shown.tolist() == [[pytest.approx(0.01), pytest.approx(-0.01), pytest.approx(0.001), 0.0]]


@pytest.mark.parametrize(("name", "env"), [run for run in RUNS if run[0] != "Random"])
def test_deciding_is_repeatable_and_changes_nothing(name: str, env: str) -> None:
    session = session_of(name, env, max_frame=160, **NORMALISED)
    session.run()
    agent, obs = session.agent, session.env.obs
    before = copy.deepcopy(agent.state_dict())
    best = [agent.decide(obs).env_action for _ in range(2)]
    sampled = [agent.decide(obs, Rng(seed, 0, 0, Consumer.EVAL)).env_action for seed in (1, 1, 2, 3, 4, 5, 6, 7)]
    assert equal(agent.state_dict(), before)
    assert np.array_equal(best[0], best[1])
    assert np.array_equal(sampled[0], sampled[1])
    assert any(not np.array_equal(sampled[0], other) for other in sampled[2:])


@pytest.mark.parametrize("norm", ["batch_norm", "layer_norm"])
@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "Random"])
def test_nets_with_norms_train_in_a_single_env_and_decide_without_changing(name: str, norm: str) -> None:
    keys: dict[str, Any] = {f"agent.net.{norm}": True, "num_envs": 1, "max_frame": 96}
    if name == "CrossQ":  # a net has one kind of norm
        keys |= {"agent.net.batch_renorm": None, "agent.critic_net": None}
    if name in ("PPO", "PPOSIL"):
        keys["agent.algorithm.minibatch_size"] = 15  # leaves a last minibatch of one row
    session = session_of(name, **keys)
    session.run()
    assert session.clock.opt_step >= 3
    before = copy.deepcopy(session.agent.state_dict())
    assert np.array_equal(
        session.agent.decide(session.env.obs).env_action, session.agent.decide(session.env.obs).env_action
    )
    assert equal(session.agent.state_dict(), before)


def test_evaluation_uses_the_end_of_every_schedule() -> None:
    schedule = {"name": "linear_decay", "start_val": 1.0, "end_val": 0.0, "end_step": 10_000}
    keys = {"agent.algorithm.action_policy": "epsilon_greedy", "agent.algorithm.explore_var_spec": schedule}
    session = session_of(**keys)
    agent, obs = session.agent, np.tile(session.env.obs, (50, 1))  # type: ignore[arg-type]
    best = agent.decide(obs).env_action
    assert np.array_equal(agent.decide(obs, Rng(1, 0, 0, Consumer.EVAL)).env_action, best)  # epsilon 0
    assert not np.array_equal(agent.act(agent.see(obs), 0).env_action, best)  # epsilon 1


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_policy_taken_out_acts_the_same_elsewhere_and_training_does_not_touch_it(name: str) -> None:
    session, other = session_of(name, **NORMALISED), session_of(name, "CartPole-v1", 1, **NORMALISED)
    session.run(until=320)
    agent, obs = session.agent, session.env.obs
    policy = agent.policy_state()
    expected = agent.decide(obs, Rng(1, 0, 0, Consumer.EVAL)).env_action
    session.run(until=640)
    other.agent.load_policy_state(policy)
    assert np.array_equal(other.agent.decide(obs, Rng(1, 0, 0, Consumer.EVAL)).env_action, expected)


@pytest.mark.parametrize(("name", "env"), RUNS)
@pytest.mark.parametrize("frame", [132, 256])  # in mid-batch, and right after an update
def test_an_agent_brought_back_learns_the_very_same(name: str, env: str, frame: int) -> None:
    session, other = (
        session_of(name, env, max_t=10, **NORMALISED),
        session_of(name, env, 1, max_t=10, **NORMALISED),
    )
    session.run(until=frame)
    other.agent.load_state_dict(copy.deepcopy(session.agent.state_dict()))
    for agent in (session.agent, other.agent):
        feed(agent, session, 40)
    assert equal(session.agent.state_dict(), other.agent.state_dict())


def feed(agent: Agent, session: Session, steps: int) -> None:
    """Made-up experience: the same for whoever gets it, but for the actions the agent takes."""
    rng = np.random.default_rng(5)
    shape = session.env.spaces.obs_shape
    assert isinstance(shape, tuple)
    for t in range(steps):
        obs, after = rng.normal(size=(2, 4, *shape)).astype(np.float32)
        seen = agent.see(obs)
        act: Act = agent.act(seen, 1000 + 4 * t)
        ended = rng.random((2, 4)) < 0.1
        agent.learn(seen, act, Step(rng.normal(size=4).astype(np.float32), after, *ended), 1000 + 4 * t)


def test_actions_of_different_sessions_differ() -> None:
    first, second = session_of().agent, session_of("PPO", "CartPole-v1", 1).agent
    obs = np.zeros((64, 4), np.float32)
    assert not np.array_equal(first.act(first.see(obs), 0).action, second.act(second.see(obs), 0).action)
