"""Checkpoints: everything comes back, nothing damaged or hostile gets in, and a failed write costs nothing."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import pickle
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loguru import logger
from run_helpers import assert_equal
from safetensors import SafetensorError
from safetensors.numpy import save as to_bytes

from slm_lab.experiment import checkpoint
from slm_lab.experiment.checkpoint import CheckpointError, gather, load, load_newest, prune, save, scatter
from slm_lab.lib.rng import Rng
from slm_lab.types import Clock, Rows

STATE: dict[Any, Any] = {
    "tensor": torch.arange(6, dtype=torch.float32).view(2, 3).t(),  # not contiguous
    "scalar tensor": torch.tensor(2.5, dtype=torch.float64),
    "half": torch.tensor([1.5, -0.0], dtype=torch.float16),
    "none left": torch.empty(0, 3),
    "flags": np.array([[True, False]]),
    "image": np.arange(12, dtype=np.uint8).reshape(3, 4)[:, ::2],
    "doubles": np.array([math.pi, math.nan, math.inf, -math.inf, -0.0, 5e-324]),
    "whole": np.array(2**62, np.int64),
    "zero-d": np.array(1.5),
    "numbers": [0, -1, 2**200, 1e308, 5e-324, True, False, None, "text", "", "é\u2028\x00", "~dict"],
    "odd": [math.inf, -math.inf],
    "nested": {"empty": {}, "list": [], "tuple": (), "deep": [{"a": ({"b": [()]},)}]},
    3: "an int key",
    (1, "x"): "a tuple key",
    "7": "a text key like a number",
    7: "the number itself",
    "~tensor": "a key like our own marks",
}


def damaged(content: bytes, position: int, bit: int = 0) -> bytes:
    return content[:position] + bytes([content[position] ^ 1 << bit]) + content[position + 1 :]


@pytest.fixture
def warnings() -> Any:
    """Log lines of warnings."""
    lines = list[str]()
    sink = logger.add(lambda line: lines.append(line.record["message"]), level="WARNING")
    yield lines
    logger.remove(sink)


def test_every_kind_of_value_comes_back_bit_for_bit(tmp_path: Path) -> None:
    save(tmp_path / "a", STATE)
    assert_equal(load(tmp_path / "a"), STATE)


def test_nan_and_numpy_scalars_come_back_as_plain_numbers(tmp_path: Path) -> None:
    save(tmp_path / "a", {"nan": math.nan, "float": np.float32(0.1), "int": np.int64(3), "bool": np.bool_(True)})
    got = load(tmp_path / "a")
    assert math.isnan(got["nan"])
    assert got["float"] == float(np.float32(0.1))
    assert (type(got["float"]), type(got["int"]), type(got["bool"])) == (float, int, bool)


def test_a_state_without_arrays_comes_back(tmp_path: Path) -> None:
    for state in ({}, {"a": 1}):
        save(tmp_path / "a", state)
        assert load(tmp_path / "a") == state


def test_what_comes_back_can_be_written_to(tmp_path: Path) -> None:
    save(tmp_path / "a", {"array": np.zeros(2), "tensor": torch.zeros(2)})
    got = load(tmp_path / "a")
    got["array"][0], got["tensor"][0] = 1, 1
    assert (got["array"].tolist(), got["tensor"].tolist()) == ([1, 0], [1, 0])


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", 1j, lambda: None, np.array([object()])])
def test_what_cannot_be_held_is_refused_when_saved_and_nothing_is_written(tmp_path: Path, value: Any) -> None:
    with pytest.raises((TypeError, SafetensorError)):
        save(tmp_path / "a", {"x": [value]})
    assert list(tmp_path.iterdir()) == []


def test_rows_are_refused_where_there_is_no_store_for_them(tmp_path: Path) -> None:
    rows = Rows("replay", 0, 0, lambda first: iter(()))
    with pytest.raises(TypeError, match=r"cannot hold Rows \(replay\) without a store"):
        save(tmp_path / "a", {"memory": [rows]})
    assert list(tmp_path.iterdir()) == []


class NoRows:
    """A store for rows that are none."""

    def put(self, rows: Rows) -> list[str]:
        return [rows.name]

    def get(self, name: str, place: Any) -> Rows:
        assert place == [name]
        return Rows(name, 0, 0, lambda first: iter(()))


def test_rows_stand_where_they_stood_and_need_their_store_again(tmp_path: Path) -> None:
    rows = Rows("replay", 0, 0, lambda first: iter(()))
    save(tmp_path / "a", {"memory": [rows, 1]}, NoRows())
    got = load(tmp_path / "a", NoRows())
    assert (got["memory"][0].name, got["memory"][1]) == ("replay", 1)
    with pytest.raises(TypeError, match=r"a holds Rows \(replay\): it cannot be loaded without a store"):
        load(tmp_path / "a")


def test_rows_of_two_memories_with_one_name_are_refused(tmp_path: Path) -> None:
    rows = Rows("replay", 0, 0, lambda first: iter(()))
    with pytest.raises(ValueError, match="two memories save their rows as 'replay'"):
        save(tmp_path / "a", {"one": rows, "other": rows}, NoRows())


def test_a_file_that_is_whole_but_another_is_refused(tmp_path: Path) -> None:
    first = save(tmp_path / "a", {"frame": 1})
    assert load(tmp_path / "a", sha256=first) == {"frame": 1}
    save(tmp_path / "a", {"frame": 2})
    with pytest.raises(CheckpointError, match="a: not the file that was saved"):
        load(tmp_path / "a", sha256=first)


def test_gather_and_scatter_move_the_state_of_every_part() -> None:
    clock, rng = Clock(9), Rng(2)
    scatter(gather({"clock": Clock(9, frame=4), "rng": Rng(1)}), {"clock": clock, "rng": rng})
    assert clock == Clock(9, frame=4)
    assert_equal(rng.state_dict(), Rng(1).state_dict())


# damage


def content_of(path: Path) -> tuple[bytes, int]:
    """A checkpoint's bytes and where its tensors start."""
    save(path, {"a": np.arange(50.0), "b": [1, {"c": torch.ones(3)}], "text": "x" * 40})
    content = path.read_bytes()
    return content, 8 + struct.unpack("<Q", content[:8])[0]


def test_a_file_cut_off_anywhere_is_detected(tmp_path: Path) -> None:
    content, body = content_of(tmp_path / "a")
    lengths = {0, 1, 7, 8, 9, body - 1, body, body + 1, len(content) - 1, *range(0, len(content), 37)}
    for length in lengths:
        (tmp_path / "b").write_bytes(content[:length])
        with pytest.raises(CheckpointError, match=r"b: damaged or not a checkpoint"):
            load(tmp_path / "b")


def test_bytes_after_the_end_are_detected(tmp_path: Path) -> None:
    content, _ = content_of(tmp_path / "a")
    (tmp_path / "b").write_bytes(content + b"\x00" * 8)
    with pytest.raises(CheckpointError):
        load(tmp_path / "b")


def test_a_flipped_bit_anywhere_is_detected_or_changes_nothing(tmp_path: Path) -> None:
    content, _ = content_of(tmp_path / "a")
    expected, rng = load(tmp_path / "a"), random.Random(0)
    harmless = 0
    for position in range(len(content)):  # length, header, metadata, tensors
        (tmp_path / "b").write_bytes(damaged(content, position, rng.randrange(8)))
        try:
            assert_equal(load(tmp_path / "b"), expected)
            harmless += 1
        except CheckpointError:
            pass
    assert harmless <= 2  # the case of a letter in an escape, at most


@pytest.mark.parametrize("where", ["header", "tensors"])
def test_a_damaged_checkpoint_gives_way_to_its_predecessor_with_a_message(
    tmp_path: Path, warnings: list[str], where: str
) -> None:
    content, body = content_of(tmp_path / "new")
    save(tmp_path / "old", {"frame": 1})
    (tmp_path / "new").write_bytes(damaged(content, 40 if where == "header" else body + 3))
    assert load_newest([tmp_path / "new", tmp_path / "old"]) == {"frame": 1}
    assert len(warnings) == 1
    assert "new: " in warnings[0]
    assert warnings[0].endswith("Using the checkpoint before it.")


def test_the_newest_readable_checkpoint_is_taken_without_a_word(tmp_path: Path, warnings: list[str]) -> None:
    save(tmp_path / "new", {"frame": 2})
    (tmp_path / "old").write_bytes(b"damaged")
    assert load_newest([tmp_path / "new", tmp_path / "old"]) == {"frame": 2}
    assert load_newest([]) is None
    assert warnings == []


def test_when_no_checkpoint_can_be_read_nothing_is_started_anew(tmp_path: Path, warnings: list[str]) -> None:
    for name in ("new", "old"):
        (tmp_path / name).write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match=r"old: damaged .* delete them to start this session from the beginning"):
        load_newest([tmp_path / "new", tmp_path / "old"])


# hostile and foreign content


class Bomb:
    def __reduce__(self) -> Any:
        return os.mkdir, (os.environ["BOMB"],)


@pytest.mark.parametrize("form", ["pickle", "torch", "text in metadata"])
def test_nothing_in_a_checkpoint_is_ever_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setenv("BOMB", str(tmp_path / "exploded"))
    path = tmp_path / "a"
    if form == "pickle":
        path.write_bytes(pickle.dumps(Bomb()))
    elif form == "torch":
        torch.save({"x": Bomb()}, path)
    else:
        state = json.dumps({"~object": f"os.mkdir({str(tmp_path / 'exploded')!r})"})
        path.write_bytes(to_bytes({"0": np.zeros(1)}, metadata={"format": "1", "state": state, "sha256": "0"}))
    with pytest.raises(CheckpointError):
        load(path)
    assert not (tmp_path / "exploded").exists()


def header(entries: dict[str, Any], body: bytes = b"") -> bytes:
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + body


FOREIGN = {
    "no metadata": to_bytes({"weight": np.zeros(3)}),
    "metadata of others": to_bytes({"weight": np.zeros(3)}, metadata={"format": "pt"}),
    "format 2": to_bytes({"0": np.zeros(3)}, metadata={"format": "2", "state": "{}", "sha256": ""}),
    "no state": to_bytes({"0": np.zeros(3)}, metadata={"format": "1", "sha256": ""}),
    "no hash": to_bytes({"0": np.zeros(3)}, metadata={"format": "1", "state": "{}"}),
    "bfloat16": header({"w": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}, b"\x00\x00"),
    "float8": header({"w": {"dtype": "F8_E4M3", "shape": [1], "data_offsets": [0, 1]}}, b"\x00"),
    "unknown type": header({"w": {"dtype": "X99", "shape": [1], "data_offsets": [0, 1]}}, b"\x00"),
    "a huge header": struct.pack("<Q", 2**62) + b"{}",
    "a list": header([]),  # type: ignore[arg-type]
    "numbers as metadata": header({"__metadata__": {"format": 1}}),
    "an image": b"\x89PNG\r\n\x1a\n" + bytes(100),
    "nothing": b"",
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_foreign_files_are_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"a\.safetensors: "):
        load(tmp_path / "a.safetensors")


def test_another_format_is_named_with_the_one_that_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(FOREIGN["format 2"])
    with pytest.raises(CheckpointError, match=r"checkpoint format '2'; this version reads 1\."):
        load(tmp_path / "a")


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(CheckpointError):
            load(path)


# failed writes, and what is kept


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_a_full_disk_leaves_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    save(tmp_path / "a", {"frame": 1})

    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space left"):
        save(tmp_path / "a", {"frame": 2})
    monkeypatch.undo()
    assert load(tmp_path / "a") == {"frame": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


class FullDisk(io.FileIO):
    """A file that takes the first bytes and then no more."""

    def write(self, content: Any) -> int:
        super().write(bytes(content)[:50])
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_disk_that_fills_up_in_mid_file_leaves_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "a", {"frame": 1})
    with monkeypatch.context() as patch:
        patch.setattr("slm_lab.lib.io.open", FullDisk, raising=False)
        with pytest.raises(OSError, match="No space left"):
            save(tmp_path / "a", {"frame": 2})
    assert load(tmp_path / "a") == {"frame": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_only_the_checkpoint_just_written_and_its_predecessor_are_kept(tmp_path: Path) -> None:
    paths = [tmp_path / str(frame) for frame in (50, 40, 30, 20, 10)]
    for path in paths:
        path.touch()
    assert prune(paths, tmp_path / "40") == [tmp_path / "30"]  # 50 could not be read: the session went on from 30
    assert sorted(path.name for path in tmp_path.iterdir()) == ["30", "40"]
    assert checkpoint.KEEP == 2
