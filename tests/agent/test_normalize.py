from __future__ import annotations

import numpy as np

from slm_lab.agent.normalize import ObsNormalizer
from slm_lab.types import Array


def as_array(obs: object) -> Array:
    assert isinstance(obs, np.ndarray)
    return obs


def test_observations_are_shifted_and_scaled_by_what_was_seen() -> None:
    normalizer = ObsNormalizer((2,), normalize=True, clip=None)
    seen = np.random.default_rng(0).normal([5.0, -100.0], [2.0, 30.0], (1000, 4, 2))
    for obs in seen:
        normalizer.update(obs)
    rows = seen.reshape(-1, 2)
    expected = (rows[:3] - rows.mean(0)) / rows.std(0)
    out = as_array(normalizer(rows[:3]))
    assert out.dtype == np.float32
    assert np.allclose(out, expected, atol=1e-3)


def test_applying_it_learns_nothing() -> None:
    normalizer = ObsNormalizer((1,), normalize=True, clip=10.0)
    normalizer.update(np.array([[1.0], [3.0]]))
    before = normalizer.state_dict()
    normalizer(np.array([[100.0]]))
    after = normalizer.state_dict()
    assert all(np.array_equal(before[""][key], after[""][key]) for key in ("mean", "var", "count"))


def test_outliers_are_clipped() -> None:
    normalizer = ObsNormalizer((1,), normalize=True, clip=10.0)
    normalizer.update(np.array([[-1.0], [1.0]]))
    assert as_array(normalizer(np.array([[1e6], [-1e6]]))).flatten().tolist() == [10, -10]


def test_without_normalising_it_only_clips() -> None:
    normalizer = ObsNormalizer((1,), normalize=False, clip=2.0)
    normalizer.update(np.array([[100.0], [300.0]]))
    assert as_array(normalizer(np.array([[1.5], [7.0]]))).flatten().tolist() == [1.5, 2.0]


def test_entries_of_a_dict_have_statistics_of_their_own() -> None:
    normalizer = ObsNormalizer({"a": (1,), "b": (2,)}, normalize=True, clip=None)
    obs: dict[str, Array] = {"a": np.array([[0.0], [2.0]]), "b": np.array([[10.0, 0.0], [30.0, 0.0]])}
    normalizer.update(obs)
    out = normalizer(obs)
    assert isinstance(out, dict)
    assert np.allclose(out["a"], [[-1], [1]], atol=1e-3)
    assert np.allclose(out["b"][:, 0], [-1, 1], atol=1e-3)


def test_a_dim_that_never_changes_stays_finite() -> None:
    normalizer = ObsNormalizer((1,), normalize=True, clip=10.0)
    for _ in range(10_000):
        normalizer.update(np.full((4, 1), 3.0))
    assert abs(as_array(normalizer(np.array([[3.0]]))).item()) < 1


def test_statistics_are_saved_and_brought_back() -> None:
    first, second = (ObsNormalizer({"a": (2,)}, normalize=True, clip=None) for _ in range(2))
    obs: dict[str, Array] = {"a": np.array([[1.0, 2.0], [5.0, 9.0]])}
    first.update(obs)
    state, expected = first.state_dict(), first(obs)
    first.update({"a": 100 * obs["a"]})  # must not reach into the saved state
    second.load_state_dict(state)
    out = second(obs)
    assert isinstance(out, dict)
    assert isinstance(expected, dict)
    assert np.array_equal(out["a"], expected["a"])
