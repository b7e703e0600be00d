"""Random numbers for distributions: drawn when they are asked for, or all beforehand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Generator, Tensor


class Draw(NamedTuple):
    """A tensor of random numbers, as a wish."""

    kind: Literal["normal", "exponential", "uniform", "integers"]
    shape: tuple[int, ...]
    high: int = 0  # of integers: 0 <= number < high


class NoWishError(RuntimeError):
    """Numbers that cannot be drawn beforehand: what they are like depends on what a net says."""


class Noise:
    """Draws from a generator, where that lives: a GPU sees the numbers that a CPU sees."""

    def __init__(self, generator: Generator) -> None:
        self.generator = generator

    def draw(self, wish: Draw) -> Tensor:
        if wish.kind == "integers":
            return torch.randint(wish.high, wish.shape, generator=self.generator, device=self.generator.device)
        empty = torch.empty(wish.shape, device=self.generator.device)
        if wish.kind == "normal":
            return empty.normal_(generator=self.generator)
        if wish.kind == "uniform":
            return empty.uniform_(generator=self.generator)
        # floored so that its logarithm is finite
        return empty.exponential_(generator=self.generator).clamp_min_(1e-20)

    def normal(self, like: Tensor) -> Tensor:
        """Unit normal numbers."""
        return self.draw(Draw("normal", tuple(like.shape))).to(like.device)

    def exponential(self, like: Tensor) -> Tensor:
        """Unit exponential numbers, above 0."""
        return self.draw(Draw("exponential", tuple(like.shape))).to(like.device)

    def uniform(self, like: Tensor) -> Tensor:
        """Numbers from 0 to 1."""
        return self.draw(Draw("uniform", tuple(like.shape))).to(like.device)

    def gamma(self, concentration: Tensor) -> Tensor:
        """Gamma numbers of scale 1, without gradient."""
        drawn = torch._standard_gamma(concentration.to(self.generator.device), generator=self.generator)
        return drawn.to(concentration.device)


class Wishes(Noise):
    """Notes what is asked for, and gives zeros."""

    def __init__(self) -> None:
        self.noted: list[Draw] = []

    def draw(self, wish: Draw) -> Tensor:
        self.noted.append(wish)
        return torch.zeros(wish.shape, dtype=torch.int64 if wish.kind == "integers" else torch.float32)

    def gamma(self, concentration: Tensor) -> Tensor:
        raise NoWishError("gamma numbers depend on what the net says")


class Drawn(Noise):
    """Hands out what was drawn beforehand, in the order of the wishes."""

    def __init__(self, numbers: Sequence[Tensor]) -> None:
        self.numbers: Iterator[Tensor] = iter(numbers)

    def draw(self, wish: Draw) -> Tensor:
        return next(self.numbers)
