from __future__ import annotations

import numpy as np
import pytest

from slm_lab.agent.memory.sampler import Prioritized, Sampler, Uniform
from slm_lab.lib.rng import Rng
from slm_lab.types import Array

# critical values of chi-square by degrees of freedom: free draws from the right shares exceed them once in a thousand,
# draws from slices, whose counts vary less, more seldom still
CRITICAL = {3: 16.266, 7: 24.322, 9: 27.877}


def chi_square(seen: Array, share: Array) -> float:
    """How far counts [k] are from the shares [k] expected of them."""
    expected = seen.sum() * share
    return float(((seen - expected) ** 2 / expected).sum())


def with_errors(error: list[float], alpha: float = 1.0, epsilon: float = 0.0) -> Prioritized:
    """One row for each error."""
    sampler = Prioritized(len(error), alpha, epsilon)
    rows = np.arange(len(error))
    sampler.added(rows)
    sampler.update(rows, np.array(error))
    return sampler


def counts(sampler: Sampler, draws: int, batch: int, first: int, count: int, size: int) -> Array:
    rng = Rng(0)
    drawn = [sampler.draw(batch, rng, first, count) for _ in range(draws // batch)]
    return np.bincount(np.concatenate(drawn), minlength=size)


# uniform ----------------------------------------------------------------------------------------------------------


def test_uniform_draws_every_valid_slot_alike_and_no_other() -> None:
    seen = counts(Uniform(10), 100_000, 100, first=7, count=8, size=10)
    valid = [7, 8, 9, 0, 1, 2, 3, 4]
    assert seen[[5, 6]].tolist() == [0, 0]
    assert chi_square(seen[valid], np.full(8, 1 / 8)) < CRITICAL[7]


def test_uniform_draws_are_slots_as_int64() -> None:
    drawn = Uniform(10).draw(32, Rng(0), 9, 1)
    assert drawn.dtype == np.int64
    assert drawn.tolist() == [9] * 32


def test_uniform_keeps_nothing_and_weighs_nothing() -> None:
    sampler: Sampler = Uniform(4)
    rows = np.arange(4)
    sampler.added(rows)
    sampler.removed(rows[:1])
    sampler.update(rows, np.array([1e9, 0.0, 0.0, np.nan]))
    assert sampler.weights(rows, 4, 0.4) is None
    assert sampler.state_dict() == {}
    sampler.load_state_dict({})
    assert np.array_equal(sampler.draw(64, Rng(3), 0, 4), Uniform(4).draw(64, Rng(3), 0, 4))


# by priority ------------------------------------------------------------------------------------------------------


def test_probabilities_and_weights_of_four_rows_are_those_worked_out_by_hand() -> None:
    # p^.6 = 1, 1.5157, 1.9332, 2.2974, which sum to 6.7463; w = (p_min^.6 / p^.6)^.4 = p^-.24
    sampler = with_errors([1, 2, 3, 4], alpha=0.6)
    rows = np.arange(4)
    assert sampler.sums[rows] == pytest.approx([1, 1.5157, 1.9332, 2.2974], abs=5e-5)
    assert sampler.sums[rows] / sampler.sums.total == pytest.approx([0.1482, 0.2247, 0.2866, 0.3405], abs=5e-5)
    weights = sampler.weights(rows, 4, 0.4)
    assert weights.dtype == np.float32
    assert weights == pytest.approx([1, 0.8467, 0.7682, 0.7170], abs=5e-5)


def test_four_rows_are_drawn_in_proportion_to_their_priority() -> None:
    share = np.array([0.1482, 0.2247, 0.2866, 0.3405])
    seen = counts(with_errors([1, 2, 3, 4], alpha=0.6), 100_000, 10, first=0, count=4, size=4)
    assert chi_square(seen, share) < CRITICAL[3]


def test_thousands_of_rows_are_drawn_in_proportion_to_their_priority() -> None:
    kind = np.arange(5000) % 10  # ten kinds of rows, of priority 1 to 10, mixed
    seen = counts(with_errors((kind + 1.0).tolist()), 100_000, 50, first=0, count=5000, size=5000)
    assert chi_square(np.bincount(kind, weights=seen), np.arange(1, 11) / 55) < CRITICAL[9]


def test_each_of_equal_slices_gets_exactly_one_draw() -> None:
    rng = Rng(0)
    sampler = with_errors([1, 1, 2, 4])  # slices of 1 out of 8
    for _ in range(100):
        assert sampler.draw(8, rng, 0, 4).tolist() == [0, 1, 2, 2, 3, 3, 3, 3]
        assert sampler.draw(4, rng, 0, 4)[1:].tolist() == [2, 3, 3]  # slices of 2, the first over rows 0 and 1
    assert {int(sampler.draw(4, rng, 0, 4)[0]) for _ in range(100)} == {0, 1}


def test_draws_are_int64() -> None:
    assert with_errors([1, 2]).draw(3, Rng(0), 0, 2).dtype == np.int64


def test_new_rows_get_the_highest_priority_seen_so_far() -> None:
    sampler = Prioritized(6, alpha=0.5, epsilon=0.0)
    sampler.added(np.array([0, 1]))
    assert sampler.sums.leaves.tolist() == [1, 1, 0, 0, 0, 0]  # 1 before any error is known
    sampler.update(np.array([0]), np.array([-16.0]))
    sampler.added(np.array([2]))
    assert sampler.sums.leaves.tolist() == [4, 1, 4, 0, 0, 0]
    sampler.update(np.array([0, 2]), np.array([0.25, 9.0]))
    sampler.added(np.array([3, 4]))
    assert sampler.sums.leaves.tolist() == [0.5, 1, 3, 4, 4, 0]  # 4 was seen, though no row has it now
    assert sampler.minima.leaves.tolist() == [0.5, 1, 3, 4, 4, np.inf]


def test_small_errors_do_not_lower_what_new_rows_get() -> None:
    sampler = with_errors([0.01, 0.02])
    sampler.added(np.array([0]))
    assert sampler.sums.leaves.tolist() == [1.0, 0.02]


def test_epsilon_is_added_to_the_size_of_the_error_before_the_power() -> None:
    sampler = with_errors([0.0, -3.75, 3.75], alpha=0.5, epsilon=0.25)
    assert sampler.sums.leaves.tolist() == [0.5, 2.0, 2.0]  # sqrt(.25), sqrt(4)


def test_errors_of_single_precision_give_priorities_of_double_precision() -> None:
    sampler = with_errors([1.0], alpha=1.0, epsilon=1e-12)
    sampler.update(np.array([0]), np.array([1.0], np.float32))
    assert sampler.sums.leaves[0] == 1.0 + 1e-12


def test_removed_rows_are_never_drawn_and_do_not_count_for_the_largest_weight() -> None:
    sampler = with_errors([1, 2, 4, 8, 16])
    sampler.removed(np.array([0, 4]))
    assert np.unique(sampler.draw(1000, Rng(0), 1, 3)).tolist() == [1, 2, 3]
    assert sampler.weights(np.array([1, 2, 3]), 3, 1.0).tolist() == [1.0, 0.5, 0.25]
    sampler.added(np.array([0]))  # at 16, the highest seen
    assert sampler.sums.leaves.tolist() == [16, 2, 4, 8, 0]


def test_the_largest_weight_is_that_of_the_whole_memory_not_of_the_batch() -> None:
    assert with_errors([1, 2, 4, 8]).weights(np.array([3, 2]), 4, 1.0).tolist() == [0.125, 0.25]


def test_without_beta_all_weigh_one() -> None:
    assert with_errors([1, 2, 4, 8]).weights(np.arange(4), 4, 0.0).tolist() == [1.0] * 4


def test_errors_that_are_not_finite_leave_the_old_priority() -> None:
    sampler = with_errors([1, 2, 3, 4])
    sampler.update(np.arange(4), np.array([np.nan, np.inf, -np.inf, 5.0]))
    assert sampler.sums.leaves.tolist() == [1, 2, 3, 5]
    assert sampler.minima.leaves.tolist() == [1, 2, 3, 5]
    assert sampler.highest == 5.0
    sampler.update(np.arange(4), np.full(4, np.nan))
    assert sampler.sums.leaves.tolist() == [1, 2, 3, 5]
    assert sampler.highest == 5.0


def test_an_error_of_a_row_that_is_gone_does_not_bring_it_back() -> None:
    sampler = with_errors([1, 2, 4])
    sampler.removed(np.array([0]))
    sampler.update(np.array([0, 1]), np.array([100.0, 3.0]))
    assert sampler.sums.leaves.tolist() == [0, 3, 4]
    assert sampler.minima.leaves.tolist() == [np.inf, 3, 4]
    assert sampler.highest == 4.0


def test_of_a_row_drawn_twice_the_last_error_counts() -> None:
    sampler = with_errors([1, 1])
    sampler.update(np.array([0, 0]), np.array([7.0, 3.0]))
    assert sampler.sums.leaves.tolist() == [3, 1]
    assert sampler.minima.leaves.tolist() == [3, 1]


def test_only_valid_rows_are_drawn_while_a_ring_goes_round_with_a_hole() -> None:
    size, step, sampler, rng = 2000, 64, Prioritized(2000, 0.6, 1e-4), Rng(0)
    valid = np.zeros(size, bool)
    for start in range(0, 3 * size, step):
        rows = (start + np.arange(step)) % size
        gone = (rows + step) % size  # the slots written next stand empty
        sampler.removed(gone)
        sampler.added(rows)
        valid[gone], valid[rows] = False, True
        drawn = sampler.draw(32, rng, 0, int(valid.sum()))
        assert valid[drawn].all()
        sampler.update(drawn, rng.numpy.standard_normal(32))
    assert np.array_equal(sampler.sums.leaves > 0, valid)
    assert np.array_equal(sampler.minima.leaves < np.inf, valid)
    assert sampler.sums.total == pytest.approx(sampler.sums.leaves.sum(), rel=1e-12)
    assert sampler.minima.total == sampler.minima.leaves.min()


def test_after_a_state_round_trip_draws_weights_and_new_rows_are_the_same() -> None:
    rng, size = Rng(0), 20_003
    one, other = Prioritized(size, 0.6, 1e-4), Prioritized(size, 0.6, 1e-4)
    one.added(np.arange(15_000))
    for _ in range(50):
        drawn = one.draw(32, rng, 0, 15_000)
        one.update(drawn, rng.numpy.standard_normal(32) * 5)
    one.removed(np.arange(64))
    other.added(np.arange(size))  # what it held before is replaced
    state = one.state_dict()
    other.load_state_dict(state)
    one_rng, other_rng = Rng(1), Rng(1)
    for _ in range(50):
        drawn, again = one.draw(256, one_rng, 64, 14_936), other.draw(256, other_rng, 64, 14_936)
        assert np.array_equal(drawn, again)
        assert np.array_equal(one.weights(drawn, 14_936, 0.4), other.weights(again, 14_936, 0.4))
        for sampler in (one, other):
            sampler.update(drawn, drawn / size)
            sampler.added(drawn[:4])
    assert one.highest == other.highest > 1
    assert np.array_equal(one.minima.leaves, other.minima.leaves)


def test_a_state_is_not_changed_by_what_comes_after_it() -> None:
    sampler = with_errors([1, 2])
    state = sampler.state_dict()
    sampler.update(np.array([0]), np.array([9.0]))
    assert state["leaves"].tolist() == [1, 2]
    assert state["highest"] == 2.0
