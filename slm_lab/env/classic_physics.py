"""What a classic control env is to an engine that steps N of them at once, and C's own cosine and squares for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import repeat
from operator import pow as power
from typing import Any, NamedTuple

import numpy as np

from slm_lab.types import Array

FLOAT = np.dtype(np.float64)


class Physics(NamedTuple):
    """One env as pure functions over states [N, d]: Gymnasium's variables, then what else its env remembers."""

    size: int  # d
    draw: Callable[[np.random.Generator], Array]  # the first of an episode's d numbers, others start at 0
    step: Callable[[Array, Array], tuple[Array, Array, Array]]  # state, action -> state, reward [N], terminated [N]
    observe: Callable[[Array], Array]  # state -> new float32 array [N, ...]
    start: np.dtype[Any] = FLOAT  # precision of a state that was just drawn
    fewest: int = 3  # envs from which on stepping them at once is faster than in turn


# Gymnasium takes `math.cos` and `**` of single numbers, which are C's, and numpy's functions of arrays are others:
# x * x is not pow(x, 2) in one case of a thousand, and np.power and np.cos have their own code for some CPUs (AVX-512).


def c_cos(x: Array) -> Array:
    """math.cos of float64s [N]."""
    return np.array([math.cos(value) for value in x.tolist()])


def c_square(x: Array) -> Array:
    """pow(x, 2) of float64s [N]."""
    return np.array([value**2 for value in x.tolist()])


def c_square_float32(x: Array) -> Array:
    """powf(x, 2) of float32s [N]; unlike pow, Python has it for numpy's scalars only."""
    return np.fromiter(map(power, x, repeat(np.float32(2))), np.float32, len(x))
