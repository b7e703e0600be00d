from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from scipy import stats
from torch import Generator, Tensor
from torch import distributions as peer

from slm_lab.lib import distribution as D
from slm_lab.lib.noise import Noise

DRAWS = 40_000
SURE = 1e-4  # p-value below which a sampler counts as wrong; generators are fixed, so a pass stays one


def rng(seed: int = 0) -> Noise:
    return Noise(Generator().manual_seed(seed))


def outputs(*shape: int, seed: int = 7) -> Tensor:
    """Fixed net outputs of a plausible size."""
    return torch.randn(*shape, generator=rng(seed).generator)


def slope(y: Tensor, x: Tensor) -> Tensor:
    """dy / dx."""
    return torch.autograd.grad(y, x)[0]


def beta_of(raw: Tensor) -> Tensor:
    return 1 + torch.nn.functional.softplus(raw)


LOC, LOG_STD = outputs(5, 3, seed=1), 0.5 * outputs(5, 3, seed=2)
LOGITS = outputs(5, 4, seed=3)
BITS = outputs(5, 3, seed=4)

# ours, and what torch.distributions calls the same
CLOSED: dict[str, tuple[D.Distribution, peer.Distribution]] = {
    "Categorical": (D.Categorical(LOGITS), peer.Categorical(logits=LOGITS)),
    "GumbelSoftmax": (D.GumbelSoftmax(LOGITS), peer.Categorical(logits=LOGITS)),
    "Bernoulli": (D.Bernoulli(BITS), peer.Independent(peer.Bernoulli(logits=BITS), 1)),
    "Normal": (D.Normal(LOC, LOG_STD), peer.Independent(peer.Normal(LOC, LOG_STD.exp()), 1)),
    "LogNormal": (D.LogNormal(LOC, LOG_STD), peer.Independent(peer.LogNormal(LOC, LOG_STD.exp()), 1)),
    "Gumbel": (D.Gumbel(LOC, LOG_STD), peer.Independent(peer.Gumbel(LOC, LOG_STD.exp()), 1)),
    "Beta": (D.Beta(LOC, LOG_STD), peer.Independent(peer.Beta(beta_of(LOC), beta_of(LOG_STD)), 1)),
}


@pytest.mark.parametrize("name", CLOSED)
def test_log_probs_are_those_of_torch_and_summed_over_action_dims(name: str) -> None:
    ours, theirs = CLOSED[name]
    action = ours.sample(rng())
    log_prob = ours.log_prob(action)
    assert log_prob.shape == (5,)
    torch.testing.assert_close(log_prob, theirs.log_prob(action), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CLOSED)
def test_entropies_are_those_of_torch(name: str) -> None:
    ours, theirs = CLOSED[name]
    torch.testing.assert_close(ours.entropy(rng()), theirs.entropy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CLOSED)
def test_the_mode_is_more_likely_than_any_sample(name: str) -> None:
    ours, _ = CLOSED[name]
    best = ours.log_prob(ours.mode())
    for seed in range(200):
        assert (ours.log_prob(ours.sample(rng(seed))) <= best + 1e-5).all()


def wide(raw: float) -> Tensor:
    """One net output for each of DRAWS rows."""
    return torch.full((DRAWS, 1), raw)


def beta_cdf(x: Tensor) -> Tensor:
    a, b = (float(beta_of(torch.tensor(raw))) for raw in (0.3, 1.7))
    return torch.from_numpy(stats.beta.cdf(x.numpy(), a, b))


CONTINUOUS: dict[str, tuple[D.Distribution, Callable[[Tensor], Tensor]]] = {
    "Normal": (D.Normal(wide(0.3), wide(-0.7)), peer.Normal(0.3, math.exp(-0.7)).cdf),
    "NormalTanh": (D.NormalTanh(wide(0.3), wide(-0.7)), peer.Normal(0.3, math.exp(-0.7)).cdf),
    "LogNormal": (D.LogNormal(wide(0.3), wide(-0.7)), peer.LogNormal(0.3, math.exp(-0.7)).cdf),
    "Gumbel": (D.Gumbel(wide(0.3), wide(-0.7)), peer.Gumbel(0.3, math.exp(-0.7)).cdf),
    "Beta": (D.Beta(wide(0.3), wide(1.7)), beta_cdf),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_samples_follow_their_distribution(name: str) -> None:
    ours, cdf = CONTINUOUS[name]
    sample = ours.sample(rng()).squeeze(1)
    # Kolmogorov-Smirnov: the samples' own quantiles are uniform
    assert stats.kstest(cdf(sample).double().numpy(), "uniform").pvalue > SURE


@pytest.mark.parametrize("cls", [D.Categorical, D.GumbelSoftmax])
def test_discrete_samples_occur_as_often_as_their_probability_says(cls: type[D.Categorical]) -> None:
    logits = torch.tensor([0.0, 1.0, -1.0, 2.0])
    action = cls(logits.expand(DRAWS, 4)).sample(rng())
    counts = torch.bincount(action, minlength=4).double().numpy()
    assert stats.chisquare(counts, DRAWS * logits.double().softmax(0).numpy()).pvalue > SURE


def test_bits_are_set_as_often_as_their_probability_says() -> None:
    logits = torch.tensor([-2.0, 0.0, 1.5])
    share = D.Bernoulli(logits.expand(DRAWS, 3)).sample(rng()).mean(0)
    p = logits.sigmoid()
    z = (share - p) / (p * (1 - p) / DRAWS).sqrt()
    assert (z.abs() < 4).all()


@pytest.mark.parametrize("name", [*CLOSED, "NormalTanh"])
def test_entropy_is_the_mean_of_minus_log_prob_over_samples(name: str) -> None:
    rows = 20_000
    if name == "NormalTanh":
        dist: D.Distribution = D.NormalTanh(torch.full((rows, 2), 0.3), torch.full((rows, 2), -0.7))
    else:
        cls = {"Categorical": D.Categorical, "GumbelSoftmax": D.GumbelSoftmax, "Bernoulli": D.Bernoulli}.get(name)
        first, second = outputs(1, 3, seed=5).expand(rows, 3), outputs(1, 3, seed=6).mul(0.5).expand(rows, 3)
        dist = cls(first) if cls else vars(D)[name](first, second)
    surprise = -dist.log_prob(dist.sample(rng(1)))
    entropy = dist.entropy(rng(2))
    # both are means over 20,000 rows; five standard errors of their difference
    error = ((surprise.var() + entropy.var()) / rows).sqrt()
    assert (surprise.mean() - entropy.mean()).abs() < 5 * error


@pytest.mark.parametrize("name", [*CLOSED, "NormalTanh"])
def test_the_same_generator_gives_the_same_sample_and_global_state_plays_no_part(name: str) -> None:
    dist = CLOSED[name][0] if name in CLOSED else D.NormalTanh(LOC, LOG_STD)
    first = dist.sample(rng(3))
    torch.randn(10)
    assert torch.equal(dist.sample(rng(3)), first)
    assert not torch.equal(dist.sample(rng(4)), first)


def test_log_prob_of_a_normal_is_a_sum_over_dims() -> None:
    dist = D.Normal(torch.zeros(1, 3), torch.zeros(1, 3))
    # each dim of a unit Gaussian at its mean: -ln sqrt(2 pi) = -0.918939
    assert dist.log_prob(torch.zeros(1, 3)).item() == pytest.approx(-3 * 0.9189385)


def test_deviations_stay_within_bounds() -> None:
    dist = D.Normal(torch.zeros(1, 2), torch.tensor([[-50.0, 50.0]]))
    assert dist.log_std.tolist() == [[-5.0, 2.0]]
    assert torch.isfinite(dist.log_prob(torch.ones(1, 2))).all()


@pytest.mark.parametrize(("u", "expected"), [(0.0, -0.405791), (1.0, -0.338230), (-2.0, -8.155786)])
def test_tanh_normal_has_the_log_probs_worked_out_by_hand(u: float, expected: float) -> None:
    dist = D.NormalTanh(torch.tensor([[0.3]]), torch.tensor([[math.log(0.5)]]))
    assert dist.log_prob(torch.tensor([[u]])).item() == pytest.approx(expected, abs=2e-6)


def test_tanh_normal_is_torchs_transformed_normal() -> None:
    ours = D.NormalTanh(LOC, LOG_STD)
    transform = peer.TanhTransform(cache_size=1)
    squashed = peer.TransformedDistribution(peer.Normal(LOC, LOG_STD.exp()), [transform])
    theirs: peer.Distribution = peer.Independent(squashed, 1)
    u = ours.sample(rng())
    torch.testing.assert_close(ours.log_prob(u), theirs.log_prob(transform(u)), rtol=1e-4, atol=1e-4)


def test_tanh_normal_stays_finite_where_tanh_is_saturated() -> None:
    dist = D.NormalTanh(torch.tensor([[30.0, -30.0]]), torch.zeros(1, 2))
    u = torch.tensor([[30.0, -30.0]], requires_grad=True)
    log_prob = dist.log_prob(u)
    # ln(1 - tanh(u)^2) -> 2 (ln 2 - |u|) for large |u|
    assert log_prob.item() == pytest.approx(-2 * 0.9189385 - 2 * 2 * (math.log(2) - 30), rel=1e-5)
    assert torch.isfinite(slope(log_prob, u)).all()


def test_the_ratio_of_two_tanh_normals_is_that_of_their_normals() -> None:
    u = outputs(5, 3)
    squashed = D.NormalTanh(LOC, LOG_STD).log_prob(u) - D.NormalTanh(LOC + 0.1, LOG_STD).log_prob(u)
    plain = D.Normal(LOC, LOG_STD).log_prob(u) - D.Normal(LOC + 0.1, LOG_STD).log_prob(u)
    torch.testing.assert_close(squashed, plain, rtol=1e-4, atol=1e-5)


def test_the_entropy_of_a_tanh_normal_carries_a_gradient_against_saturation() -> None:
    loc = torch.full((1000, 1), 2.0, requires_grad=True)
    entropy = D.NormalTanh(loc, torch.zeros(1000, 1)).entropy(rng()).mean()
    assert slope(entropy, loc).mean() < 0  # more entropy lies towards 0


def test_what_the_env_gets_is_squashed_or_stretched_and_what_is_stored_is_not() -> None:
    assert D.NormalTanh.to_env(torch.tensor(1.0)).item() == pytest.approx(math.tanh(1))
    assert D.Beta.to_env(torch.tensor([0.0, 0.25, 1.0])).tolist() == [-1.0, -0.5, 1.0]
    assert D.Normal.to_env(torch.tensor(3.0)).item() == 3.0


def test_argmax_puts_all_probability_on_the_highest_logit() -> None:
    dist = D.Argmax(torch.tensor([[1.0, 3.0, 2.0]]))
    assert dist.log_prob(torch.tensor([1])).item() == 0
    assert dist.log_prob(torch.tensor([0])).item() < -1e7
    assert dist.entropy(rng()).item() == 0
    assert {dist.sample(rng(seed)).item() for seed in range(50)} == {1}


def test_argmax_shares_probability_where_logits_tie() -> None:
    dist = D.Argmax(torch.tensor([[3.0, 1.0, 3.0]]).expand(DRAWS, 3))
    assert dist.log_prob(torch.zeros(DRAWS, dtype=torch.int64))[0].item() == pytest.approx(-math.log(2))
    assert dist.entropy(rng())[0].item() == pytest.approx(math.log(2))
    counts = torch.bincount(dist.sample(rng()), minlength=3)
    assert counts[1] == 0
    assert stats.binomtest(int(counts[0]), DRAWS).pvalue > SURE


def test_a_relaxed_gumbel_softmax_sample_is_one_hot_and_has_the_gradient_of_its_soft_form() -> None:
    logits = outputs(6, 4, seed=8).requires_grad_()
    weight = torch.arange(4.0)
    relaxed = D.GumbelSoftmax(logits).relaxed(rng())
    torch.testing.assert_close(relaxed.detach().sum(-1), torch.ones(6))
    torch.testing.assert_close(relaxed.detach().max(-1).values, torch.ones(6))
    # the soft form, worked out anew from the same noise
    noise = -torch.empty(6, 4).exponential_(generator=rng().generator).log()
    soft = (logits.log_softmax(-1) + noise).softmax(-1)
    expected = slope((soft * weight).sum(), logits)
    assert expected.abs().sum() > 0
    torch.testing.assert_close(slope((relaxed * weight).sum(), logits), expected)


def test_multi_categorical_has_one_column_a_component() -> None:
    logits = outputs(5, 2 + 3 + 4)
    dist = D.MultiCategorical(logits, (2, 3, 4))
    action = dist.sample(rng())
    assert action.shape == dist.mode().shape == (5, 3)
    assert (action < torch.tensor([2, 3, 4])).all()
    parts = [D.Categorical(part) for part in (logits[:, :2], logits[:, 2:5], logits[:, 5:])]
    log_probs = [part.log_prob(action[:, i]) for i, part in enumerate(parts)]
    torch.testing.assert_close(dist.log_prob(action), torch.stack(log_probs).sum(0))
    torch.testing.assert_close(dist.entropy(rng()), torch.stack([part.entropy(rng()) for part in parts]).sum(0))
    assert torch.equal(dist.mode(), torch.stack([part.mode() for part in parts], -1))


def test_components_of_a_multi_categorical_are_drawn_apart() -> None:
    action = D.MultiCategorical(torch.zeros(DRAWS, 4), (2, 2)).sample(rng())
    pairs = torch.bincount(2 * action[:, 0] + action[:, 1], minlength=4).double().numpy()
    assert stats.chisquare(pairs).pvalue > SURE


def test_a_beta_has_one_hump_and_never_reaches_its_ends() -> None:
    dist = D.Beta(torch.tensor([[-40.0, 40.0, 0.0]]), torch.tensor([[40.0, -40.0, 0.0]]))
    assert (dist.a >= 1).all()
    assert (dist.b >= 1).all()
    for action in (dist.mode(), *(dist.sample(rng(seed)) for seed in range(50))):
        assert ((action > 0) & (action < 1)).all()
        assert torch.isfinite(dist.log_prob(action)).all()
    assert dist.mode()[0, 2].item() == pytest.approx(0.5)


def test_the_mode_of_a_flat_beta_is_its_middle() -> None:
    # 1 + softplus(-30) is 1 in float32: both exponents vanish
    assert D.Beta(torch.tensor([[-30.0]]), torch.tensor([[-30.0]])).mode().item() == pytest.approx(0.5)


def test_gradients_of_log_probs_point_towards_the_action() -> None:
    loc = torch.zeros(1, 2, requires_grad=True)
    dist = D.Normal(loc, torch.full((1, 2), math.log(0.5)))
    log_prob = dist.log_prob(torch.tensor([[1.0, -1.0]])).sum()
    # d/dm of -(a - m)^2 / (2 s^2) is (a - m) / s^2
    assert slope(log_prob, loc).tolist() == [[pytest.approx(4.0), pytest.approx(-4.0)]]
