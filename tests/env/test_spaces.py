from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from slm_lab.env.spaces import ObsCodec, action_size, mask_row, mask_size, spaces_of
from slm_lab.lib.errors import SpecError


@pytest.mark.parametrize(
    ("space", "raw", "expected"),
    [
        (spaces.Box(-1, 1, (2,), np.float64), np.array([0.1, 0.2]), np.array([0.1, 0.2], np.float32)),
        (spaces.Box(0, 9, (2,), np.int32), np.array([3, 4], np.int32), np.array([3, 4], np.float32)),
        (spaces.Box(0, 255, (1, 2), np.uint8), np.array([[3, 255]], np.uint8), np.array([[3, 255]], np.uint8)),
        (spaces.Box(-1, 1, ()), np.float32(0.5), np.array([0.5], np.float32)),
        (spaces.Discrete(3), 1, np.array([0, 1, 0], np.float32)),
        (spaces.Discrete(3, start=5), 7, np.array([0, 0, 1], np.float32)),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 2]), np.array([0, 1, 0, 0, 1], np.float32)),
        (spaces.MultiBinary(3), np.array([1, 0, 1], np.int8), np.array([1, 0, 1], np.float32)),
    ],
)
def test_an_observation_becomes_one_array(space: Any, raw: Any, expected: Any) -> None:
    codec = ObsCodec(space)
    row = codec.encode(raw)
    assert isinstance(row, np.ndarray)
    assert row.dtype == expected.dtype == codec.dtype
    assert row.shape == expected.shape == codec.shape
    assert np.array_equal(row, expected)


def test_a_dict_becomes_one_array_per_entry_without_its_action_mask() -> None:
    space = spaces.Dict(
        image=spaces.Box(0, 255, (2, 2), np.uint8), index=spaces.Discrete(2), action_mask=spaces.MultiBinary(4)
    )
    codec = ObsCodec(space)
    raw = {"image": np.full((2, 2), 7, np.uint8), "index": 1, "action_mask": np.ones(4, np.int8)}
    row = codec.encode(raw)
    assert isinstance(row, dict)
    assert codec.masked
    assert codec.shape == {"image": (2, 2), "index": (2,)}
    assert codec.dtype == {"image": np.uint8, "index": np.float32}
    assert row["image"].tolist() == [[7, 7], [7, 7]]
    assert row["index"].tolist() == [0, 1]


def test_a_tuple_becomes_a_dict_with_numbered_keys() -> None:
    codec = ObsCodec(spaces.Tuple((spaces.Discrete(2), spaces.Box(-1, 1, (1,)))))
    row = codec.encode((0, np.array([0.25], np.float32)))
    assert isinstance(row, dict)
    assert {key: value.tolist() for key, value in row.items()} == {"0": [1, 0], "1": [0.25]}


@pytest.mark.parametrize("space", [spaces.Text(5), spaces.Sequence(spaces.Discrete(2)), spaces.Dict(a=spaces.Text(5))])
def test_an_observation_space_without_arrays_is_named(space: Any) -> None:
    with pytest.raises(SpecError, match=r"env.name: observation space (Text|Sequence).* not supported. Allowed: Box"):
        ObsCodec(space)


def test_a_dict_with_nothing_but_a_mask_is_refused() -> None:
    with pytest.raises(SpecError, match="holds no observation"):
        ObsCodec(spaces.Dict(action_mask=spaces.MultiBinary(2)))


@pytest.mark.parametrize(
    ("space", "expected", "mask"),
    [
        (spaces.Discrete(3, start=5), ("discrete", 3, ()), 3),
        (spaces.Box(-1, 1, (2,)), ("continuous", 2, ()), 0),
        (spaces.Box(-1, 1, (2, 3)), ("continuous", 6, ()), 0),
        (spaces.MultiDiscrete([2, 3]), ("multi_discrete", 2, (2, 3)), 5),
        (spaces.MultiBinary(4), ("multi_binary", 4, ()), 0),
    ],
)
def test_an_action_space_has_a_kind_and_a_size(space: Any, expected: Any, mask: int) -> None:
    assert action_size(space) == expected
    assert mask_size(space) == mask


@pytest.mark.parametrize(
    "space", [spaces.Text(5), spaces.Dict(a=spaces.Discrete(2)), spaces.MultiDiscrete(np.array([[2], [3]]))]
)
def test_an_unsupported_action_space_is_named(space: Any) -> None:
    with pytest.raises(SpecError, match=r"(?s)env.name: action space .* not supported. Allowed: Discrete, Box"):
        action_size(space)


def test_masks_of_components_are_joined() -> None:
    assert mask_row((np.array([1, 0], np.int8), np.array([0, 1, 1], np.int8))).tolist() == [
        True,
        False,
        False,
        True,
        True,
    ]
    assert mask_row(np.array([1, 0], np.int8)).dtype == bool


def test_spaces_say_what_an_agent_needs() -> None:
    found = spaces_of(spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.MultiDiscrete([2, 3]), 8)
    assert (found.obs_shape, found.obs_dtype, found.num_envs) == ((4, 84, 84), np.dtype(np.uint8), 8)
    assert (found.action_kind, found.action_dim, found.nvec) == ("multi_discrete", 2, (2, 3))
