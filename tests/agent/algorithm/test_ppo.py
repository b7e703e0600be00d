from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from made_up import SGD, changed, fill, learner_of, make, spaces, update, weights

from slm_lab.agent import Agent
from slm_lab.agent.algorithm.ppo import PPO, moves
from slm_lab.agent.algorithm.returns import gae
from slm_lab.types import Batch

ONE_STEP = {"agent.algorithm.training_epoch": 1, "agent.algorithm.minibatch_size": 64, "agent.net.optim_spec": SGD}


def algorithm_of(agent: Agent) -> PPO:
    assert isinstance(agent.algorithm, PPO)
    return agent.algorithm


def minibatch(value: list[float], target: list[float]) -> Batch:
    """A batch of which only old values and targets matter."""
    zeros = torch.zeros(len(value))
    return Batch(zeros, zeros, zeros, zeros, zeros.bool(), zeros.bool()).with_extra(
        value=torch.tensor(value), v_target=torch.tensor(target)
    )


@pytest.mark.parametrize("kind", ["discrete", "continuous"])
@pytest.mark.parametrize("shared", [False, True])
def test_the_first_step_of_ppo_is_that_of_actor_critic(kind: Any, shared: bool) -> None:
    keys = {"agent.net.optim_spec": SGD, "agent.net.shared": shared}
    agents = (
        make("PPO", spaces(kind), **ONE_STEP, **{"agent.net.shared": shared}),
        make("ActorCritic", spaces(kind), **keys),
    )
    before = weights(agents[0])
    for agent in agents:
        fill(agent)
        update(agent)
    ours, theirs = (weights(agent) for agent in agents)
    assert changed(agents[0], before) == ({"actor"} if shared else {"actor", "critic"})
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=1e-4, atol=1e-6)


def test_minibatches_of_an_epoch_are_disjoint_and_cover_every_row() -> None:
    agent = make("PPO", **{"agent.algorithm.minibatch_size": 24})
    algorithm = algorithm_of(agent)
    fill(agent)
    assert agent.memory is not None
    flat = agent.memory.sample().flat()
    numbered = flat.with_extra(row=torch.arange(64))
    first, second = ([mb.extra["row"] for mb in algorithm._minibatches(numbered, numbered.ended)] for _ in range(2))
    assert [len(rows) for rows in first] == [24, 24, 16]
    assert sorted(torch.cat(first).tolist()) == list(range(64))
    assert torch.cat(first).tolist() != list(range(64))
    assert torch.cat(first).tolist() != torch.cat(second).tolist()


def test_rows_of_a_minibatch_belong_together() -> None:
    agent = make("PPO")
    fill(agent)
    assert agent.memory is not None
    flat = agent.memory.sample().flat()
    assert isinstance(flat.obs, torch.Tensor)
    rows = {
        tuple(obs.tolist()): (a.item(), r.item()) for obs, a, r in zip(flat.obs, flat.action, flat.reward, strict=True)
    }
    for mb in algorithm_of(agent)._minibatches(flat, flat.ended):
        assert isinstance(mb.obs, torch.Tensor)
        for obs, a, r in zip(mb.obs, mb.action, mb.reward, strict=True):
            assert rows[tuple(obs.tolist())] == (a.item(), r.item())


def test_gradient_steps_are_counted_one_for_each_minibatch() -> None:
    agent = make("PPO", **{"agent.algorithm.minibatch_size": 24, "agent.algorithm.training_epoch": 5})
    fill(agent)
    assert update(agent)["opt_steps"] == 5 * 3


@pytest.mark.parametrize(("critic_epochs", "nets"), [(1, {"actor"}), (3, {"actor", "critic"}), (5, {"critic"})])
def test_the_critic_may_take_other_numbers_of_epochs(
    critic_epochs: int, nets: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = make("PPO", **{"agent.algorithm.training_epoch": 3, "agent.algorithm.critic_training_epoch": critic_epochs})
    optim, steps = learner_of(agent).optim, list[tuple[str, ...]]()
    step = optim.step

    def spy(losses: Any, only: tuple[str, ...]) -> float:
        steps.append(only)
        loss: float = step(losses, only)
        return loss

    monkeypatch.setattr(optim, "step", spy)
    fill(agent)
    assert update(agent)["opt_steps"] == 2 * max(3, critic_epochs)
    assert steps.count(("actor", "critic")) == 2 * min(3, critic_epochs)
    assert set(steps[-1]) == nets


@pytest.mark.parametrize(("recompute", "times"), [(False, 1), (True, 3)])
def test_advantages_are_recomputed_before_each_epoch_where_asked(
    recompute: bool, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = make("PPO", **{"agent.algorithm.recompute_adv": recompute})
    seen = list[Any]()

    def spy(*args: Any) -> Any:
        seen.append(np.asarray(args[1]).copy())
        return gae(*args)

    monkeypatch.setattr("slm_lab.agent.algorithm.ppo.gae", spy)
    fill(agent)
    update(agent)
    assert len(seen) == times
    assert all(not np.array_equal(seen[0], values) for values in seen[1:])  # the critic moved in between


def test_the_clip_range_follows_its_schedule() -> None:
    schedule = {"name": "linear_decay", "start_val": 0.2, "end_val": 0.0, "end_step": 1000}
    agent = make("PPO", **{"agent.algorithm.clip_eps_spec": schedule})
    fill(agent)
    assert update(agent, frame=250)["clip_eps"] == pytest.approx(0.15)


def test_a_policy_that_did_not_move_has_no_divergence() -> None:
    agent = make("PPO", **{"agent.net.optim_spec": {"name": "Adam", "lr": 0.0}})
    fill(agent)
    metrics = update(agent)
    assert metrics["approx_kl"] == pytest.approx(0, abs=1e-6)
    assert metrics["clip_fraction"] == 0


def test_a_policy_that_moved_far_is_measured() -> None:
    agent = make("PPO", **{"agent.net.optim_spec": {"name": "Adam", "lr": 0.3}})
    fill(agent)
    metrics = update(agent)
    assert metrics["approx_kl"] > 0.01
    assert 0 < metrics["clip_fraction"] <= 1
    assert metrics["explained_variance"] < 1


# value loss -------------------------------------------------------------------------------------------------------

VALUE, OLD, TARGET = [2.0, -4.0], [1.0, -4.0], [5.0, 20.0]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, (3**2 + 24**2) / 2),  # no half: the key val_loss_coef scales it
        ({"clip_vloss": True}, 0.5 * ((5 - 1.2) ** 2 + 24**2) / 2),
        ({"symlog": True}, ((math.log(6) - math.log(3)) ** 2 + (math.log(21) + math.log(5)) ** 2) / 2),
    ],
)
def test_value_losses_by_hand(keys: dict[str, Any], expected: float) -> None:
    agent = make("PPO", **{f"agent.algorithm.{key}": value for key, value in keys.items()})
    loss = algorithm_of(agent)._value_loss(torch.tensor(VALUE), minibatch(OLD, TARGET), 0.2)
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_normalised_targets_divide_both_sides_by_the_running_deviation() -> None:
    algorithm = algorithm_of(make("PPO", **{"agent.algorithm.normalize_v_targets": True}))
    algorithm.v_scale.update(torch.tensor([-10.0, 10.0]))  # deviation 10
    loss = algorithm._value_loss(torch.tensor(VALUE), minibatch(OLD, TARGET), 0.2)
    assert loss.item() == pytest.approx((0.3**2 + 2.4**2) / 2, rel=1e-5)


def test_the_loss_of_values_is_the_critics_own() -> None:
    algorithm = algorithm_of(make("PPO", **{"agent.net.loss_spec": {"name": "SmoothL1Loss"}}))
    loss = algorithm._value_loss(torch.tensor(VALUE), minibatch(OLD, TARGET), 0.2)
    assert loss.item() == pytest.approx((2.5 + 23.5) / 2)


def test_symlog_values_still_predict_plain_returns() -> None:
    # the minimum of the loss is where the value itself is the target
    algorithm = algorithm_of(make("PPO", **{"agent.algorithm.symlog": True}))
    assert algorithm._value_loss(torch.tensor([3.0, -7.0]), minibatch([0.0, 0.0], [3.0, -7.0]), 0.2).item() == 0


# advantages -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("standardize", [-1.0, 1.0]),
        ("none", [100.0, 300.0]),
        ("batch", [100.0, 300.0]),  # was standardised with the whole batch before
        ("percentile", [100 / 1.8, 300 / 1.8]),  # 5 % and 95 % of (100, 300) are 110 and 290, at rate .01
    ],
)
def test_advantages_are_scaled_by_minibatch(mode: str, expected: list[float]) -> None:
    algorithm = algorithm_of(make("PPO", **{"agent.algorithm.normalize_advantages": mode}))
    assert algorithm._scaled(torch.tensor([100.0, 300.0])).tolist() == pytest.approx(expected, rel=1e-4)


def test_advantages_of_a_batch_have_mean_zero_and_targets_stay_as_they_are() -> None:
    agents = [make("PPO", **{"agent.algorithm.normalize_advantages": mode}) for mode in ("batch", "none")]
    batches = []
    for agent in agents:
        fill(agent)
        assert agent.memory is not None
        rollout = agent.memory.sample()
        flat = rollout.flat()
        batches.append(algorithm_of(agent)._with_targets(rollout, flat, learner_of(agent).values(flat.obs)))
    batch, plain = batches
    torch.testing.assert_close(batch.extra["v_target"], plain.extra["v_target"])
    torch.testing.assert_close(plain.extra["v_target"], plain.extra["adv"] + plain.extra["value"])
    assert batch.extra["adv"].mean().item() == pytest.approx(0, abs=1e-6)
    assert batch.extra["adv"].std(correction=0).item() == pytest.approx(1, rel=1e-4)
    assert abs(plain.extra["adv"].std().item() - 1) > 1e-3


# other settings ---------------------------------------------------------------------------------------------------


def test_whole_episodes_of_several_envs_will_do_for_a_batch() -> None:
    agent = make("PPO", **{"agent.memory.name": "OnPolicyReplay", "agent.algorithm.time_horizon": 3})
    before = weights(agent)
    fill(agent)
    assert update(agent)["opt_steps"] > 0
    assert changed(agent, before) == {"actor", "critic"}


def test_several_unrolls_make_one_batch() -> None:
    agent = make("PPO", **{"agent.algorithm.num_unrolls": 3})
    fill(agent)
    assert agent.memory is not None
    assert agent.memory.sample().reward.shape == (48, 4)


@pytest.mark.parametrize("kind", ["discrete", "continuous", "multi_discrete", "multi_binary"])
def test_every_kind_of_action_is_learnt(kind: Any) -> None:
    agent = make("PPO", spaces(kind, 2, nvec=(2, 3) if kind == "multi_discrete" else ()))
    before = weights(agent)
    fill(agent)
    metrics = update(agent)
    assert math.isfinite(metrics["loss"])
    assert math.isfinite(metrics["entropy"])
    assert changed(agent, before) == {"actor", "critic"}


@pytest.mark.parametrize("name", ["Normal", "NormalTanh", "Beta", "Gumbel", "LogNormal", "MultivariateNormal"])
@pytest.mark.parametrize("rule", ["default", "random", "epsilon_greedy"])
def test_every_continuous_distribution_gives_finite_losses(name: str, rule: str) -> None:
    keys = {"agent.algorithm.action_pdtype": name, "agent.algorithm.action_policy": rule}
    agent = make("PPO", spaces("continuous"), **keys, **{"agent.algorithm.explore_var_spec": {"start_val": 0.5}})
    fill(agent)
    assert math.isfinite(update(agent)["loss"])
    assert learner_of(agent).optim.nan_skips == 0


def test_rewards_that_are_not_numbers_skip_every_step() -> None:
    agent = make("PPO")
    before = weights(agent)
    fill(agent)
    assert agent.memory is not None
    agent.memory.columns.views["reward"][:] = np.nan  # type: ignore[attr-defined]
    metrics = update(agent)
    assert math.isnan(metrics["loss"])
    assert learner_of(agent).optim.nan_skips == metrics["opt_steps"]
    assert changed(agent, before) == set()


def test_moves_of_a_policy_by_hand() -> None:
    # ratios 2, 1 and 0.9: ratio - 1 - ln(ratio) is 1 - 0.6931, 0 and -0.1 + 0.1054; only the first leaves 1 +- 0.15
    found = moves(torch.tensor([2.0, 1.0, 0.9]).log(), clip_eps=0.15)
    assert found["approx_kl"].item() == pytest.approx((0.306853 + 0.005361) / 3, rel=1e-4)
    assert found["clip_fraction"].item() == pytest.approx(1 / 3)
