"""Values of rollouts: each row's own, and that of what truly followed it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from slm_lab.agent.algorithm.valuing import NUMBERS, ROWS, NetValues, chunks
from slm_lab.types import Batch, map_obs


def total(obs: Any) -> Tensor:
    """A value that can be worked out by hand: the sum of an observation."""
    entries = obs.values() if isinstance(obs, dict) else [obs]
    return torch.stack([entry.flatten(1).sum(1) for entry in entries]).sum(0)


def rollout(obs: Any, next_obs: Any, terminated: list[list[bool]], truncated: list[list[bool]]) -> Batch:
    ended = torch.tensor(terminated), torch.tensor(truncated)
    zeros = torch.zeros(ended[0].shape)
    return Batch(obs, zeros, zeros, next_obs, *ended)


def three_steps_of_two_envs() -> Batch:
    """Env 0 is cut off by a time limit after its first step at 70; env 1 terminates at the last, at 90."""
    obs = torch.tensor([[[1.0], [2.0]], [[10.0], [3.0]], [[11.0], [4.0]]])
    next_obs = torch.tensor([[[70.0], [3.0]], [[11.0], [4.0]], [[12.0], [90.0]]])
    no = [False, False]
    return rollout(obs, next_obs, [no, no, [False, True]], [[True, False], no, no])


def test_a_row_is_followed_by_what_it_led_to_and_not_by_the_next_episode() -> None:
    value, next_value = NetValues(total).of_rollout(three_steps_of_two_envs())
    assert value.tolist() == [[1, 2], [10, 3], [11, 4]]
    assert next_value.tolist() == [[70, 3], [11, 4], [12, 90]]


def test_successors_are_the_same_where_the_values_of_rows_are_known() -> None:
    batch, values = three_steps_of_two_envs(), NetValues(total)
    value, next_value = values.of_rollout(batch)
    assert values.of_successors(batch, value).tolist() == next_value.tolist()


def test_observations_of_several_entries_are_valued_as_one() -> None:
    plain = three_steps_of_two_envs()
    several = [{"a": x, "b": 100 * x} for x in (plain.obs, plain.next_obs)]
    batch = rollout(*several, plain.terminated.tolist(), plain.truncated.tolist())
    value, next_value = NetValues(total).of_rollout(batch)
    assert value[0].tolist() == [101, 202]
    assert next_value[0].tolist() == [7070, 303]


@pytest.mark.parametrize(
    ("shape", "size"),
    [((4,), ROWS), ((1024,), ROWS), ((4, 84, 84), 297)],  # 2^23 / (4 * 84 * 84) = 297.2
)
def test_a_pass_takes_as_many_rows_as_its_memory_allows(shape: tuple[int, ...], size: int) -> None:
    obs = torch.zeros(1, *shape, dtype=torch.uint8).expand(ROWS + 1, *shape)
    sizes = [len(chunk) for chunk in chunks(obs)]
    assert sizes[0] == size
    assert sum(sizes) == ROWS + 1
    assert max(sizes) * obs[0].numel() <= NUMBERS


def test_chunks_of_several_entries_share_the_memory() -> None:
    obs = {"image": torch.zeros(3, 2**22), "state": torch.zeros(3, 1)}
    assert [len(chunk["image"]) for chunk in chunks(obs)] == [1, 1, 1]


def test_values_do_not_depend_on_where_chunks_end() -> None:
    images = torch.arange(600.0).reshape(600, 1, 1, 1).expand(600, 4, 84, 84)
    found = NetValues(lambda obs: obs[:, 0, 0, 0])(images)
    np.testing.assert_array_equal(found, np.arange(600))


def test_what_is_valued_is_left_alone() -> None:
    batch = three_steps_of_two_envs()
    before = batch.map(torch.clone)
    value, next_value = NetValues(total).of_rollout(batch)
    next_value[:] = 0
    assert value.tolist() == [[1, 2], [10, 3], [11, 4]]
    assert map_obs(torch.Tensor.tolist, batch.obs) == map_obs(torch.Tensor.tolist, before.obs)
