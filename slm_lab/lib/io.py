"""Files that are whole or not there: written to a temporary name, flushed to disk, renamed."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from slm_lab.lib.errors import LabError


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically and durably: a kill at any moment leaves the old file or the new one."""
    temporary = path.with_name(f"{path.name}.tmp{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Make what was written to a file, or renamed in a folder, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """JSON with two spaces; numpy becomes plain, NaN and infinities become null."""
    write_text(path, json.dumps(plain(value), indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise LabError(f"{path}: cannot be read as JSON: {error}") from None


def plain(value: Any) -> Any:
    """The same value made of dicts, lists, strings, finite numbers, booleans and None."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value)


def make_folder(path: Path) -> None:
    """Create a folder and its parents, or say in one line why not."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"{path}: cannot create this folder: {error.strerror or error}") from None
