from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from made_up import SGD, changed, make, random_step, update, weights
from specs_for_tests import tiny_session, tiny_spec

from slm_lab.agent import Agent
from slm_lab.agent.algorithm.losses import (
    imitation_advantage,
    imitation_policy_loss,
    imitation_value_loss,
    imitation_weight,
)
from slm_lab.agent.algorithm.ppo_sil import PPOSIL
from slm_lab.agent.algorithm.sil import SIL
from slm_lab.agent.memory.imitation import Imitation
from slm_lab.agent.plan import plan_agent
from slm_lab.lib.errors import SpecError
from slm_lab.spec.load import for_mode, load
from slm_lab.spec.schema import Spec
from slm_lab.types import Act, Step

PUBLIC = Path(__file__).resolve().parents[3] / "../shared/specs/benchmark/sil"
INNER = {"SIL": "ActorCritic", "PPOSIL": "PPO"}
EVENLY = {"name": "OnPolicyBatchReplay", "sil_replay_name": "Replay", "batch_size": 32, "max_size": 1000}
BY_PRIORITY = {**EVENLY, "sil_replay_name": "PrioritizedReplay", "beta_spec": 0.1}


def keys(name: str, memory: dict[str, Any] | None = None, **algorithm: Any) -> dict[str, Any]:
    """What makes a tiny spec of the inner algorithm one of `name`."""
    sil = {"name": name, "sil_policy_loss_coef": 1.0, "sil_val_loss_coef": 0.5, "training_iter": 3, "sil_min_better": 1}
    return {f"agent.algorithm.{key}": value for key, value in {**sil, **algorithm}.items()} | {
        "agent.memory": memory or EVENLY
    }


def imitator(name: str, session: int = 0, memory: dict[str, Any] | None = None, **overrides: Any) -> Agent:
    return make(INNER[name], None, session, **{**keys(name, memory), **overrides})


def parts(agent: Agent) -> tuple[SIL | PPOSIL, Imitation]:
    assert isinstance(agent.algorithm, SIL | PPOSIL)
    assert isinstance(agent.memory, Imitation)
    return agent.algorithm, agent.memory


def fill(agent: Agent, seed: int = 0, end: float = 0.2) -> None:
    """Made-up experience of the agent's own actions, until its memory is ready."""
    rng, memory = np.random.default_rng(seed), agent.memory
    assert memory is not None
    while not memory.ready():
        obs = rng.normal(size=(4, 3)).astype(np.float32)
        memory.add(obs, agent.act(agent.see(obs), 0), random_step(rng, 4, end))


# losses -----------------------------------------------------------------------------------------------------------

RETURN, VALUE, LOG_PROB = torch.tensor([3.0, 1.0, 2.0]), torch.tensor([1.0, 2.0, 1.5]), torch.tensor([-0.7, -0.2, -1.1])


def test_the_policy_loss_of_three_rows_worked_out_on_paper() -> None:
    adv = imitation_advantage(RETURN, VALUE, clip=1.0)
    assert adv.tolist() == [1.0, 0.0, 0.5]  # 2 is clipped, -1 is none
    weight = imitation_weight(adv, None, least=1)
    assert weight.tolist() == [0.5, 0.0, 0.5]  # two rows are better
    assert imitation_policy_loss(LOG_PROB, adv, weight).item() == pytest.approx(0.625)  # (.7 + .5 * 1.1) / 2
    assert imitation_value_loss(VALUE, adv, weight).item() == pytest.approx(-0.4375)  # -(1 + .5 * 1.5) / 2 / 2


def test_few_better_rows_are_divided_by_a_floor_and_importance_weights_count() -> None:
    adv = imitation_advantage(RETURN, VALUE, clip=2.0)
    assert adv.tolist() == [2.0, 0.0, 0.5]
    assert imitation_weight(adv, None, least=64).tolist() == [1 / 64, 0.0, 1 / 64]
    assert imitation_weight(adv, torch.tensor([1.0, 1.0, 0.5]), least=1).tolist() == [0.5, 0.0, 0.25]


def test_values_are_only_ever_pushed_up_and_policies_only_to_what_was_better() -> None:
    value, log_prob = VALUE.clone().requires_grad_(), LOG_PROB.clone().requires_grad_()
    adv = imitation_advantage(RETURN, value, clip=1.0)
    weight = imitation_weight(adv, None, least=1)
    imitation_value_loss(value, adv, weight).backward()  # type: ignore[no-untyped-call]
    imitation_policy_loss(log_prob, adv, weight).backward()  # type: ignore[no-untyped-call]
    assert value.grad is not None
    assert log_prob.grad is not None
    assert value.grad.tolist() == [-0.25, 0.0, -0.125]  # half of clip(V - R, -1, 0) / 2; descent goes the other way
    assert log_prob.grad.tolist() == [-0.5, 0.0, -0.25]


# what is imitated -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", INNER)
def test_what_is_drawn_has_the_return_that_its_episode_came_to(name: str) -> None:
    agent = imitator(name, **{"agent.algorithm.gamma": 0.5})
    _, memory = parts(agent)
    rng = np.random.default_rng(0)
    rewards, lengths, open_ = dict[float, float](), (3, 5, 7, 50), [list[float]() for _ in range(4)]
    expected = dict[float, float]()
    for t in range(1, 33):  # two rollouts of 16, over which episodes of 3, 5 and 7 steps end
        obs = rng.normal(size=(4, 3)).astype(np.float32)
        reward = rng.normal(size=4).astype(np.float32)
        done = np.array([t % length == 0 for length in lengths])
        for env in range(4):
            rewards[float(obs[env, 0])] = float(reward[env])
            open_[env].append(float(obs[env, 0]))
            if done[env]:
                total = 0.0
                for key in reversed(open_[env]):
                    total = rewards[key] + 0.5 * total
                    expected[key] = total
                open_[env] = []
        memory.add(obs, agent.act(agent.see(obs), 0), Step(reward, obs, done, np.zeros(4, bool)))
        if memory.ready():
            update(agent)
    assert len(expected) == 30 + 30 + 28
    assert len(memory.replay) == len(expected)  # nothing of the env whose episode is open
    seen = dict[float, float]()
    for _ in range(40):
        batch = memory.replay.sample()
        assert isinstance(batch.obs, torch.Tensor)
        seen |= dict(zip(batch.obs[:, 0].tolist(), batch.reward.tolist(), strict=True))
    assert seen == pytest.approx(expected, abs=1e-5)


def test_an_episode_cut_by_a_time_limit_returns_the_value_of_what_would_have_followed_too() -> None:
    agent = imitator("SIL", **{"agent.algorithm.gamma": 0.5, "agent.net.optim_spec": {"name": "SGD", "lr": 0.0}})
    algorithm, memory = parts(agent)
    last = np.full((4, 3), 7.0, np.float32)
    value = float(algorithm.learner.values(torch.from_numpy(last))[0])
    assert value != 0
    for t in range(16):
        obs = np.full((4, 3), t, np.float32)
        reward = np.full(4, -1.0, np.float32)
        # env 0 ends, env 1 is cut, env 2 is cut in the very step it ends in, env 3 goes on
        terminated, truncated = np.array([t == 1, 0, t == 1, 0], bool), np.array([0, t == 1, t == 1, 0], bool)
        memory.add(obs, agent.act(agent.see(obs), 0), Step(reward, last, terminated, truncated))
    update(agent)
    assert memory.replay.ring.views["ret"][:6].tolist() == pytest.approx(
        [-1.5, -1.0, -1.5 + 0.25 * value, -1.0 + 0.5 * value, -1.5, -1.0], abs=1e-6
    )
    assert memory.replay.ring.written == 6


# updates ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", INNER)
def test_before_the_first_episode_is_over_it_is_the_inner_algorithm(name: str) -> None:
    agent, inner = imitator(name), make(INNER[name])
    for one in (agent, inner):
        fill(one, end=0.0)
    metrics, plain = update(agent), update(inner)
    assert changed(agent, weights(inner)) == set()
    assert {key: metrics[key] for key in plain} == plain
    assert math.isnan(metrics["sil_loss"])


@pytest.mark.parametrize("memory", [EVENLY, BY_PRIORITY], ids=["evenly", "by priority"])
@pytest.mark.parametrize("name", INNER)
def test_imitation_steps_come_on_top_and_move_both_nets(name: str, memory: dict[str, Any]) -> None:
    # the inner algorithm itself does not learn
    still = {"agent.algorithm.policy_loss_coef": 0.0, "agent.algorithm.val_loss_coef": 0.0}
    still |= {"agent.algorithm.entropy_coef_spec": None, "agent.net.optim_spec": SGD}
    agent, inner = imitator(name, memory=memory, **still), make(INNER[name], **still)
    before = weights(agent)
    for one in (agent, inner):
        fill(one)
    metrics, plain = update(agent), update(inner)
    assert changed(inner, before) == set()
    assert changed(agent, before) == {"actor", "critic"}
    assert metrics["opt_steps"] == plain["opt_steps"] + 3
    assert 0 < metrics["sil_adv"] < metrics["sil_better"] < 1


def test_each_batch_is_stepped_on_as_often_as_asked() -> None:
    agent = imitator("SIL", **{"agent.algorithm.training_batch_iter": 4})
    fill(agent)
    assert update(agent)["opt_steps"] == 1 + 3 * 4


def test_imitation_makes_what_turned_out_well_likely_and_leaves_the_rest() -> None:
    off = {"agent.algorithm.policy_loss_coef": 0.0, "agent.algorithm.val_loss_coef": 0.0}
    agent = imitator("SIL", **off, **{"agent.algorithm.entropy_coef_spec": None, "agent.algorithm.training_iter": 100})
    algorithm, memory = parts(agent)
    obs = np.repeat(np.eye(3, dtype=np.float32)[:2], 2, axis=0)  # two states, both actions in each
    action = np.array([0, 1, 0, 1])
    reward = np.array([50.0, -50.0, -50.0, -60.0], np.float32)
    flat, rows = np.zeros(4, bool), torch.from_numpy(obs[[0, 2]])
    with torch.no_grad():
        before = algorithm.learner.dist(algorithm.learner.net.policy(rows)).log_prob(torch.tensor([0, 0]))
    while not memory.ready():
        memory.add(obs, Act(action, action, {}), Step(reward, obs, ~flat, flat))
    metrics = update(agent)
    assert metrics["sil_better"] == pytest.approx(0.25, abs=0.03)  # one row in four
    with torch.no_grad():
        after = algorithm.learner.dist(algorithm.learner.net.policy(rows)).log_prob(torch.tensor([0, 0]))
    assert before[0].exp() < 0.7
    assert after[0].exp() > 0.95
    assert algorithm.learner.values(rows)[0] > 1


def test_the_entropy_bonus_is_that_of_the_algorithm_unless_it_has_its_own() -> None:
    schedule = {"name": "linear_decay", "start_val": 0.4, "end_val": 0.0, "end_step": 100}

    def after_an_update(own: float | None) -> Agent:
        agent = imitator(
            "SIL", **{"agent.algorithm.sil_entropy_coef": own, "agent.algorithm.entropy_coef_spec": schedule}
        )
        fill(agent)
        update(agent, frame=50)  # where the schedule is at .2
        return agent

    agent = after_an_update(None)
    assert changed(after_an_update(0.2), weights(agent)) == set()
    assert changed(after_an_update(0.0), weights(agent)) == {"actor"}
    assert changed(after_an_update(0.7), weights(agent)) == {"actor"}


@pytest.mark.parametrize("memory", [{**EVENLY, "use_cer": True}, BY_PRIORITY], ids=["evenly", "by priority"])
@pytest.mark.parametrize("name", INNER)
def test_an_algorithm_restored_in_mid_run_makes_the_very_same_update(name: str, memory: dict[str, Any]) -> None:
    agent, restored = (imitator(name, session, memory=memory) for session in (0, 1))
    for seed in range(3):
        fill(agent, seed)
        update(agent)
    restored.load_state_dict(copy.deepcopy(agent.state_dict()))
    for one in (agent, restored):
        fill(one, 3)
    assert update(agent) == update(restored)
    assert changed(restored, weights(agent)) == set()


def test_whole_episodes_will_do_for_the_inner_batch() -> None:
    memory = {**EVENLY, "name": "OnPolicyReplay"}
    agent = imitator("SIL", memory=memory, **{"agent.algorithm.training_frequency": 3})
    fill(agent)
    assert update(agent)["opt_steps"] == 1 + 3


# specs ------------------------------------------------------------------------------------------------------------


def plan(name: str, memory: dict[str, Any]) -> Any:
    spec = tiny_spec(INNER[name], **keys(name, memory))
    return plan_agent(spec.agent, 4, [])


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        ({"name": "OnPolicyBatchReplay"}, r"agent\.memory\.sil_replay_name: missing key \(required\): PPOSIL takes .*"),
        ({**EVENLY, "sil_replay_name": "Repla"}, r"agent\.memory\.sil_replay_name: unknown memory 'Repla'. .*'Replay'"),
        ({**EVENLY, "sil_replay_name": "OnPolicyReplay"}, r"sil_replay_name: 'OnPolicyReplay' does not fit: PPOSIL"),
        ({**EVENLY, "name": "Replay"}, r"agent\.memory\.name: 'Replay' does not fit: PPOSIL learns from an on-policy"),
        ({**EVENLY, "max_sise": 3}, r"agent\.memory\.max_sise: unknown key. Did you mean 'max_size'"),
        ({**EVENLY, "alpha": 0.6}, r"agent\.memory\.alpha: unknown key"),
        ({**EVENLY, "batch_size": 0}, r"agent\.memory\.batch_size: got 0"),
        ({**EVENLY, "cross_entropy": 0.5}, r"agent\.memory\.cross_entropy: unknown key"),
    ],
)
def test_what_is_wrong_in_the_memory_section_is_said_with_its_place(memory: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        plan("PPOSIL", memory)


def test_keys_of_the_on_policy_memory_are_its_own() -> None:
    memory = {**BY_PRIORITY, "name": "OnPolicyCrossEntropy", "cross_entropy": 0.5}
    full = plan("PPOSIL", memory).memory_spec.model_dump(mode="json")
    assert full == {**memory, "use_cer": False, "alpha": 0.6, "epsilon": 1e-6}
    assert plan("PPOSIL", full) == plan("PPOSIL", memory)


@pytest.mark.parametrize("name", INNER)
def test_settings_that_the_inner_algorithm_refuses_are_refused(name: str) -> None:
    wrong = {"SIL": {"training_frequency": None}, "PPOSIL": {"minibatch_size": 65}}[name]
    spec = tiny_spec(INNER[name], **keys(name, **wrong))
    with pytest.raises(SpecError, match=next(iter(wrong))):
        plan_agent(spec.agent, 4, [])


@pytest.mark.skipif(not PUBLIC.exists(), reason="the public specs are not here")
@pytest.mark.parametrize("name", ["ppo_sil_cartpole", "ppo_sil_acrobot"])
def test_public_specs_run_as_they_are(name: str) -> None:
    session = tiny_session(for_mode(load(PUBLIC / f"{name}.json", name).spec, "test"))
    session.run()
    assert session.clock.opt_step > 0
    assert session.tracker.latest["sil_better"] >= 0  # episodes of 12 steps were over


# learning ---------------------------------------------------------------------------------------------------------


class Corridor(gym.Env[Any, Any]):
    """Twelve places in a row; the only reward is at the far end, which few walks find within forty steps."""

    PLACES, LIMIT = 12, 40
    observation_space = gym.spaces.Discrete(PLACES)
    action_space = gym.spaces.Discrete(2)
    place, t = 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.t = 0, 0
        return self.place, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.place = max(0, self.place + (1 if action == 1 else -1))
        self.t += 1
        there = self.place == self.PLACES - 1
        return self.place, float(there), there, self.t >= self.LIMIT, {}


def corridor(name: str) -> Spec:
    """One pass over batches of 128 rows, so that the few rows that found the end are soon gone for PPO alone."""
    own = {"sil_val_loss_coef": 0.01, "training_iter": 10, "sil_min_better": 64}
    overrides = keys(name, {**BY_PRIORITY, "batch_size": 64, "max_size": 50_000}, **own) if name in INNER else {}
    ppo = {"time_horizon": 32, "minibatch_size": 64, "training_epoch": 1, "val_loss_coef": 0.5}
    ppo["entropy_coef_spec"] = {"start_val": 0.01}
    overrides |= {f"agent.algorithm.{key}": value for key, value in ppo.items()}
    overrides |= {"agent.net.hid_layers": [32], "agent.net.optim_spec": {"name": "Adam", "lr": 1e-3}}
    return tiny_spec("PPO", "test_self_imitation:Corridor", max_frame=20_000, **overrides)


def frames_until(spec: Spec, score: float, seed: int) -> int:
    """Frames after which the last 20 episodes have that mean score, at most those of the spec."""
    session = tiny_session(spec, (seed, 0, 0))
    while not session.clock.done:
        session.step()
        returns = list(session.tracker.returns)[-20:]
        if len(returns) == 20 and np.mean(returns) >= score:
            break
    return session.clock.frame


def test_what_was_found_once_is_learnt_in_half_the_frames() -> None:
    frames = [tuple(frames_until(corridor(name), 0.9, seed) for name in ("PPO", "PPOSIL")) for seed in (1, 2, 3)]
    assert sum(2 * sil <= ppo for ppo, sil in frames) >= 2, f"frames of PPO and PPOSIL: {frames}"


@pytest.mark.parametrize(("name", "frames"), [("PPOSIL", 20_000), ("SIL", 30_000)])
def test_it_learns_to_balance_a_pole(name: str, frames: int) -> None:
    path = {"PPOSIL": "ppo_sil_cartpole", "SIL": "a2c_sil_cartpole"}[name]
    sets = [f"max_frame={frames}", "meta.log_frequency=10000", "agent.memory.batch_size=128"]
    spec = load(f"benchmark/sil/{path}.json", path, sets).spec
    assert frames_until(spec, 150, seed=1) < frames
