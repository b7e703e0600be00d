from __future__ import annotations

import numpy as np
import pytest

from slm_lab.agent.memory.tree import FAN, TOP, Tree
from slm_lab.types import Array

THREE_LEVELS = 20_003  # leaves under 1251 nodes under a top of 79: the last block of both lower levels has padding
SIZES = [5, TOP, TOP + 1, THREE_LEVELS]


def check_nodes(tree: Tree) -> None:
    """Every node equals the reduction of its children, to the last bit; padding counts for nothing."""
    for children, parents in zip(tree.blocks, tree.levels[1:], strict=True):
        assert np.array_equal(parents[: len(children)], tree.reduction.reduce(children, axis=1))
        assert np.all(parents[len(children) :] == (0.0 if tree.reduction is np.add else np.inf))
    assert tree.total == pytest.approx(tree.reduction.reduce(tree.leaves), rel=1e-12)


def brute_force(leaves: Array, prefix: Array) -> Array:
    """The first leaf at which the running sum is more than the prefix."""
    return np.searchsorted(np.cumsum(leaves), prefix, side="right")


def whole_numbers(size: int) -> Array:
    """0 to 9, a tenth of them zero: their sums are exact in any order."""
    return np.random.default_rng(0).integers(10, size=size).astype(np.float64)


# levels -----------------------------------------------------------------------------------------------------------


def test_the_levels_are_as_few_as_the_fan_and_the_top_allow() -> None:
    assert (FAN, TOP) == (16, 1024)
    assert [level.size for level in Tree(5, np.add).levels] == [5]
    assert [level.size for level in Tree(1024, np.add).levels] == [1024]
    assert [level.size for level in Tree(1025, np.add).levels] == [65 * 16, 65]  # 65 = ceil(1025 / 16)
    assert [level.size for level in Tree(20_003, np.add).levels] == [1251 * 16, 79 * 16, 79]


def test_a_new_tree_sums_to_nothing_and_has_no_minimum() -> None:
    for size in SIZES:
        assert Tree(size, np.add).total == 0.0
        assert Tree(size, np.minimum).total == np.inf


def test_total_is_the_sum_or_the_minimum_of_what_was_set() -> None:
    index, value = np.array([4, 0, 2]), np.array([0.5, 4.0, 2.0])
    sums, minima = Tree(5, np.add), Tree(5, np.minimum)
    sums.set(index, value)
    minima.set(index, value)
    assert (sums.total, minima.total) == (6.5, 0.5)
    assert sums[np.array([0, 1, 2, 4])].tolist() == [4.0, 0.0, 2.0, 0.5]
    assert minima[np.array([1, 4])].tolist() == [np.inf, 0.5]


@pytest.mark.parametrize("size", SIZES)
def test_of_a_repeated_index_the_last_value_stays(size: int) -> None:
    tree = Tree(size, np.add)
    tree.set(np.array([3, size - 1, 3, 3]), np.array([1.0, 8.0, 2.0, 4.0]))
    assert tree[np.array([3, size - 1])].tolist() == [4.0, 8.0]
    assert tree.total == 12.0
    check_nodes(tree)


@pytest.mark.parametrize("reduction", [np.add, np.minimum])
@pytest.mark.parametrize("size", SIZES)
def test_every_node_equals_the_reduction_of_its_children_after_many_sets(size: int, reduction: np.ufunc) -> None:
    rng = np.random.default_rng(1)
    tree, plain = Tree(size, reduction), np.full(size, 0.0 if reduction is np.add else np.inf)
    for start in range(0, 3 * size, max(1, size // 7)):  # three times round, in steps that do not divide the size
        index = (start + np.arange(-(-size // 5))) % size
        tree.set(index, rng.random(len(index)))
        plain[index] = tree[index]
        index = rng.integers(size, size=33)  # with duplicates
        value = rng.random(33) * 10.0 ** rng.integers(-9, 9, size=33)
        tree.set(index, value)
        plain[index] = value
    assert np.array_equal(tree.leaves, plain)
    check_nodes(tree)


def test_a_lone_leaf_and_a_whole_block_give_the_same_nodes_as_a_rebuild() -> None:
    value = np.random.default_rng(2).random(THREE_LEVELS)
    one_by_one, at_once, loaded = (Tree(THREE_LEVELS, np.add) for _ in range(3))
    for index in range(640):
        one_by_one.set(np.array([index]), value[[index]])
    at_once.set(np.arange(640), value[:640])
    loaded.load(np.where(np.arange(THREE_LEVELS) < 640, value, 0.0))
    for a, b, c in zip(one_by_one.levels, at_once.levels, loaded.levels, strict=True):
        assert np.array_equal(a, b)
        assert np.array_equal(a, c)


def test_huge_values_that_come_and_go_leave_no_rounding_behind() -> None:
    tree = Tree(THREE_LEVELS, np.add)
    tree.set(np.array([0, 7]), np.array([0.1, 0.2]))
    before = tree.total
    for _ in range(10):
        tree.set(np.array([1, 500, 20_000]), 1e18)
        tree.set(np.array([1, 500, 20_000]), 0.0)
    assert tree.total == before


@pytest.mark.parametrize("reduction", [np.add, np.minimum])
@pytest.mark.parametrize("size", SIZES)
def test_load_rebuilds_every_level(size: int, reduction: np.ufunc) -> None:
    tree = Tree(size, reduction)
    tree.set(np.arange(size), 123.0)
    leaves = np.random.default_rng(3).random(size)
    tree.load(leaves)
    assert np.array_equal(tree.leaves, leaves)
    check_nodes(tree)
    tree.set(np.array([0]), 2.0)
    assert leaves[0] < 1  # what was loaded is not shared


def test_setting_no_leaf_changes_nothing() -> None:
    tree = Tree(THREE_LEVELS, np.add)
    tree.load(whole_numbers(THREE_LEVELS))
    total = tree.total
    tree.set(np.array([], np.int64), np.array([]))
    assert tree.total == total


def test_an_index_past_the_last_leaf_is_an_error_also_where_there_is_padding() -> None:
    for size in SIZES:
        with pytest.raises(IndexError, match="out of bounds"):
            Tree(size, np.add).set(np.array([size]), 1.0)


# find -------------------------------------------------------------------------------------------------------------


def test_find_gives_the_leaf_whose_stretch_holds_the_prefix() -> None:
    tree = Tree(5, np.add)
    tree.load(np.array([0.0, 1.0, 0.0, 2.0, 0.5]))  # stretches [0, 1) of leaf 1, [1, 3) of leaf 3, [3, 3.5) of leaf 4
    assert tree.find(np.array([0.0, 0.99, 1.0, 2.99, 3.0, 3.49])).tolist() == [1, 1, 3, 3, 4, 4]


@pytest.mark.parametrize("size", SIZES)
def test_find_agrees_with_a_running_sum_at_every_boundary_and_between(size: int) -> None:
    tree, leaves = Tree(size, np.add), whole_numbers(size)
    tree.load(leaves)
    prefix = np.arange(0.0, leaves.sum(), 0.5)  # whole numbers are the boundaries
    assert np.array_equal(tree.find(prefix), brute_force(leaves, prefix))


@pytest.mark.parametrize("size", SIZES)
def test_find_agrees_with_a_running_sum_for_any_fractions(size: int) -> None:
    tree, leaves = Tree(size, np.add), np.random.default_rng(4).random(size)
    tree.load(leaves)
    middle = np.cumsum(leaves) - leaves / 2
    wide = np.flatnonzero(leaves > 1e-6)  # narrower ones rounding may move
    assert np.array_equal(tree.find(middle[wide]), wide)


@pytest.mark.parametrize("size", SIZES)
def test_a_prefix_at_or_past_the_total_finds_the_last_leaf_that_is_not_zero(size: int) -> None:
    tree = Tree(size, np.add)
    tree.load(np.full(size, 0.1))  # not a binary fraction: the order of adding shows in the last bit
    prefix = np.array([np.nextafter(tree.total, 0), tree.total, np.nextafter(tree.total, np.inf), 1.001 * tree.total])
    assert tree.find(prefix).tolist() == [size - 1] * 4  # not the padding after it
    tree.set(np.arange(size // 2, size), 0.0)
    assert tree.find(np.array([tree.total, 2 * tree.total])).tolist() == [size // 2 - 1] * 2


def test_at_every_last_bit_of_a_block_a_leaf_that_is_not_zero_is_found() -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        leaves = 10.0 ** rng.uniform(-12, 12, THREE_LEVELS) * (rng.random(THREE_LEVELS) < 0.3)
        tree = Tree(THREE_LEVELS, np.add)
        tree.load(leaves)
        ends = np.cumsum(tree.top)
        prefix = np.concatenate([np.nextafter(ends, 0), ends, np.nextafter(ends, np.inf), rng.random(500) * tree.total])
        found = tree.find(prefix)
        assert found.max() < THREE_LEVELS
        assert np.all(leaves[found] > 0)


def test_the_smallest_number_there_is_can_be_found() -> None:
    tree = Tree(THREE_LEVELS, np.add)
    tree.set(np.array([12_345]), np.array([5e-324]))
    assert tree.find(np.array([0.0, tree.total])).tolist() == [12_345, 12_345]


def test_only_leaves_that_are_not_zero_are_found_among_many_zeros() -> None:
    alive = np.array([0, 1, 15, 16, 1023, 1024, 19_999, 20_002])
    tree = Tree(THREE_LEVELS, np.add)
    tree.set(alive, 0.3)
    found = tree.find(np.linspace(0, tree.total, 1001))
    assert np.unique(found).tolist() == alive.tolist()


def test_find_leaves_the_prefixes_given_as_they_were() -> None:
    tree, prefix = Tree(THREE_LEVELS, np.add), np.array([0.5, 7.0])
    tree.load(whole_numbers(THREE_LEVELS))
    tree.find(prefix)
    assert prefix.tolist() == [0.5, 7.0]
