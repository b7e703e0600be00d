from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from slm_lab.agent.net.batch_renorm import BatchRenorm1d, BatchRenormSpec
from slm_lab.lib.errors import SpecError
from slm_lab.spec.parse import parse

COLUMN = torch.tensor([[0.0], [2.0], [4.0], [6.0]])  # mean 3, biased variance 5
TINY = 1e-12  # torch refuses an eps of 0


def renorm(mean: float = 0.0, var: float = 1.0, **keys: float) -> BatchRenorm1d:
    """One feature past warm-up, with these running statistics and an eps that does not show."""
    norm = BatchRenorm1d(1, **{"eps": TINY, "warmup_steps": 0, **keys})  # type: ignore[arg-type]
    norm.running_mean.fill_(mean)
    norm.running_var.fill_(var)
    return norm


def data(*shape: int, seed: int = 0) -> Tensor:
    return 3 + 2 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def buffers(norm: BatchRenorm1d) -> list[Tensor]:
    return [buffer.clone() for buffer in norm.buffers()]


@pytest.mark.parametrize("shape", [(16, 3), (16, 3, 5), (4, 3, 5, 2)])
def test_in_warm_up_it_is_batch_norm(shape: tuple[int, ...]) -> None:
    x = data(*shape)
    kind = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d}[len(shape)]
    expected = kind(3, eps=1e-3)
    norm = BatchRenorm1d(3, warmup_steps=1)
    nn.init.constant_(norm.running_mean, 100.0)
    torch.testing.assert_close(norm(x), expected(x))
    # one step of warm-up: the second call is drawn to the running mean of about 100
    assert (norm(x) - expected(x)).abs().min() > 1


def test_after_warm_up_r_and_d_lead_to_the_running_statistics() -> None:
    # r = sqrt(5) / 2 = 1.118034, d = (3 - 1) / 2 = 1: y = (x - 3) / sqrt(5) * r + d = (x - 1) / 2
    norm = renorm(mean=1.0, var=4.0)
    torch.testing.assert_close(norm(COLUMN).detach(), torch.tensor([[-0.5], [0.5], [1.5], [2.5]]))
    # .99 * 1 + .01 * 3 and .99 * 4 + .01 * 5
    torch.testing.assert_close(norm.running_mean, torch.tensor([1.02]))
    torch.testing.assert_close(norm.running_var, torch.tensor([4.01]))
    assert norm.steps.item() == 1


def test_weight_and_bias_come_last() -> None:
    norm = renorm(mean=1.0, var=4.0)
    nn.init.constant_(norm.weight, 2.0)
    nn.init.constant_(norm.bias, 10.0)
    torch.testing.assert_close(norm(COLUMN).detach(), torch.tensor([[9.0], [11.0], [13.0], [15.0]]))


def test_eps_is_part_of_both_deviations() -> None:
    # r = sqrt(5 + 4) / sqrt(0 + 4) = 1.5, d = (3 - 0) / 2 = 1.5: y = (x - 3) / 3 * 1.5 + 1.5 = x / 2
    norm = renorm(mean=0.0, var=0.0, eps=4.0)
    torch.testing.assert_close(norm(COLUMN).detach(), COLUMN / 2)


@pytest.mark.parametrize(("var", "r"), [(5 / 100, 3.0), (5 * 100, 1 / 3), (5 / 4, 2.0)])
def test_r_stays_within_its_bounds(var: float, r: float) -> None:
    # the deviations are as 10, 1/10 and 2 to 1; d is 0
    y = renorm(mean=3.0, var=var)(COLUMN).detach()
    torch.testing.assert_close(y, (COLUMN - 3) / math.sqrt(5) * r)


@pytest.mark.parametrize(("mean", "d"), [(3 - 8 * math.sqrt(5), 5.0), (3 + 8 * math.sqrt(5), -5.0)])
def test_d_stays_within_its_bounds(mean: float, d: float) -> None:
    # the batch mean is 8 running deviations away; r is 1
    y = renorm(mean=mean, var=5.0)(COLUMN).detach()
    torch.testing.assert_close(y, (COLUMN - 3) / math.sqrt(5) + d)


def test_the_bounds_are_settings() -> None:
    y = renorm(mean=0.0, var=0.05, r_max=2.0, d_max=1.0)(COLUMN).detach()
    torch.testing.assert_close(y, (COLUMN - 3) / math.sqrt(5) * 2 + 1)


def slow_formula(norm: BatchRenorm1d, x: Tensor) -> Tensor:
    """The same in single steps, for autograd to go through; reads the running statistics before the call."""
    mean = x.mean(0)
    sigma = ((x - mean).square().mean(0) + norm.eps).sqrt()
    sigma_run = (norm.running_var + norm.eps).sqrt()
    r = (sigma / sigma_run).clamp(1 / norm.r_max, norm.r_max).detach()
    d = ((mean - norm.running_mean) / sigma_run).clamp(-norm.d_max, norm.d_max).detach()
    return norm.weight * ((x - mean) / sigma * r + d) + norm.bias


def test_the_gradient_goes_through_the_batch_statistics_but_not_through_r_and_d() -> None:
    norm = BatchRenorm1d(3, warmup_steps=0).double()
    nn.init.uniform_(norm.weight, 1, 2, generator=torch.Generator().manual_seed(1))
    # deviation 2 and mean 3 against: inside the bounds, both below them, both above them
    norm.running_mean.copy_(torch.tensor([2.0, 300.0, -3.0]))
    norm.running_var.copy_(torch.tensor([1.5, 900.0, 0.01]))
    x = data(16, 3).double().requires_grad_()
    scale = data(16, 3, seed=2).double()  # a plain sum of normalised values has no gradient
    wanted = [x, norm.weight, norm.bias]
    slow = slow_formula(norm, x)
    expected = torch.autograd.grad((slow * scale).sum(), wanted)
    fast = norm(x)
    torch.testing.assert_close(fast, slow)
    for got, want in zip(torch.autograd.grad((fast * scale).sum(), wanted), expected, strict=True):
        assert want.abs().min() > 1e-6
        torch.testing.assert_close(got, want)


def test_running_statistics_take_the_biased_variance_of_all_but_the_features() -> None:
    x = data(4, 3, 5)
    norm = BatchRenorm1d(3, momentum=1.0)
    norm(x)
    rows = x.transpose(1, 2).reshape(20, 3)
    torch.testing.assert_close(norm.running_mean, rows.mean(0))
    torch.testing.assert_close(norm.running_var, rows.var(0, correction=0))


def test_evaluation_uses_the_running_statistics_and_changes_nothing() -> None:
    norm = renorm(mean=1.0, var=4.0).eval()
    before = buffers(norm)
    torch.testing.assert_close(norm(COLUMN).detach(), (COLUMN - 1) / 2)
    torch.testing.assert_close(norm(COLUMN[3:]).detach(), torch.tensor([[2.5]]))
    assert all(torch.equal(one, other) for one, other in zip(buffers(norm), before, strict=True))


def test_one_row_is_taken_by_the_running_statistics_and_changes_nothing() -> None:
    norm = renorm(mean=1.0, var=4.0)
    before = buffers(norm)
    y = norm(COLUMN[3:])
    torch.testing.assert_close(y.detach(), torch.tensor([[2.5]]))
    assert torch.autograd.grad(y.sum(), norm.weight)[0].item() == pytest.approx(2.5)
    assert all(torch.equal(one, other) for one, other in zip(buffers(norm), before, strict=True))


def test_a_state_dict_holds_the_statistics_and_the_steps() -> None:
    norm, other = BatchRenorm1d(3, warmup_steps=2), BatchRenorm1d(3, warmup_steps=2)
    for seed in range(2):
        norm(data(16, 3, seed=seed))
    state = norm.state_dict()
    assert list(state) == ["weight", "bias", "running_mean", "running_var", "steps"]
    assert state["steps"].dtype == torch.int64
    other.load_state_dict(state)
    assert other.steps.item() == 2
    # both are past warm-up, which a fresh one is not
    x = data(16, 3, seed=2)
    expected = norm(x)
    assert torch.equal(other(x), expected)
    assert not torch.allclose(BatchRenorm1d(3, warmup_steps=2)(x), expected, atol=0.1)


def test_the_settings_of_a_spec_are_the_arguments_with_the_same_defaults() -> None:
    spec = BatchRenormSpec()
    norm = BatchRenorm1d(2)
    assert spec.model_dump() == {"eps": 1e-3, "momentum": 0.01, "r_max": 3.0, "d_max": 5.0, "warmup_steps": 10000}
    assert spec.model_dump() == {key: vars(norm)[key] for key in spec.model_dump()}


@pytest.mark.parametrize(
    ("key", "value"), [("eps", 0), ("momentum", 0), ("momentum", 1.1), ("r_max", 0.9), ("d_max", -1)]
)
def test_settings_without_a_meaning_are_refused(key: str, value: float) -> None:
    with pytest.raises(SpecError, match=rf"batch_renorm\.{key}: got {value} .*; allowed: "):
        parse(BatchRenormSpec, {key: value}, "batch_renorm", [])
