"""The parts of maximum-entropy learning: choices, twin critics, temperature."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from made_up import SGD, Given, changed, learner_of, live, make, one_hot, set_table, spaces, weights
from torch import nn
from torch.distributions import Normal, TanhTransform, TransformedDistribution
from torch.nn.utils.parametrize import is_parametrized

from slm_lab.agent import Agent
from slm_lab.agent.algorithm.soft import Choice, EntropyAnneal, SoftSpec, Temperature
from slm_lab.lib.errors import SpecError
from slm_lab.types import Batch, Spaces

SOFT = ["SoftActorCritic", "CrossQ"]
BOX = spaces("continuous", 1)
PLAIN: dict[str, Any] = {"agent.net.hid_layers": [], "agent.net.batch_renorm": None, "agent.critic_net": None}
"""Linear nets without norms: tables."""


def temperature(kind: Any = "discrete", dim: int = 2, /, **keys: Any) -> Temperature:
    return Temperature(SoftSpec(name="x", gamma=0.9, training_frequency=1, **keys), spaces(kind, dim))


def slope(one: Temperature, entropy: float) -> float:
    """dJ / d log alpha."""
    (gradient,) = torch.autograd.grad(one.loss(torch.tensor([entropy]), 0), [one.log_alpha])
    return gradient.item()


def batch(kind: str = "discrete", rows: int = 4) -> Batch:
    never, states = torch.zeros(rows, dtype=torch.bool), [row % 3 for row in range(rows)]
    action = torch.linspace(-1, 1, rows)[:, None] if kind == "continuous" else torch.zeros(rows, dtype=torch.int64)
    return Batch(one_hot(states), action, torch.arange(rows).float(), one_hot(states[::-1]), never, never)


# choices ----------------------------------------------------------------------------------------------------------


def test_a_discrete_choice_is_exact() -> None:
    probs = torch.tensor([[0.25, 0.75]])
    choice = Choice(None, probs, probs.log())
    assert choice.expect(torch.tensor([[2.0, 3.0]])).item() == pytest.approx(2.75)
    assert choice.entropy.item() == pytest.approx(-(0.25 * math.log(0.25) + 0.75 * math.log(0.75)))


def test_a_continuous_choice_is_a_sample_and_its_density_that_of_the_squashed_gaussian() -> None:
    agent = make("SoftActorCritic", spaces("continuous", 2), **PLAIN)
    policy = learner_of(agent).policy
    set_table(policy.net, [[0.3, 0, 0], [-0.5, 0, 0]], [[-1.0, 0, 0], [0.2, 0, 0]])
    choice = policy(one_hot([0] * 500), agent.algorithm.rng.noise)
    assert choice.probs is None
    assert choice.action.abs().max() < 1
    squashed = TransformedDistribution(
        Normal(torch.tensor([0.3, -0.5]), torch.tensor([-1.0, 0.2]).exp()), [TanhTransform(cache_size=1)]
    )
    near = choice.action.abs().amax(-1) < 0.99  # further out the reference loses digits in atanh
    expected = squashed.log_prob(choice.action).sum(-1)  # type: ignore[no-untyped-call]
    assert near.sum() > 400
    torch.testing.assert_close(choice.log_prob[near], expected[near], atol=1e-3, rtol=1e-3)
    assert torch.equal(choice.entropy, -choice.log_prob)
    assert torch.equal(choice.expect(choice.log_prob), choice.log_prob)


@pytest.mark.parametrize(("kind", "agreed"), [("continuous", [1.0, 2.0]), ("discrete", [1.5, 3.0])])
def test_two_critics_agree_on_the_lower_value_or_on_the_mean(kind: Any, agreed: list[float]) -> None:
    critics = learner_of(make("SoftActorCritic", spaces(kind, 2))).critics
    assert critics.agreed(torch.tensor([1.0, 4.0]), torch.tensor([2.0, 2.0])).tolist() == agreed


def test_twin_critics_start_apart() -> None:
    critics = learner_of(make("SoftActorCritic")).critics
    assert not torch.equal(critics.q1.net.heads[0].weight, critics.q2.net.heads[0].weight)


# temperature ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["discrete", "continuous"])
def test_the_temperature_loss_slopes_up_where_there_is_more_entropy_than_wanted(kind: Any) -> None:
    one = temperature(kind, target_entropy=0.5)
    # alpha (H - target) at log alpha 0
    assert slope(one, 0.7) == pytest.approx(0.2)
    assert slope(one, 0.1) == pytest.approx(-0.4)


@pytest.mark.parametrize("name", SOFT)
@pytest.mark.parametrize(
    ("space", "tables", "falls"),
    [
        (spaces(), [[[0.0] * 3] * 2], True),  # ln 2, above .6 ln 2
        (spaces(), [[[0.0] * 3, [20.0] * 3]], False),  # next to none
        (BOX, [[[0.0] * 3], [[0.0] * 3]], True),  # of a deviation of 1, above -1
        (BOX, [[[0.0] * 3], [[-5.0] * 3]], False),  # about ln(e^-5) + 1.42 = -3.58
    ],
)
def test_alpha_falls_where_there_is_too_much_entropy_and_rises_where_too_little(
    name: str, space: Spaces, tables: Any, falls: bool
) -> None:
    agent = make(name, space, **PLAIN, **{"agent.algorithm.alpha_lr": 0.01})
    set_table(learner_of(agent).policy.net, *tables)
    metrics = agent.algorithm.update(Given(batch(space.action_kind)), 4)
    # Adam's first step is as long as its learning rate
    assert math.log(metrics["alpha"]) == pytest.approx(-0.01 if falls else 0.01, rel=1e-3)


def test_the_target_entropy_of_continuous_actions_is_minus_their_number() -> None:
    assert temperature("continuous", 3).target(0) == -3
    assert temperature("continuous", 3, target_entropy=-1.5).target(0) == -1.5


@pytest.mark.parametrize(
    ("anneal", "ratios"),
    [
        ({}, {0: 0.6, 1000: 0.6}),
        ({"start_ratio": 0.9}, {0: 0.9, 1000: 0.9}),
        ({"start_ratio": 0.5, "end_ratio": 0.1, "frames": 100}, {0: 0.5, 25: 0.4, 50: 0.3, 100: 0.1, 900: 0.1}),
        ({"start_ratio": 0.1, "end_ratio": 0.0, "frames": 10}, {5: 0.05, 10: 0.0, 11: 0.0}),
        ({"start_ratio": 0.2, "end_ratio": 0.4, "frames": 10}, {5: 0.3}),
    ],
)
def test_the_target_entropy_of_discrete_actions_is_a_share_of_the_most_there_can_be(
    anneal: dict[str, Any], ratios: dict[int, float]
) -> None:
    share, one = EntropyAnneal(**anneal), temperature("discrete", 6)
    assert {frame: one.target(share(frame)) for frame in ratios} == {
        frame: pytest.approx(ratio * math.log(6)) for frame, ratio in ratios.items()
    }


@pytest.mark.parametrize(("frame", "moved"), [(0, 0.01), (100, -0.01)])
def test_alpha_is_moved_towards_the_share_of_the_frame(frame: int, moved: float) -> None:
    anneal = {"start_ratio": 0.9, "end_ratio": 0.5, "frames": 100}
    agent = make("SoftActorCritic", **PLAIN, **{"agent.algorithm.entropy_anneal": anneal})
    set_table(learner_of(agent).policy.net, [[0.0] * 3, [math.log(3)] * 3])
    # odds of 1 to 3: an entropy of .5623, which is .81 ln 2; Adam's first step is as long as its learning rate
    alpha = agent.algorithm.update(Given(batch()), frame)["alpha"]
    assert math.log(alpha) == pytest.approx(moved, rel=1e-3)


def test_a_given_target_entropy_is_not_annealed() -> None:
    one = temperature(target_entropy=0.3)
    assert [one.target(share) for share in (0.5, 0.1)] == [0.3, 0.3]


@pytest.mark.parametrize(("low", "high", "start"), [(-5, 2, 1.0), (-5, -1, math.exp(-1)), (0.5, 2, math.exp(0.5))])
def test_alpha_starts_at_one_or_at_the_nearer_limit(low: float, high: float, start: float) -> None:
    assert temperature(log_alpha_min=low, log_alpha_max=high).alpha(0) == pytest.approx(start)


@pytest.mark.parametrize(("logits", "limit"), [(0.0, -0.25), (20.0, 0.5)])  # too much entropy, too little
def test_alpha_stays_within_its_limits(logits: float, limit: float) -> None:
    keys = {"log_alpha_min": -0.25, "log_alpha_max": 0.5, "alpha_lr": 1.0}
    agent = make("SoftActorCritic", **PLAIN, **{f"agent.algorithm.{key}": value for key, value in keys.items()})
    set_table(learner_of(agent).policy.net, [[0.0] * 3, [logits] * 3])
    for _ in range(2):
        assert agent.algorithm.update(Given(batch()), 4)["alpha"] == pytest.approx(math.exp(limit))


def test_a_given_alpha_is_not_learnt() -> None:
    agent = make("SoftActorCritic", **{"agent.algorithm.fixed_alpha": 0.2})
    before = weights(agent)
    assert agent.algorithm.update(Given(batch()), 4)["alpha"] == 0.2
    assert "temperature" not in changed(agent, before)
    assert set(learner_of(agent).optim.optimizers) == {"actor", "q1", "q2"}


def test_a_given_alpha_can_fall_to_nothing() -> None:
    one = temperature(fixed_alpha=0.2, alpha_anneal_frames=100)
    assert [one.alpha(one.given(frame)) for frame in (0, 25, 100, 500)] == pytest.approx([0.2, 0.15, 0.0, 0.0])
    agent = make("SoftActorCritic", **{"agent.algorithm.fixed_alpha": 0.2, "agent.algorithm.alpha_anneal_frames": 100})
    reports = [agent.algorithm.update(Given(batch()), frame) for frame in (0, 25, 100, 500)]
    assert [report["alpha"] for report in reports] == pytest.approx([0.2, 0.15, 0.0, 0.0])


def test_the_learning_rate_of_alpha_is_its_own_or_the_actors() -> None:
    actors = {"agent.net.optim_spec": {"name": "AdamW", "lr": 0.03, "weight_decay": 0.1}}
    assert learner_of(make("SoftActorCritic", **actors)).optim.lr_of("alpha") == 0.03
    agent = make("SoftActorCritic", **actors, **{"agent.algorithm.alpha_lr": 0.5})
    assert learner_of(agent).optim.lr_of("alpha") == 0.5
    assert type(learner_of(agent).optim.optimizers["alpha"]) is torch.optim.Adam


def test_the_entropy_penalty_is_half_the_square_of_the_distance_from_the_running_mean() -> None:
    one = temperature()
    assert one.penalty(torch.tensor([0.2, 0.4])).item() == 0  # the mean starts here, at .3
    entropy = torch.tensor([1.3, 1.3], requires_grad=True)
    penalty = one.penalty(entropy)  # the mean is now .99 * .3 + .01 * 1.3 = .31
    assert penalty.item() == pytest.approx(0.5 * 0.99**2)
    penalty.backward()  # type: ignore[no-untyped-call]
    assert entropy.grad is not None
    assert entropy.grad.sum().item() == pytest.approx(0.99)


def test_the_entropy_penalty_forgets_what_is_not_finite() -> None:
    one = temperature()
    one.penalty(torch.tensor([math.nan]))
    assert one.penalty(torch.tensor([0.5])).item() == 0


def test_the_entropy_penalty_holds_the_policy_back() -> None:
    def entropy_after(coef: float) -> float:
        keys = {"agent.algorithm.entropy_penalty_coef": coef, "agent.algorithm.fixed_alpha": 0.0}
        agent = make("SoftActorCritic", **PLAIN, **keys, **{"agent.net.optim_spec": SGD})
        learner = learner_of(agent)
        set_table(learner.policy.net, [[0.0] * 3, [0.5] * 3])
        for critic in (learner.critics.q1, learner.critics.q2):
            set_table(critic, [[0.0] * 3, [1.0] * 3])
        for _ in range(60):
            found = learner.policy_step(batch(), agent.algorithm.rng.noise, alpha=0.0, share=0.6)
        return float(found["entropy"])

    assert entropy_after(50.0) > entropy_after(0.0) + 0.05


# spectral norm ----------------------------------------------------------------------------------------------------


def largest(layer: Any) -> float:
    return float(torch.linalg.matrix_norm(layer.weight.detach(), 2))


@pytest.mark.parametrize("name", SOFT)
def test_the_spectral_norm_bounds_the_last_hidden_layer_alone(name: str) -> None:
    keys: dict[str, Any] = {
        "agent.net.hid_layers": [16, 12],
        "agent.critic_net": None,
        "agent.algorithm.spectral_norm": True,
    }
    agent = make(name, **keys)
    live(agent, 30)
    learner = learner_of(agent)
    for critic in (learner.critics.q1, learner.critics.q2):
        first, hidden, out = (module for module in critic.modules() if isinstance(module, nn.Linear))
        assert hidden.weight.shape == (12, 16)
        assert largest(hidden) == pytest.approx(1, abs=0.02)
        assert [is_parametrized(layer) for layer in (first, hidden, out)] == [False, True, False]
    assert not any(is_parametrized(module) for module in learner.policy.modules())


def test_the_target_of_a_bounded_critic_is_bounded_too() -> None:
    keys = {"agent.net.hid_layers": [16, 12], "agent.algorithm.spectral_norm": True}
    agent = make("SoftActorCritic", **keys, **{"agent.net.update_type": "polyak", "agent.net.polyak_coef": 0.1})
    live(agent, 30)
    algorithm: Any = agent.algorithm
    _, hidden, _ = (module for module in algorithm.target.net.q1.modules() if isinstance(module, nn.Linear))
    assert largest(hidden) == pytest.approx(1, abs=0.05)


def test_a_critic_without_hidden_layers_cannot_be_bounded() -> None:
    with pytest.raises(SpecError, match=r"agent\.algorithm\.spectral_norm: the critics have no hidden layer"):
        make("SoftActorCritic", **PLAIN, **{"agent.algorithm.spectral_norm": True})


# acting -----------------------------------------------------------------------------------------------------------


def acts(agent: Agent, frame: int, rows: int = 2000) -> Any:
    return agent.act(agent.see(np.zeros((rows, 3), np.float32)), frame)


@pytest.mark.parametrize("name", SOFT)
def test_actions_are_random_until_learning_starts_and_are_stored_as_sent(name: str) -> None:
    agent = make(name, spaces("continuous", 2), **PLAIN, **{"agent.algorithm.training_start_step": 100})
    policy = learner_of(agent).policy.net
    with torch.no_grad():
        policy.net.heads[0].bias.fill_(3.0)
        policy.net.heads[1].bias.fill_(-5.0)
    early, late = acts(agent, 99), acts(agent, 100)
    assert early.action.mean() == pytest.approx(0, abs=0.06)
    assert early.action.std() == pytest.approx(1 / math.sqrt(3), abs=0.03)
    assert late.action.min() > 0.99
    for act in (early, late):
        assert np.array_equal(act.action, act.env_action)
        assert np.abs(act.action).max() <= 1


@pytest.mark.parametrize("name", SOFT)
def test_the_defaults_depend_on_envs_and_memory(name: str) -> None:
    unset = {"agent.algorithm.training_iter": None, "agent.algorithm.training_start_step": None}
    spec: Any = make(name, **unset).algorithm.spec  # type: ignore[attr-defined]
    assert (spec.training_iter, spec.training_start_step) == (4, 1000)
    spec = make(name, **unset, **{"agent.memory.batch_size": 2000}).algorithm.spec  # type: ignore[attr-defined]
    assert spec.training_start_step == 2000


# refusals and notes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SOFT)
@pytest.mark.parametrize("kind", ["multi_discrete", "multi_binary"])
def test_other_actions_are_refused(name: str, kind: Any) -> None:
    space = spaces(kind, 2, nvec=(2, 3) if kind == "multi_discrete" else ())
    with pytest.raises(SpecError, match=rf"{name} takes discrete or continuous actions; .* {kind} ones"):
        make(name, space)


@pytest.mark.parametrize("name", SOFT)
@pytest.mark.parametrize(
    ("space", "pdtype"), [(BOX, "Categorical"), (BOX, "Beta"), (spaces(), "Normal"), (spaces(), "Argmax")]
)
def test_distributions_that_do_not_fit_are_refused(name: str, space: Spaces, pdtype: str) -> None:
    with pytest.raises(SpecError, match=rf"agent\.algorithm\.action_pdtype: .*'{pdtype}'"):
        make(name, space, **{"agent.algorithm.action_pdtype": pdtype})


@pytest.mark.parametrize(
    ("space", "pdtype"), [(BOX, "default"), (BOX, "Normal"), (BOX, "NormalTanh"), (spaces(), "Categorical")]
)
def test_distributions_that_mean_the_same_act_the_same(space: Spaces, pdtype: str) -> None:
    agents = [make("SoftActorCritic", space, **{"agent.algorithm.action_pdtype": name}) for name in (None, pdtype)]
    first, second = (acts(agent, 100) for agent in agents)
    assert np.array_equal(first.action, second.action)
    assert agents[1].algorithm.notes == []


def test_gumbel_softmax_runs_by_the_exact_mean_and_says_so() -> None:
    agent = make("SoftActorCritic", **{"agent.algorithm.action_pdtype": "GumbelSoftmax"})
    assert len(live(agent, 5)) == 4
    assert ["GumbelSoftmax" in note for note in agent.algorithm.notes] == [True]


@pytest.mark.parametrize(
    ("space", "key", "value"),
    [
        (BOX, "entropy_anneal", {"start_ratio": 0.5}),
        (BOX, "entropy_penalty_coef", 0.5),
        (spaces(), "alpha_anneal_frames", 100),
    ],
)
def test_settings_without_effect_are_remarked_upon(space: Spaces, key: str, value: Any) -> None:
    agent = make("SoftActorCritic", space, **{f"agent.algorithm.{key}": value})
    assert [note.split(":")[0] for note in agent.algorithm.notes] == [f"agent.algorithm.{key}"]


def test_limits_the_wrong_way_round_are_refused() -> None:
    with pytest.raises(SpecError, match=r"agent\.algorithm\.log_alpha_min: 1\.0 is above log_alpha_max, 0\.5"):
        make("SoftActorCritic", **{"agent.algorithm.log_alpha_min": 1, "agent.algorithm.log_alpha_max": 0.5})
