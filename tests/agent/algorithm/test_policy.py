from __future__ import annotations

from typing import Any

import pytest
import torch
from made_up import spaces

from slm_lab.agent.algorithm.policy import PDTYPES, Policy, random_actions
from slm_lab.lib import distribution as D
from slm_lab.lib.errors import SpecError
from slm_lab.lib.noise import Noise
from slm_lab.types import Spaces

KINDS: dict[str, Spaces] = {
    "discrete": spaces("discrete", 4),
    "continuous": spaces("continuous", 2),
    "multi_discrete": spaces("multi_discrete", 2, nvec=(2, 3)),
    "multi_binary": spaces("multi_binary", 3),
}


def rng(seed: int = 0) -> Noise:
    return Noise(torch.Generator().manual_seed(seed))


def outputs(policy: Policy, rows: int) -> list[torch.Tensor]:
    return [
        torch.randn(rows, dim, generator=rng(i).generator) for i, dim in enumerate(policy.out_dims(own_log_std=False))
    ]


@pytest.mark.parametrize(
    ("kind", "cls", "dims"),
    [
        ("discrete", D.Categorical, [4]),
        ("continuous", D.Normal, [2, 2]),
        ("multi_discrete", D.MultiCategorical, [5]),
        ("multi_binary", D.Bernoulli, [3]),
    ],
)
@pytest.mark.parametrize("pdtype", ["default", None])
def test_every_kind_of_action_has_a_default_distribution(
    kind: str, cls: type[D.Distribution], dims: list[int], pdtype: str | None
) -> None:
    policy = Policy(KINDS[kind], pdtype, "default")
    assert policy.out_dims(own_log_std=False) == dims
    assert isinstance(policy.dist(*outputs(policy, 3)), cls)


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in PDTYPES for name in PDTYPES[kind]])
@pytest.mark.parametrize("rule", ["default", "random", "epsilon_greedy", "boltzmann"])
def test_actions_of_every_distribution_have_the_shape_of_their_space(kind: str, name: str, rule: str) -> None:
    space = KINDS[kind]
    policy = Policy(space, name, rule)
    action = policy.explore(outputs(policy, 4), 0.5, rng())
    assert action.shape == (4, *space.action_shape)
    assert action.numpy().dtype == space.action_dtype
    assert policy.to_env(action).shape == action.shape
    log_prob = policy.dist(*outputs(policy, 4)).log_prob(action)
    assert log_prob.shape == (4,)
    assert torch.isfinite(log_prob).all()


def test_a_deviation_of_its_own_leaves_one_head() -> None:
    for name in ("Normal", "NormalTanh"):
        assert Policy(KINDS["continuous"], name, "default").out_dims(own_log_std=True) == [2]
    beta = Policy(KINDS["continuous"], "Beta", "default")
    assert not beta.gaussian
    assert beta.out_dims(own_log_std=True) == [2, 2]


@pytest.mark.parametrize(
    ("kind", "pdtype", "rule", "message"),
    [
        (
            "continuous",
            "NormalTan",
            "default",
            r"action_pdtype: .*continuous actions 'NormalTan'. Did you mean 'NormalTanh'",
        ),
        ("discrete", "Normal", "default", r"action_pdtype: .*discrete actions 'Normal'.*Known: Argmax, Categorical"),
        ("discrete", "default", "epsilon-greedy", r"action_policy: .*Did you mean 'epsilon_greedy'"),
    ],
)
def test_unknown_names_are_refused(kind: str, pdtype: str, rule: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Policy(KINDS[kind], pdtype, rule)


def greedy_logits(rows: int) -> list[torch.Tensor]:
    """Action 2 is the best by far."""
    return [torch.tensor([0.0, 0.0, 50.0, 0.0]).expand(rows, 4)]


def test_epsilon_greedy_tosses_a_coin_for_each_env() -> None:
    policy = Policy(spaces("discrete", 4), "Categorical", "epsilon_greedy")
    steps = torch.stack([policy.explore(greedy_logits(8), 0.4, rng(seed)) for seed in range(1000)])
    other = (steps != 2).float()
    # random with probability .4, and then another action in 3 of 4 cases
    assert other.mean().item() == pytest.approx(0.3, abs=0.025)
    # 8 envs apart: 8 * .3 * .7; with one coin for all of them the count would vary five times as much
    assert other.sum(1).var().item() == pytest.approx(1.68, rel=0.2)


@pytest.mark.parametrize(("epsilon", "actions"), [(0.0, {2}), (1.0, {0, 1, 2, 3})])
def test_epsilon_is_the_share_of_random_actions(epsilon: float, actions: set[int]) -> None:
    policy = Policy(spaces("discrete", 4), "Categorical", "epsilon_greedy")
    assert set(policy.explore(greedy_logits(500), epsilon, rng()).tolist()) == actions


def test_a_coin_decides_over_all_dims_of_an_action() -> None:
    policy = Policy(spaces("continuous", 2), "Normal", "epsilon_greedy")
    action = policy.explore([torch.full((400, 2), 9.0), torch.zeros(400, 2)], 0.5, rng())
    greedy = action == 9
    assert torch.equal(greedy[:, 0], greedy[:, 1])
    assert 0.4 < greedy[:, 0].float().mean().item() < 0.6


def test_temperature_flattens_or_sharpens() -> None:
    policy = Policy(spaces("discrete", 4), "Categorical", "boltzmann")
    logits = [torch.tensor([0.0, 0.0, 2.0, 0.0]).expand(4000, 4)]
    for temperature in (0.2, 1.0, 5.0):
        share = (policy.explore(logits, temperature, rng()) == 2).float().mean().item()
        expected = (logits[0][0] / temperature).softmax(0)[2].item()
        assert share == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("name", ["Normal", "NormalTanh", "Beta"])
def test_random_actions_cover_what_the_env_takes_whatever_is_stored(name: str) -> None:
    policy = Policy(spaces("continuous", 1), name, "random")
    sent = policy.to_env(policy.explore([torch.zeros(4000, 1)] * 2, 1.0, rng()))
    assert sent.mean().item() == pytest.approx(0, abs=0.05)
    assert sent.var().item() == pytest.approx(1 / 3, abs=0.03)  # uniform over [-1, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_random_actions_come_from_the_generator_given(kind: Any) -> None:
    first, same, other = (random_actions(KINDS[kind], 50, rng(seed)) for seed in (0, 0, 1))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
