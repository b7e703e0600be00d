from __future__ import annotations

import numpy as np
import pytest

from slm_lab.lib.moments import RunningMoments


def test_two_batches_merge_to_the_moments_of_all_rows() -> None:
    moments = RunningMoments(count=0.0)
    moments.update(np.array([1.0, 3.0]))
    moments.update(np.array([5.0, 7.0, 9.0]))
    # 1, 3, 5, 7, 9: mean 5, variance (16 + 4 + 0 + 4 + 16) / 5
    assert moments.mean == 5
    assert moments.var == pytest.approx(8)
    assert moments.count == 5


def test_the_start_weighs_next_to_nothing() -> None:
    moments = RunningMoments()
    moments.update(np.array([2.0, 4.0]))
    # start: mean 0, var 1, count 1e-4; batch: mean 3, var 1, count 2
    total = 2.0001
    assert moments.mean == pytest.approx(3 * 2 / total)
    assert moments.var == pytest.approx((1 * 1e-4 + 1 * 2 + 9 * 1e-4 * 2 / total) / total)


@pytest.mark.parametrize("shape", [(3,), (2, 2)])
def test_any_trailing_shape_is_kept_apart(shape: tuple[int, ...]) -> None:
    rows = np.random.default_rng(0).normal(5, 2, (40, *shape)).astype(np.float32)
    moments = RunningMoments(shape, count=0.0)
    for batch in np.split(rows, 8):
        moments.update(batch)
    assert np.allclose(moments.mean, rows.mean(0, dtype=np.float64))
    assert np.allclose(moments.var, rows.var(0, dtype=np.float64))
    assert moments.var.dtype == np.float64


@pytest.mark.parametrize("shape", [(), (3,)])
def test_a_loaded_copy_goes_on_with_the_same_bits(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    straight, loaded = RunningMoments(shape), RunningMoments(shape)
    straight.update(rng.random((4, *shape)))
    state = straight.state_dict()
    loaded.load_state_dict(state)
    batch = rng.random((4, *shape))
    straight.update(batch)
    loaded.update(batch)
    assert np.array_equal(straight.mean, loaded.mean)
    assert np.array_equal(straight.var, loaded.var)
    assert straight.count == loaded.count
    assert not np.array_equal(state["mean"], straight.mean)  # the saved state did not move on
