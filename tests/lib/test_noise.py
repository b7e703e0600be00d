"""Random numbers asked for one by one, or wished for and drawn beforehand: the same numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from slm_lab.lib import distribution as D
from slm_lab.lib.noise import Draw, Drawn, Noise, NoWishError, Wishes
from slm_lab.lib.rng import Rng


def generator(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def outputs(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=generator(seed))


LOGITS, LOC, LOG_STD = outputs(6, 5, seed=1), outputs(6, 2, seed=2), outputs(6, 2, seed=3)
DISTRIBUTIONS: dict[str, D.Distribution] = {
    "Categorical": D.Categorical(LOGITS),
    "Argmax": D.Argmax(LOGITS),
    "GumbelSoftmax": D.GumbelSoftmax(LOGITS),
    "MultiCategorical": D.MultiCategorical(LOGITS, (2, 3)),
    "Bernoulli": D.Bernoulli(LOGITS),
    "Normal": D.Normal(LOC, LOG_STD),
    "NormalTanh": D.NormalTanh(LOC, LOG_STD),
    "LogNormal": D.LogNormal(LOC, LOG_STD),
    "Gumbel": D.Gumbel(LOC, LOG_STD),
    "Beta": D.Beta(LOC, LOG_STD),
}
DRAWN_BEFOREHAND = [name for name in DISTRIBUTIONS if name != "Beta"]


def kinds_of(base: type[Any]) -> set[str]:
    """All distributions that are made from a base."""
    return {name for kind in base.__subclasses__() for name in {kind.__name__, *kinds_of(kind)}}


def test_every_distribution_is_among_those_tested() -> None:
    assert DISTRIBUTIONS.keys() == kinds_of(D.Distribution)


# numbers ----------------------------------------------------------------------------------------------------------


def test_numbers_are_of_the_kind_that_was_asked_for() -> None:
    noise, like = Noise(generator()), torch.zeros(100, 100)
    normal, exponential, uniform = noise.normal(like), noise.exponential(like), noise.uniform(like)
    # ten thousand of each: a mean is off by a hundredth of the deviation, give or take
    assert (normal.mean().item(), normal.std().item()) == pytest.approx((0, 1), abs=0.04)
    assert (exponential.mean().item(), exponential.std().item()) == pytest.approx((1, 1), abs=0.04)
    assert (uniform.mean().item(), uniform.std().item()) == pytest.approx((1 / 2, math.sqrt(1 / 12)), abs=0.012)
    assert exponential.min() > 0
    assert uniform.min() >= 0
    assert uniform.max() < 1
    integers = noise.draw(Draw("integers", (10_000,), 4))
    assert integers.dtype == torch.int64
    assert torch.bincount(integers).tolist() == pytest.approx([2500] * 4, abs=180)  # a deviation of 43


def test_noise_moves_the_generator_it_was_given_and_no_other() -> None:
    rng, before = Rng(1), torch.get_rng_state()
    first = rng.noise.normal(torch.zeros(3))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, torch.empty(3).normal_(generator=Rng(1).torch))
    assert not torch.equal(rng.noise.normal(torch.zeros(3)), first)


def test_gamma_numbers_have_the_mean_of_their_concentration() -> None:
    drawn = Noise(generator()).gamma(torch.tensor([0.5, 4.0]).expand(10_000, 2))
    # deviations of the means: sqrt(.5) / 100 and 2 / 100
    assert drawn.mean(0).tolist() == pytest.approx([0.5, 4.0], abs=0.08)


# wishes -----------------------------------------------------------------------------------------------------------


def test_wishes_note_what_is_asked_for_in_order_and_give_zeros() -> None:
    wishes = Wishes()
    asked = [wishes.normal(torch.ones(2, 3)), wishes.uniform(torch.ones(4)), wishes.exponential(torch.ones(1, 1))]
    asked.append(wishes.draw(Draw("integers", (5,), 7)))
    assert wishes.noted == [
        Draw("normal", (2, 3)),
        Draw("uniform", (4,)),
        Draw("exponential", (1, 1)),
        Draw("integers", (5,), 7),
    ]
    assert [(one.shape, one.dtype) for one in asked] == [
        ((2, 3), torch.float32),
        ((4,), torch.float32),
        ((1, 1), torch.float32),
        ((5,), torch.int64),
    ]
    assert not any(one.any() for one in asked)


def test_what_was_drawn_is_handed_out_in_order_and_once() -> None:
    numbers = [torch.tensor([1.0, 2.0]), torch.tensor([3.0]), torch.tensor([4])]
    drawn = Drawn(numbers)
    assert drawn.normal(torch.zeros(2)) is numbers[0]
    assert drawn.uniform(torch.zeros(1)) is numbers[1]
    assert drawn.draw(Draw("integers", (1,), 9)) is numbers[2]
    with pytest.raises(StopIteration):
        drawn.normal(torch.zeros(2))


# distributions ----------------------------------------------------------------------------------------------------


def beforehand(wishes: Wishes, noise: Noise) -> Drawn:
    return Drawn([noise.draw(wish) for wish in wishes.noted])


@pytest.mark.parametrize("name", DRAWN_BEFOREHAND)
def test_a_sample_of_numbers_drawn_beforehand_is_that_of_the_generator(name: str) -> None:
    dist, ahead, now, wishes = DISTRIBUTIONS[name], generator(5), generator(5), Wishes()
    dist.sample(wishes)
    assert wishes.noted
    assert torch.equal(dist.sample(beforehand(wishes, Noise(ahead))), dist.sample(Noise(now)))
    assert torch.equal(ahead.get_state(), now.get_state())


@pytest.mark.parametrize("name", DRAWN_BEFOREHAND)
def test_an_entropy_of_numbers_drawn_beforehand_is_that_of_the_generator(name: str) -> None:
    dist, ahead, now, wishes = DISTRIBUTIONS[name], generator(5), generator(5), Wishes()
    dist.entropy(wishes)
    assert bool(wishes.noted) == (name == "NormalTanh")  # the others know it
    assert torch.equal(dist.entropy(beforehand(wishes, Noise(ahead))), dist.entropy(Noise(now)))
    assert torch.equal(ahead.get_state(), now.get_state())


def test_a_relaxed_sample_of_numbers_drawn_beforehand_is_that_of_the_generator() -> None:
    dist, wishes = D.GumbelSoftmax(LOGITS), Wishes()
    dist.relaxed(wishes)
    drawn = beforehand(wishes, Noise(generator(5)))
    assert torch.equal(dist.relaxed(drawn), dist.relaxed(Noise(generator(5))))


def test_what_beta_draws_depends_on_the_net_and_cannot_be_wished_for() -> None:
    dist = DISTRIBUTIONS["Beta"]
    with pytest.raises(NoWishError, match="gamma numbers depend on what the net says"):
        dist.sample(Wishes())
    wishes = Wishes()
    dist.entropy(wishes)
    assert wishes.noted == []
