"""Each probe isolates one thing that can be wrong between an env and a weight, through the real training loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from probe_envs import Doomed
from specs_for_tests import tiny_session, tiny_spec
from torch import Tensor

from slm_lab.agent.algorithm import ALGORITHMS
from slm_lab.agent.algorithm.actor import ActorCriticLearner
from slm_lab.agent.algorithm.base import PolicyGradientSpec
from slm_lab.agent.algorithm.soft import SoftSpec
from slm_lab.agent.algorithm.soft_learning import SoftLearner
from slm_lab.agent.algorithm.value import ValueLearner
from slm_lab.agent.memory.imitation import Imitation
from slm_lab.agent.memory.onpolicy import OnPolicyBatchReplay, OnPolicyReplay, fields
from slm_lab.agent.memory.replay import Replay
from slm_lab.experiment.session import Session
from slm_lab.lib.noise import Noise
from slm_lab.types import Array

LEARNERS = [name for name, cls in ALGORITHMS.items() if cls.memory_kind is not None]
REPLAYING = [name for name in LEARNERS if ALGORITHMS[name].memory_kind == "replay"]
CLIMBING = [name for name in LEARNERS if issubclass(ALGORITHMS[name].Spec, PolicyGradientSpec)]
CRITICS = [name for name in CLIMBING if ALGORITHMS[name].has_critic]  # whose values are advantages' baselines
VALUES = [name for name in LEARNERS if name not in CLIMBING or name in CRITICS]
SOFT = [name for name in LEARNERS if issubclass(ALGORITHMS[name].Spec, SoftSpec)]
CONTINUOUS_LEARNERS = [name for name in LEARNERS if "continuous" in ALGORITHMS[name].actions]


SHARING = [(name, shared) for name in VALUES for shared in (False, True) if name in CRITICS or not shared]


def exact(name: str) -> dict[str, Any]:
    """A value linear in the observation and plain gradient descent: the fixed point is exact and soon reached."""
    keys: dict[str, Any] = {"agent.net.hid_layers": [], "agent.net.optim_spec": {"name": "SGD", "lr": 0.25}}
    if name in CLIMBING:
        keys["agent.algorithm.entropy_coef_spec"] = None
    else:  # target nets that do not lag, norms that do not estimate
        keys |= {"agent.net.update_frequency": 1, "agent.net.polyak_coef": 1.0, "agent.net.batch_renorm": False}
    if name in ("PPOSIL", "SIL"):  # imitation only ever raises values
        keys |= {"agent.algorithm.sil_policy_loss_coef": 0.0, "agent.algorithm.sil_val_loss_coef": 0.0}
    if name == "CrossQ":
        keys["agent.critic_net"] = None
    return keys


def train(name: str, env: str, horizon: int, updates: int, seed: int = 0, **overrides: Any) -> Session:
    """A session of batches of `horizon` steps, each one gradient step for whoever takes minibatches."""
    num_envs = overrides.pop("num_envs", 4)
    frames = horizon * num_envs * updates
    keys: dict[str, Any] = {"meta.log_frequency": frames}
    if "time_horizon" in ALGORITHMS[name].Spec.model_fields:
        keys |= {"agent.algorithm.time_horizon": horizon, "agent.algorithm.minibatch_size": horizon * num_envs}
    else:
        keys["agent.algorithm.training_frequency"] = horizon * (num_envs if name in REPLAYING else 1)
    if name in REPLAYING:
        keys["agent.algorithm.training_start_step"] = horizon * num_envs
    spec = tiny_spec(name, f"probe_envs:{env}", num_envs=num_envs, max_frame=frames, **{**keys, **overrides})
    session = tiny_session(spec, (seed, 0, 0))
    session.run()
    assert session.clock.opt_step >= updates - 1
    return session


def learner(session: Session) -> Any:
    return session.agent.algorithm.learner  # type: ignore[attr-defined]


def values_of(session: Session, obs: Tensor) -> list[float]:
    """V of observations [B, ...]: of the best action, for those who value actions."""
    with torch.no_grad():
        if isinstance(learner(session), ActorCriticLearner):
            values = torch.from_numpy(learner(session).values(obs))
        elif isinstance(learner(session), SoftLearner):
            critics = learner(session).critics
            values = critics.agreed(*critics(obs, None)).amax(-1)
        else:
            values = learner(session).net(obs)[0].amax(-1)
    return [float(value) for value in values]


def values(session: Session, *obs: float) -> list[float]:
    """V of observations of one number."""
    return values_of(session, torch.tensor(obs).unsqueeze(1))


def one_hot_values(session: Session, states: int) -> list[float]:
    """V of each state of a Discrete observation."""
    return values_of(session, torch.eye(states))


def probability(session: Session, obs: float, action: int) -> float:
    """Probability of an action, as the agent sees that observation; 1 or 0 for those who take the best."""
    if isinstance(learner(session), ValueLearner):
        return float(session.agent.decide(np.array([[obs]], np.float32)).env_action.item() == action)
    seen = session.agent.normalizer(np.array([[obs]])) if session.agent.normalizer else np.array([[obs]], np.float32)
    with torch.no_grad():
        if isinstance(learner(session), SoftLearner):
            return float(learner(session).policy(torch.from_numpy(seen), Noise(torch.Generator())).probs[0, action])
        dist = learner(session).dist(learner(session).net.policy(torch.from_numpy(seen)))
        log_prob: Tensor = dist.log_prob(torch.tensor([action]))
    return log_prob.exp().item()


def stored(session: Session, rows: int) -> dict[str, Array]:
    """What the memory holds of the last `rows` vector steps, columns by name."""
    memory = session.agent.memory
    if isinstance(memory, Imitation):
        memory = memory.rollout
    if isinstance(memory, Replay):
        newest = range(memory.ring.written - rows, memory.ring.written)
        slots = np.concatenate([memory.ring.slot(row) + np.arange(memory.envs) for row in newest])
        return {name: tensor.numpy() for name, tensor in fields(memory.rows_at(slots))}
    assert isinstance(memory, OnPolicyBatchReplay | OnPolicyReplay)
    return {name: view[:rows].reshape(-1, *view.shape[2:]) for name, view in memory.columns.views.items()}


def shared_net(shared: bool) -> dict[str, Any]:
    return {"agent.net.shared": True} if shared else {}


# values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "shared"), SHARING)
def test_probe_1_a_constant_reward_is_the_value(name: str, shared: bool) -> None:
    session = train(name, "One", horizon=8, updates=30, **exact(name), **shared_net(shared))
    assert values(session, 0.0) == pytest.approx([1.0], abs=0.05)


@pytest.mark.parametrize("name", VALUES)
def test_probe_2_a_value_depends_on_its_observation(name: str) -> None:
    session = train(name, "Drawn", horizon=16, updates=40, **exact(name))
    assert values(session, 1.0, -1.0) == pytest.approx([1.0, -1.0], abs=0.1)


@pytest.mark.parametrize(("name", "shared"), SHARING)
def test_probe_3_a_later_reward_is_discounted(name: str, shared: bool) -> None:
    keys = {"agent.algorithm.gamma": 0.5, **shared_net(shared)}
    session = train(name, "Two", horizon=8, updates=60, **exact(name), **keys)
    assert values(session, 0.0, 1.0) == pytest.approx([0.5, 1.0], abs=0.05)


TRACES = [(name, lam) for name in VALUES for lam in ((0.0, 0.95, 1.0) if name in CRITICS else (None,))]


def trace(lam: float | None) -> dict[str, Any]:
    return {} if lam is None else {"agent.algorithm.lam": lam}


@pytest.mark.parametrize(("name", "lam"), TRACES)
def test_probe_6_a_time_limit_is_not_an_end(name: str, lam: float | None) -> None:
    keys = {"agent.algorithm.gamma": 0.5, **trace(lam), "max_t": 5}
    session = train(name, "Endless", horizon=20, updates=40, num_envs=2, **exact(name), **keys)
    assert values(session, 0.0) == pytest.approx([2.0], abs=0.05)  # 1 / (1 - gamma)


@pytest.mark.parametrize(("name", "lam"), TRACES)
def test_probe_6_an_end_is_an_end(name: str, lam: float | None) -> None:
    keys = {"agent.algorithm.gamma": 0.5, **trace(lam)}
    session = train(name, "Five", horizon=20, updates=100, num_envs=2, **exact(name), **keys)
    expected = [2 * (1 - 0.5**left) for left in (5, 4, 3, 2, 1)]  # 1.9375 ... 1
    assert one_hot_values(session, 6)[:5] == pytest.approx(expected, abs=0.05)


def bad_start(lam: float, gamma: float = 0.5, length: int = 5, first: float = -10.0) -> float:
    """The one value v at which advantages of an episode sum to 0, with the trace cut at its time limit."""
    # step j counts in the advantages of steps 1 ... j, with weights 1, g, g^2, ... for g = gamma lam;
    # its error is r_j + gamma v - v
    weight = [sum((gamma * lam) ** k for k in range(j)) for j in range(1, length + 1)]
    rewards = [first] + [1.0] * (length - 1)
    return sum(w * r for w, r in zip(weight, rewards, strict=True)) / ((1 - gamma) * sum(weight))


def test_the_fixed_points_of_probe_6_are_those_worked_out_on_paper() -> None:
    assert bad_start(lam=0.95) == pytest.approx(-0.80536, abs=1e-5)
    assert bad_start(lam=1.0) == pytest.approx(-0.72868, abs=1e-5)
    assert bad_start(lam=0.0) == pytest.approx(-2.4)


@pytest.mark.parametrize("lam", [0.95, 1.0])
@pytest.mark.parametrize("name", CRITICS)
def test_probe_6_no_trace_leaks_into_the_next_episode(name: str, lam: float) -> None:
    keys = {"agent.algorithm.gamma": 0.5, "agent.algorithm.lam": lam, "max_t": 5, "env.first": -10.0}
    session = train(name, "Endless", horizon=20, updates=40, num_envs=2, **exact(name), **keys)
    assert values(session, 0.0) == pytest.approx([bad_start(lam)], abs=0.02)  # leaking gives -2.4


def test_probe_6_plain_returns_stop_at_a_time_limit_too() -> None:
    keys = {"agent.algorithm.gamma": 0.5, "agent.algorithm.lam": None, "max_t": 5, "env.first": -10.0}
    session = train("ActorCritic", "Endless", horizon=20, updates=60, num_envs=2, **exact("ActorCritic"), **keys)
    assert values(session, 0.0) == pytest.approx([bad_start(lam=1.0)], abs=0.02)


@pytest.mark.parametrize("name", LEARNERS)
def test_probe_7_a_reset_never_stands_beside_what_it_followed(name: str) -> None:
    session = train(name, "Doomed", horizon=9, updates=3, num_envs=2, **exact(name), **{"agent.algorithm.gamma": 1.0})
    rows = stored(session, 9)
    obs, after = rows["obs"].argmax(-1), rows["next_obs"].argmax(-1)
    ended = rows["terminated"] | rows["truncated"]
    assert ended.any()
    assert not (obs == Doomed.Z).any()  # the terminal observation is never acted on
    assert (after[ended] == Doomed.Z).all()  # it is the successor of the last row of an episode, not the reset
    assert (after[~ended] == Doomed.Y).all()
    assert not (after == Doomed.X).any()


@pytest.mark.parametrize("name", VALUES)
def test_probe_7_the_value_before_death_is_its_reward(name: str) -> None:
    session = train(name, "Doomed", horizon=8, updates=100, num_envs=2, **exact(name), **{"agent.algorithm.gamma": 1.0})
    assert one_hot_values(session, 3)[: Doomed.Z] == pytest.approx([10.0, 1.0], abs=0.05)


@pytest.mark.parametrize("name", VALUES)
def test_probe_10_rewards_stay_with_their_env(name: str) -> None:
    keys = {"agent.algorithm.gamma": 0.0}
    session = train(name, "Numbered", horizon=9, updates=150, num_envs=4, **exact(name), **keys)
    numbers = sorted(float(number) for number in session.env.obs.flatten())  # type: ignore[union-attr]
    assert numbers[-1] - numbers[0] > 0.5
    assert values(session, *numbers) == pytest.approx(numbers, abs=0.05)


# policies ---------------------------------------------------------------------------------------------------------


def learning(name: str) -> dict[str, Any]:
    keys: dict[str, Any] = {"agent.net.optim_spec": {"name": "Adam", "lr": 0.05}}
    if name in SOFT:  # a policy that may become sure of itself
        keys |= {"agent.algorithm.fixed_alpha": 0.01, "agent.critic_net": None}
    return keys


@pytest.mark.parametrize("name", LEARNERS)
def test_probe_4_the_better_action_is_found(name: str) -> None:
    session = train(name, "Choice", horizon=16, updates=40, **learning(name))
    assert probability(session, 0.0, 1) > 0.95


@pytest.mark.parametrize("name", LEARNERS)
def test_probe_5_the_better_action_depends_on_the_observation(name: str) -> None:
    session = train(name, "Match", horizon=16, updates=60, **learning(name))
    assert probability(session, 1.0, 1) > 0.95
    assert probability(session, -1.0, 0) > 0.95


@pytest.mark.parametrize("name", LEARNERS)
def test_probe_9_the_scale_of_observations_does_not_matter_once_normalised(name: str) -> None:
    keys = {"normalize_obs": True, "env.scale": 1000.0, "env.shift": 5000.0}
    session = train(name, "Match", horizon=16, updates=60, **learning(name), **keys)
    assert probability(session, 6000.0, 1) > 0.95
    assert probability(session, 4000.0, 0) > 0.95


def continuous(name: str) -> dict[str, Any]:
    if name in SOFT:  # a line cannot value an action by its distance from the best
        net: dict[str, Any] = {"hid_layers": [32], "optim_spec.lr": 0.01}
        if name == "SoftActorCritic":
            net["hid_layers_activation"] = "relu"
        keys = {"fixed_alpha": 0.02, "training_iter": 8}
        return {f"agent.net.{k}": v for k, v in net.items()} | {f"agent.algorithm.{k}": v for k, v in keys.items()}
    return {
        "agent.net.log_std_init": 0.0,
        "agent.net.hid_layers": [],
        "agent.net.optim_spec": {"name": "Adam", "lr": 0.03},
        "agent.algorithm.entropy_coef_spec": None,
    }


def deviation(session: Session) -> float:
    """Of what is sampled before it is clipped or squashed."""
    if isinstance(learner(session), SoftLearner):
        return float(learner(session).policy.net(torch.zeros(1, 1))[1].detach().exp())
    return float(learner(session).net.log_std.detach().exp())


@pytest.mark.parametrize("name", CONTINUOUS_LEARNERS)
def test_probe_8_the_mean_finds_the_best_action_and_the_deviation_shrinks(name: str) -> None:
    horizon, keys = 8 if name in SOFT else 32, continuous(name)
    if name in SOFT:  # steps that stay large would leave the mean wherever the last batch drew it
        keys["agent.net.lr_scheduler_spec"] = {"name": "LinearToZero", "frame": horizon * 4 * 120}
    # one seed in eight strays with CrossQ, whose critics see few actions far from the policy's: two of three count
    sessions = [train(name, "Aim", horizon, 120, seed, **keys) for seed in range(3)]
    means = [session.agent.decide(np.zeros((1, 1), np.float32)).env_action.item() for session in sessions]
    judged = [np.median(means)] if name == "CrossQ" else means
    assert judged == pytest.approx([0.5] * len(judged), abs=0.05)
    assert max(deviation(session) for session in sessions) < 0.6


@pytest.mark.parametrize("name", CONTINUOUS_LEARNERS)
def test_probe_8_a_goal_out_of_reach_saturates_and_rewards_are_those_of_the_clipped_action(name: str) -> None:
    horizon = 8 if name in SOFT else 32
    session = train(name, "Aim", horizon, updates=80, **continuous(name), **{"env.goal": 2.0})
    assert session.agent.decide(np.zeros((1, 1), np.float32)).env_action.item() > 0.95
    rows = stored(session, horizon)
    action, reward = rows["action"][:, 0], rows["reward"]
    if name not in SOFT:  # these store what the env got
        assert (action > 1).any()  # stored as sampled; the env itself asserts that it got no such thing
    assert np.allclose(reward, -((np.clip(action, -1, 1) - 2) ** 2), atol=1e-5)
