from __future__ import annotations

from typing import Any

import torch

from slm_lab.agent.algorithm.joined import joined, joined_obs
from slm_lab.types import Batch


def batch(rows: int, start: int, obs: Any) -> Batch:
    numbers = torch.arange(start, start + rows)
    return Batch(
        obs(numbers), numbers, numbers / 2, obs(numbers + 1), numbers == 0, numbers == 3, {"weight": numbers * 10}
    )


def test_rows_follow_each_other_column_by_column() -> None:
    both = joined(batch(1, 0, lambda x: x * 100), batch(3, 1, lambda x: x * 100))
    assert len(both) == 4
    assert isinstance(both.obs, torch.Tensor)
    assert isinstance(both.next_obs, torch.Tensor)
    assert both.obs.tolist() == [0, 100, 200, 300]
    assert both.action.tolist() == [0, 1, 2, 3]
    assert both.reward.tolist() == [0, 0.5, 1, 1.5]
    assert both.next_obs.tolist() == [100, 200, 300, 400]
    assert both.terminated.tolist() == [True, False, False, False]
    assert both.truncated.tolist() == [False, False, False, True]
    assert both.extra["weight"].tolist() == [0, 10, 20, 30]


def test_entries_of_a_dict_are_joined_each() -> None:
    both = joined(batch(1, 0, lambda x: {"a": x, "b": -x}), batch(2, 1, lambda x: {"a": x, "b": -x}))
    assert isinstance(both.obs, dict)
    assert {name: entry.tolist() for name, entry in both.obs.items()} == {"a": [0, 1, 2], "b": [0, -1, -2]}


def test_bytes_stay_bytes() -> None:
    image = torch.zeros(1, 2, 2, dtype=torch.uint8)
    assert joined_obs(image, image).shape == (2, 2, 2)
    assert joined_obs(image, image).dtype == torch.uint8
