"""Statistics of few runs, as pure functions: robust averages, bootstrap intervals, profiles, which of two is better.

Scores are one array [S] of sessions per env; a resampled one is [R, S], and what is computed of it has shape [R].
A bootstrap draws sessions anew within each env, so that every env keeps its weight. Its percentile intervals are too
narrow for few sessions: at a level of 95 %, the mean of normal scores is inside for about 81 % of samples of 4
sessions, 85 % of 5, 90 % of 10 and 94 % of 50. A NaN score (no episode ended) makes averages NaN; in comparisons
it loses against every number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from slm_lab.types import Array

RESAMPLES = 2000
LEVEL = 0.95

Scores = Mapping[str, ArrayLike]  # env -> scores of its sessions [S]
Statistic = Callable[[Sequence[Array]], Array]  # scores by env, each [..., S] -> [...]


class Interval(NamedTuple):
    """A number, and between which bounds it lies."""

    value: float
    low: float
    high: float


class Profile(NamedTuple):
    """The share of runs that score more than each of `taus` [T], and its bounds."""

    taus: Array
    share: Array
    low: Array
    high: Array


def interquartile_mean(groups: Sequence[Array]) -> Array:
    """The mean of the middle half of all runs of all envs; of n runs a quarter, rounded down, goes at either end."""
    runs = np.sort(np.concatenate(groups, axis=-1), axis=-1)
    count = runs.shape[-1]
    cut = count // 4
    middle = runs[..., cut : count - cut].mean(axis=-1)
    return np.asarray(np.where(np.isnan(runs).any(axis=-1), np.nan, middle))  # sorting moves a NaN where it is cut


def mean(groups: Sequence[Array]) -> Array:
    """The mean over envs of the mean over sessions."""
    return np.asarray(_env_means(groups).mean(axis=0))


def median(groups: Sequence[Array]) -> Array:
    """The median over envs of the mean over sessions."""
    return np.asarray(np.median(_env_means(groups), axis=0))


def optimality_gap(groups: Sequence[Array], goal: float = 1.0) -> Array:
    """How much runs lack to the goal on average; what they score beyond it does not count."""
    return np.asarray(goal - np.minimum(np.concatenate(groups, axis=-1), goal).mean(axis=-1))


def _env_means(groups: Sequence[Array]) -> Array:
    return np.stack([scores.mean(axis=-1) for scores in groups])


def interval(statistic: Statistic, scores: Scores, level: float = LEVEL, seed: int = 0) -> Interval:
    """A statistic with its percentile interval."""
    groups = _groups(scores)
    low, high = _percentiles(statistic(resampled(groups, np.random.default_rng(seed))), level)
    return Interval(float(statistic(groups)), float(low), float(high))


def resampled(groups: Sequence[Array], rng: np.random.Generator, resamples: int = RESAMPLES) -> list[Array]:
    """Each env's sessions [S] drawn with replacement -> [R, S]."""
    return [scores[rng.integers(len(scores), size=(resamples, len(scores)))] for scores in groups]


def performance_profile(scores: Scores, taus: ArrayLike, level: float = LEVEL, seed: int = 0) -> Profile:
    """The share of all runs of all envs that score more than tau, for each of `taus` [T]."""
    groups, taus = _groups(scores), np.asarray(taus, dtype=float)
    draws = np.concatenate(resampled(groups, np.random.default_rng(seed)), axis=-1)
    share = np.array([_share_above(np.concatenate(groups), tau) for tau in taus])
    bounds = np.stack([_percentiles(_share_above(draws, tau), level) for tau in taus], axis=1)
    return Profile(taus, share, bounds[0], bounds[1])


def _share_above(runs: Array, tau: float) -> Array:
    return np.asarray((runs > tau).mean(axis=-1))


def improvement(x: Scores, y: Scores, level: float = LEVEL, seed: int = 0) -> Interval:
    """The probability that a session of `x` scores more than one of `y`, averaged over envs; a tie counts half."""
    return _of_two(_wins, x, y, level, seed)


def mean_difference(x: Scores, y: Scores, level: float = LEVEL, seed: int = 0) -> Interval:
    """The mean of `x` less that of `y`, averaged over envs."""
    return _of_two(lambda a, b: mean([a]) - mean([b]), x, y, level, seed)


def _of_two(compare: Callable[[Array, Array], Array], x: Scores, y: Scores, level: float, seed: int) -> Interval:
    """What `compare` says of two arrays [..., S] of an env -> [...], averaged over the envs both have."""
    if x.keys() != y.keys():
        raise ValueError(f"scores of different envs: {sorted(x)} and {sorted(y)}")
    left, right = _groups(x), _groups({env: y[env] for env in x})
    rng = np.random.default_rng(seed)
    value = np.mean([compare(a, b) for a, b in zip(left, right, strict=True)])
    draws = [compare(a, b) for a, b in zip(resampled(left, rng), resampled(right, rng), strict=True)]
    low, high = _percentiles(np.mean(draws, axis=0), level)
    return Interval(float(value), float(low), float(high))


def _wins(a: Array, b: Array) -> Array:
    """Share of pairs that a [..., S] wins against b [..., S], a tie as half."""
    a, b = (np.where(np.isnan(side), -np.inf, side) for side in (a, b))
    first, second = a[..., :, None], b[..., None, :]
    return np.asarray(((first > second) + 0.5 * (first == second)).mean(axis=(-2, -1)))


def _groups(scores: Scores) -> list[Array]:
    groups = [np.asarray(values, dtype=float) for values in scores.values()]
    if not groups or any(len(values) == 0 for values in groups):
        raise ValueError("no scores: every env needs at least one session")
    return groups


def _percentiles(values: Array, level: float) -> Array:
    """Bounds [2] of the middle `level` of resampled values [R]."""
    return np.asarray(np.percentile(values, [50 * (1 - level), 50 * (1 + level)], axis=0))
