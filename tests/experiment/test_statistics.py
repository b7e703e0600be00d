import math

import numpy as np
import pytest

from slm_lab.experiment.statistics import (
    improvement,
    interquartile_mean,
    interval,
    mean,
    mean_difference,
    median,
    optimality_gap,
    performance_profile,
    resampled,
)

NAN = math.nan


def arrays(*groups):
    return [np.array(group, dtype=float) for group in groups]


def test_the_interquartile_mean_is_that_of_the_middle_half():
    assert interquartile_mean(arrays([8, 1, 100, 3, 4, 2, -50, 5])) == (2 + 3 + 4 + 5) / 4  # less -50, 1 and 8, 100


def test_the_interquartile_mean_looks_at_the_runs_of_all_envs_together():
    assert interquartile_mean(arrays([1, 2, 3, 4], [10, 20, 30, 40])) == (3 + 4 + 10 + 20) / 4


def test_of_runs_that_do_not_split_in_quarters_fewer_are_cut():
    assert interquartile_mean(arrays([1, 2, 3, 4, 5, 60, 70])) == (2 + 3 + 4 + 5 + 60) / 5  # 7 // 4 = 1 at either end
    assert interquartile_mean(arrays([1, 2, 9])) == 4  # none


def test_mean_and_median_are_over_envs_of_the_mean_over_sessions():
    groups = arrays([0, 2], [4, 4, 4], [10, 30])  # means 1, 4, 20
    assert mean(groups) == 25 / 3
    assert median(groups) == 4


def test_the_optimality_gap_takes_no_credit_for_more_than_the_goal():
    assert optimality_gap(arrays([0.5, 3.0], [1.0, 0.1])) == pytest.approx(1 - (0.5 + 1 + 1 + 0.1) / 4)


def test_statistics_of_resamples_are_those_of_each_of_them():
    groups = arrays([[1, 2], [3, 5]], [[4, 4], [0, 2]])  # two resamples of two envs
    assert mean(groups).tolist() == [(1.5 + 4) / 2, (4 + 1) / 2]
    assert median(groups).tolist() == [2.75, 2.5]
    assert interquartile_mean(groups).tolist() == [(2 + 4) / 2, (2 + 3) / 2]
    assert optimality_gap(groups, 4).tolist() == [4 - 11 / 4, 4 - (3 + 4 + 0 + 2) / 4]


def test_a_nan_is_never_cut_away():
    assert np.isnan(interquartile_mean(arrays([1, 2, 3, NAN])))  # sorted it would stand last
    assert np.isnan(interval(mean, {"a": [1, NAN]}).value)


def test_sessions_are_drawn_within_their_env():
    first, second = resampled(arrays([1, 2], [10, 20, 30]), np.random.default_rng(0), resamples=50)
    assert (first.shape, second.shape) == ((50, 2), (50, 3))
    assert set(np.unique(first)) == {1, 2}
    assert set(np.unique(second)) == {10, 20, 30}


def test_the_interval_of_two_sessions_spans_them():
    # (a, a) and (b, b) are each a quarter of all resamples, more than 2.5 %
    assert interval(mean, {"a": [0, 10]}) == (5, 0, 10)


def test_the_interval_of_many_sessions_is_near_two_standard_errors():
    scores = np.random.default_rng(1).normal(size=400)
    value, low, high = interval(mean, {"a": scores})
    error = 1.96 * scores.std() / 20
    assert (value, low, high) == pytest.approx((scores.mean(), scores.mean() - error, scores.mean() + error), abs=0.01)


def test_one_env_does_not_widen_the_interval_of_another():
    # were sessions drawn over envs, a resample could hold the high env more often than the low one
    assert interval(mean, {"low": [0, 0, 0], "high": [100, 100, 100]}) == (50, 50, 50)


def test_a_lower_level_gives_a_narrower_interval_and_a_seed_repeats_it():
    scores = {"a": np.random.default_rng(1).normal(size=30)}
    wide, narrow = interval(mean, scores), interval(mean, scores, level=0.5)
    assert wide.low < narrow.low < narrow.high < wide.high
    assert interval(mean, scores, seed=3) == interval(mean, scores, seed=3) != interval(mean, scores, seed=4)


def share_covered(sessions, repetitions=400):
    """How often the 95 % interval of the mean of normal scores holds their true mean, which is 0."""
    samples = np.random.default_rng(5).normal(size=(repetitions, sessions))
    bounds = [interval(mean, {"a": scores}, seed=k) for k, scores in enumerate(samples)]
    return np.mean([low <= 0 <= high for _, low, high in bounds])


@pytest.mark.parametrize(
    ("sessions", "low", "high"),
    # about t of n - 1 degrees within 1.96 sqrt((n - 1) / n): 81 %, 85 %, 90 %, 94 %; 400 repetitions give +-4 %
    [(4, 0.75, 0.87), (5, 0.79, 0.90), (10, 0.86, 0.94), (50, 0.90, 0.98)],
)
def test_the_interval_holds_the_true_mean_as_often_as_it_is_said_to(sessions, low, high):
    assert low <= share_covered(sessions) <= high


def test_a_profile_is_the_share_of_runs_above_each_score():
    profile = performance_profile({"a": [0.1, 0.5], "b": [0.5, 0.9]}, [0, 0.1, 0.5, 0.9])
    assert profile.taus.tolist() == [0, 0.1, 0.5, 0.9]
    assert profile.share.tolist() == [1, 0.75, 0.25, 0]  # more than tau, not as much
    assert (profile.low[[0, 3]].tolist(), profile.high[[0, 3]].tolist()) == ([1, 0], [1, 0])


def test_the_band_of_a_profile_draws_sessions_within_envs():
    profile = performance_profile({"a": [0, 1], "b": [5, 5]}, [0.5])
    # both of b are above; of a none, one or both: 0 and 2 in a quarter of resamples each
    assert (profile.share[0], profile.low[0], profile.high[0]) == (0.75, 0.5, 1)


def test_a_run_without_a_score_is_above_nothing():
    assert performance_profile({"a": [NAN, 1]}, [-1e9]).share.tolist() == [0.5]


def test_the_probability_of_improvement_counts_pairs_and_halves_ties():
    value, low, high = improvement({"a": [1, 3]}, {"a": [1, 2]})
    assert value == (0.5 + 0 + 1 + 1) / 4  # 1 = 1, 1 < 2, 3 > 1, 3 > 2
    # the worst resamples are (1, 1) against (2, 2), the best (3, 3) against anything: a sixteenth and a quarter of all
    assert (low, high) == (0, 1)


def test_the_probability_of_improvement_is_averaged_over_envs():
    assert improvement({"a": [1, 1, 1], "b": [5]}, {"b": [5], "a": [0]}) == (0.75, 0.75, 0.75)  # (1 + 0.5) / 2


def test_no_score_loses_against_every_score():
    assert improvement({"a": [NAN]}, {"a": [-1e9]}).value == 0
    assert improvement({"a": [-1e9]}, {"a": [NAN]}).value == 1
    assert improvement({"a": [NAN]}, {"a": [NAN]}).value == 0.5


def test_swapping_two_algorithms_turns_the_probability_round():
    rng = np.random.default_rng(2)
    x, y = {"a": rng.normal(size=5)}, {"a": rng.normal(size=7)}
    assert improvement(x, y).value == pytest.approx(1 - improvement(y, x).value)


def test_the_difference_is_that_of_means_averaged_over_envs():
    value, low, high = mean_difference({"a": [3, 5], "b": [10]}, {"b": [4], "a": [1]})
    assert value == ((4 - 1) + (10 - 4)) / 2
    assert (low, high) == (((3 - 1) + 6) / 2, ((5 - 1) + 6) / 2)  # (3, 3) and (5, 5) are a quarter each


def test_the_two_sides_of_a_difference_are_drawn_apart():
    scores = {"a": [0, 10]}
    assert mean_difference(scores, scores) == (0, -10, 10)  # a sixteenth of draws each


def test_scores_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="different envs"):
        improvement({"a": [1]}, {"b": [1]})
    with pytest.raises(ValueError, match="every env needs at least one session"):
        interval(mean, {"a": []})
