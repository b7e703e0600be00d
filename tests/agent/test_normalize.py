from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from slm_lab.agent.normalize import NormalizedMemory, ObsNormalizer
from slm_lab.types import Array, Batch


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
    assert all(np.array_equal(before["obs"][key], after["obs"][key]) for key in ("mean", "var", "count"))


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


# replayed observations --------------------------------------------------------------------------------------------


class Fixed:
    """A memory of one batch, which keeps what it is told."""

    def __init__(self, obs: Any, next_obs: Any) -> None:
        zeros = torch.zeros(2)
        self.batch = Batch(obs, zeros, zeros + 7, next_obs, zeros.bool(), zeros.bool(), {"index": torch.arange(2)})
        self.told = list[tuple[Batch, Tensor]]()

    def sample(self) -> Batch:
        return self.batch

    def feedback(self, batch: Batch, error: Tensor) -> None:
        self.told.append((batch, error))


def numbers(obs: object) -> Array:
    assert isinstance(obs, Tensor)
    return obs.numpy()


def test_a_batch_is_normalised_by_what_was_seen_so_far_and_nothing_else_is_touched() -> None:
    normalizer = ObsNormalizer((1,), normalize=True, clip=None)
    memory = Fixed(torch.tensor([[10.0], [20.0]]), torch.tensor([[30.0], [10.0]]))
    lessons = NormalizedMemory(memory, normalizer)
    normalizer.update(np.array([[10.0], [30.0]]))  # mean 20, deviation 10
    batch = lessons.sample()
    assert np.allclose(numbers(batch.obs), [[-1], [0]], atol=1e-3)
    assert np.allclose(numbers(batch.next_obs), [[1], [-1]], atol=1e-3)
    assert batch.reward.tolist() == [7, 7]
    assert numbers(memory.batch.obs).tolist() == [[10], [20]]
    normalizer.update(np.array([[60.0], [60.0], [60.0], [60.0]]))  # mean 46.667, deviation 19.720
    assert np.allclose(numbers(lessons.sample().obs), [[-1.8594], [-1.3522]], atol=1e-3)


def test_entries_of_a_dict_and_bytes_are_normalised_to_floats() -> None:
    normalizer = ObsNormalizer({"a": (1,), "b": (1,)}, normalize=False, clip=5.0)
    obs = {"a": torch.tensor([[1.0], [9.0]]), "b": torch.tensor([[3], [200]], dtype=torch.uint8)}
    batch = NormalizedMemory(Fixed(obs, obs), normalizer).sample()
    assert isinstance(batch.obs, dict)
    assert {key: entry.tolist() for key, entry in batch.obs.items()} == {"a": [[1], [5]], "b": [[3], [5]]}
    assert batch.obs["b"].dtype == torch.float32


def test_errors_reach_the_memory() -> None:
    memory = Fixed(torch.zeros(2, 1), torch.zeros(2, 1))
    lessons = NormalizedMemory(memory, ObsNormalizer((1,), normalize=True, clip=None))
    batch = lessons.sample()
    lessons.feedback(batch, torch.tensor([1.0, 2.0]))
    assert memory.told[0][0].extra["index"].tolist() == [0, 1]
    assert memory.told[0][1].tolist() == [1, 2]
