"""Files are whole or not there, and JSON is strict."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slm_lab.lib.errors import LabError
from slm_lab.lib.io import make_folder, plain, read_json, sync, write_bytes, write_json, write_text


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def refuse(*arguments: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_written_file_has_its_bytes_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    write_bytes(tmp_path / "a", b"\x00\xff")
    write_text(tmp_path / "b", "é\n")
    assert (tmp_path / "a").read_bytes() == b"\x00\xff"
    assert (tmp_path / "b").read_bytes() == "é\n".encode()
    assert names(tmp_path) == ["a", "b"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    write_bytes(tmp_path / "a", b"old")
    monkeypatch.setattr(os, step, refuse)
    with pytest.raises(OSError, match="No space left"):
        write_bytes(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


def test_an_interrupt_in_mid_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_bytes(tmp_path / "a", b"old")

    def interrupt(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_bytes(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


def test_the_content_reaches_the_disk_before_the_name_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = list[str]()

    def noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            order.append(name)
            return function(*arguments)

        return call

    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, noted(name, vars(os)[name]))
    write_bytes(tmp_path / "a", b"x")
    assert order == ["fsync", "replace", "fsync"]  # content, name, and then the folder that holds the name


def test_sync_takes_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    sync(tmp_path / "a")
    sync(tmp_path)
    with pytest.raises(FileNotFoundError):
        sync(tmp_path / "b")


def test_json_has_no_literals_that_json_does_not_know(tmp_path: Path) -> None:
    value = {"nan": math.nan, "inf": [math.inf, -math.inf], "half": np.float32(0.5), 3: np.arange(2), "t": (True, None)}
    write_json(tmp_path / "a.json", value)

    def refuse_literal(literal: str) -> None:
        raise AssertionError(literal)

    got = json.loads((tmp_path / "a.json").read_text(), parse_constant=refuse_literal)
    assert got == {"nan": None, "inf": [None, None], "half": 0.5, "3": [0, 1], "t": [True, None]}


def test_plain_keeps_numbers_as_what_they_are() -> None:
    got = plain([np.int64(2**60), np.bool_(True), 1.0, 1, {2}, Path("a"), np.array(math.nan)])
    assert got == [2**60, True, 1.0, 1, [2], "a", None]
    assert [type(item) for item in got[:4]] == [int, bool, float, int]


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b""])
def test_what_is_no_json_is_named_in_the_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(LabError, match=r"a\.json: cannot be read as JSON: "):
        read_json(tmp_path / "a.json")


def test_a_missing_file_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"none\.json: cannot be read as JSON: .*No such file"):
        read_json(tmp_path / "none.json")


def test_a_folder_below_a_file_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(LabError, match=r"file/data: cannot create this folder: Not a directory$"):
        make_folder(tmp_path / "file" / "data")
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
