from __future__ import annotations

import numpy as np
import pytest
import torch

from slm_lab.agent.memory import ring as ring_module
from slm_lab.agent.memory.ring import Layout, Ring
from slm_lab.types import Array

LAYOUT: Layout = {"x": ((2,), np.dtype(np.float32)), "pixel": ((), np.dtype(np.uint8))}
ROW = 3 * (2 * 4 + 1)  # bytes of a row of three slots


def row(number: int, width: int) -> dict[str, Array]:
    """Values that tell row and slot apart; a third has no short binary form."""
    slot = number * width + np.arange(width)
    return {"x": np.stack([slot / 3, -slot], 1).astype(np.float32), "pixel": (slot % 256).astype(np.uint8)}


def rows(first: int, stop: int, width: int) -> dict[str, Array]:
    parts = [row(number, width) for number in range(first, stop)]
    return {name: np.concatenate([part[name] for part in parts]) for name in LAYOUT}


def filled(written: int, capacity: int, width: int) -> Ring:
    ring = Ring(LAYOUT, capacity, width)
    for number in range(written):
        ring.write(row(number, width))
    return ring


def taken(ring: Ring, number: int) -> dict[str, Array]:
    start = ring.slot(number)
    return {name: x.numpy() for name, x in ring.take(torch.arange(start, start + ring.width)).items()}


def assert_holds(ring: Ring, first: int, stop: int) -> None:
    assert (ring.first, ring.written) == (first, stop)
    for number in range(first, stop):
        for name, expected in row(number, ring.width).items():
            assert np.array_equal(taken(ring, number)[name], expected)


def test_columns_have_the_type_and_shape_they_were_asked_for() -> None:
    ring = Ring(LAYOUT, rows=5, width=3)
    assert ring.slots == 15
    assert ring.columns["x"].shape == (15, 2)
    assert ring.columns["x"].dtype == torch.float32
    assert ring.columns["pixel"].dtype == torch.uint8


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize(("written", "first"), [(0, 0), (1, 0), (4, 0), (5, 1), (11, 7)])
def test_the_newest_rows_take_the_place_of_the_oldest(written: int, first: int, width: int) -> None:
    assert_holds(filled(written, 4, width), first, written)


def test_what_is_taken_is_a_copy() -> None:
    ring = filled(4, 4, 1)
    before = ring.take(torch.tensor([0]))["x"]
    ring.write(row(4, 1))
    assert before.tolist() == [[0, 0]]


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("count", [1, 3, 4, 9])
def test_many_rows_at_once_are_the_same_as_one_after_the_other(count: int, width: int) -> None:
    ring = filled(2, 4, width)
    slots = ring.extend(rows(2, 2 + count, width))
    assert_holds(ring, max(0, count - 2), 2 + count)
    kept = range(max(2, count - 2), 2 + count)  # those of the new rows that are still there
    assert slots.tolist() == [ring.slot(number) + k for number in kept for k in range(width)]


@pytest.mark.parametrize("piece", [1, 2 * ROW, 1000 * ROW])  # less than a row, two rows, all
@pytest.mark.parametrize(("written", "first"), [(3, 0), (11, 4), (14, 10)])
def test_saved_rows_come_back_to_their_slots(
    monkeypatch: pytest.MonkeyPatch, written: int, first: int, piece: int
) -> None:
    monkeypatch.setattr(ring_module, "PIECE", piece)
    ring, other = filled(written, 7, 3), filled(20, 7, 3)  # the other has held other rows
    saved = ring.rows_from("ring", first)
    assert (saved.name, saved.start, saved.stop) == ("ring", first, written)
    other.load_rows(saved)
    assert other.written == written
    for number in range(first, written):
        for name, expected in row(number, 3).items():
            assert np.array_equal(taken(other, number)[name], expected)


def test_a_piece_is_one_stretch_of_the_ring_and_no_longer_than_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_module, "PIECE", 2 * ROW)
    pieces = list(filled(11, 7, 3).rows_from("ring", 4).parts(4))
    # two rows a piece; rows 4 to 6 stand at the end of the ring, 7 to 10 at its front
    assert [(start, len(piece["x"]) // 3) for start, piece in pieces] == [(4, 2), (6, 1), (7, 2), (9, 2)]


def test_rows_already_saved_can_be_left_out() -> None:
    pieces = list(filled(11, 7, 3).rows_from("ring", 4).parts(9))
    assert [(start, len(piece["x"]) // 3) for start, piece in pieces] == [(9, 2)]
    assert np.array_equal(pieces[0][1]["x"], rows(9, 11, 3)["x"])


def test_a_larger_ring_takes_over_the_rows_of_a_smaller() -> None:
    small, large = filled(11, 4, 1), Ring(LAYOUT, 8)
    large.load_rows(small.rows_from("ring", small.first))
    large.extend(rows(11, 15, 1))
    assert_holds(large, 7, 15)
