from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from slm_lab.agent.algorithm.losses import (
    PercentileScale,
    TargetScale,
    clipped_surrogate,
    clipped_value_loss,
    policy_gradient,
    standardize,
    symlog,
)


def numbers(seed: int, rows: int = 64) -> Tensor:
    return torch.randn(rows, generator=torch.Generator().manual_seed(seed))


def slope(y: Tensor, x: Tensor) -> Tensor:
    """dy / dx."""
    return torch.autograd.grad(y, x)[0]


def test_the_policy_gradient_is_minus_the_mean_of_log_prob_times_advantage() -> None:
    log_prob = torch.tensor([-1.0, -2.0], requires_grad=True)
    loss = policy_gradient(log_prob, torch.tensor([3.0, -1.0]))
    assert loss.item() == pytest.approx(-(-1 * 3 + -2 * -1) / 2)
    assert slope(loss, log_prob).tolist() == [-1.5, 0.5]


def test_the_surrogate_at_ratio_one_has_the_gradient_of_the_policy_gradient() -> None:
    log_prob, adv = numbers(1).requires_grad_(), numbers(2)
    surrogate = clipped_surrogate(log_prob, log_prob.detach(), adv, 0.2)
    torch.testing.assert_close(slope(surrogate, log_prob), slope(policy_gradient(log_prob, adv), log_prob))
    assert surrogate.item() == pytest.approx(-adv.mean().item(), abs=1e-6)


@pytest.mark.parametrize(
    ("ratio", "adv", "value"),
    [
        # outside the clip on the side that would improve: held, no gradient
        (1.5, 2.0, 1.2 * 2),
        (0.5, -2.0, 0.8 * -2),
    ],
)
def test_rows_clipped_on_the_improving_side_have_no_gradient(ratio: float, adv: float, value: float) -> None:
    log_prob = torch.tensor([math.log(ratio)], requires_grad=True)
    loss = clipped_surrogate(log_prob, torch.zeros(1), torch.tensor([adv]), 0.2)
    assert loss.item() == pytest.approx(-value)
    assert slope(loss, log_prob).item() == 0.0


@pytest.mark.parametrize(("ratio", "adv"), [(0.5, 2.0), (1.5, -2.0), (1.1, 2.0), (0.9, -2.0)])
def test_rows_on_the_worsening_side_or_within_the_clip_keep_their_gradient(ratio: float, adv: float) -> None:
    log_prob = torch.tensor([math.log(ratio)], requires_grad=True)
    loss = clipped_surrogate(log_prob, torch.zeros(1), torch.tensor([adv]), 0.2)
    assert slope(loss, log_prob).item() == pytest.approx(-ratio * adv, rel=1e-5)


def test_a_huge_ratio_stays_finite() -> None:
    loss = clipped_surrogate(torch.tensor([500.0, -500.0]), torch.zeros(2), torch.tensor([-1.0, -1.0]), 0.2)
    assert torch.isfinite(loss)


@pytest.mark.parametrize(
    ("value", "target", "squared", "gradient"),
    [
        # old value 1, clip .2
        (1.1, 3.0, 1.9**2, -1.9),  # within the clip: the plain error
        (2.0, 3.0, 1.8**2, 0.0),  # went further towards the target than allowed: held at 1.2, no gradient
        (2.0, 0.0, 2.0**2, 2.0),  # went away from the target: the plain error is the worse
        (0.0, 3.0, 3.0**2, -3.0),
    ],
)
def test_the_clipped_value_loss_takes_the_worse_error(
    value: float, target: float, squared: float, gradient: float
) -> None:
    v = torch.tensor([value], requires_grad=True)
    loss = clipped_value_loss(v, torch.tensor([1.0]), torch.tensor([target]), 0.2)
    assert loss.item() == pytest.approx(0.5 * squared, rel=1e-5)
    assert slope(loss, v).item() == pytest.approx(gradient, rel=1e-5)


def test_standardize_gives_mean_zero_and_deviation_one() -> None:
    # 1 2 3 4: mean 2.5, variance 1.25
    assert standardize(torch.tensor([1.0, 2.0, 3.0, 4.0])).tolist() == pytest.approx(
        [x / math.sqrt(1.25) for x in (-1.5, -0.5, 0.5, 1.5)]
    )


def test_standardize_leaves_a_single_row_and_survives_equal_ones() -> None:
    assert standardize(torch.tensor([5.0])).tolist() == [5.0]
    assert standardize(torch.tensor([5.0, 5.0])).tolist() == [0.0, 0.0]


def test_symlog_compresses_both_sides_alike() -> None:
    x = torch.tensor([-(math.e - 1), 0.0, math.e**2 - 1], requires_grad=True)
    assert symlog(x).tolist() == pytest.approx([-1, 0, 2])
    assert torch.isfinite(slope(symlog(x).sum(), x)).all()


def test_the_target_scale_is_the_deviation_of_everything_seen() -> None:
    batches = [10 * numbers(seed, rows) + 50 for seed, rows in ((1, 20), (2, 7), (3, 200))]
    scale = TargetScale()
    for batch in batches:
        scale.update(batch)
    assert scale() == pytest.approx(float(np.std(torch.cat(batches).double().numpy())), rel=1e-6)


def test_the_target_scale_is_never_below_one() -> None:
    scale = TargetScale()
    assert scale() == 1.0
    scale.update(torch.tensor([0.1, 0.2]))
    assert scale() == 1.0


def test_the_percentile_scale_follows_the_range_slowly_and_never_falls_below_one() -> None:
    scale = PercentileScale()
    adv = torch.linspace(-500, 500, 101)
    # percentiles -450 and 450; after one batch at rate .01 the range is 9
    torch.testing.assert_close(scale(adv), adv / 9)
    # after the second .01 + .99 * .01 of 900
    torch.testing.assert_close(scale(adv), adv / (900 * 0.0199))
    assert torch.equal(PercentileScale()(torch.tensor([0.1, 0.2])), torch.tensor([0.1, 0.2]))


@pytest.mark.parametrize("cls", [TargetScale, PercentileScale])
def test_scales_are_saved_with_the_nets(cls: type[TargetScale] | type[PercentileScale]) -> None:
    first, second = cls(), cls()
    if isinstance(first, TargetScale):
        first.update(100 * numbers(1))
    else:
        first(1000 * numbers(1))
    second.load_state_dict(first.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(first.buffers(), second.buffers(), strict=True))
    assert any(buffer.abs().sum() > 0 for buffer in second.buffers())


def test_a_batch_that_is_not_finite_leaves_the_scales_as_they_were() -> None:
    targets, advantages = TargetScale(), PercentileScale()
    targets.update(torch.tensor([0.0, 8.0]))  # deviation 4
    advantages(torch.tensor([-100.0, 100.0]))
    low, high = advantages.low.clone(), advantages.high.clone()
    targets.update(torch.tensor([0.0, math.nan]))
    advantages(torch.tensor([0.0, math.inf]))
    assert targets() == 4.0
    assert (advantages.low, advantages.high) == (low, high)
