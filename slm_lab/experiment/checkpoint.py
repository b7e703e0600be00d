"""Checkpoints: one safetensors file with every part's state, whole or not there, checked when read, nothing unpickled.

Arrays and tensors are stored as tensors; all else is JSON in the file's metadata, with a format version and a hash
over both. Rows go to a store of their own, and the metadata says what it needs to find them again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from loguru import logger
from safetensors import SafetensorError
from safetensors.numpy import load as from_bytes
from safetensors.numpy import save as to_bytes
from torch import Tensor

from slm_lab.lib.errors import LabError
from slm_lab.lib.io import write_bytes
from slm_lab.types import Array, Rows, State, Stateful

FORMAT = 1
KEEP = 2  # a damaged file has a predecessor


class CheckpointError(LabError):
    """A checkpoint that cannot be used."""


class RowStore(Protocol):
    """Where rows are kept: `put` gives plain JSON, from which `get` brings the same rows back, checked."""

    def put(self, rows: Rows) -> Any: ...
    def get(self, name: str, place: Any) -> Rows: ...


def gather(parts: Mapping[str, Stateful]) -> State:
    """The state of every part."""
    return {name: part.state_dict() for name, part in parts.items()}


def scatter(state: State, parts: Mapping[str, Stateful]) -> None:
    """Give every part its state back."""
    for name, part in parts.items():
        part.load_state_dict(state[name])


def save(path: Path, state: State, store: RowStore | None = None) -> str:
    """Write a state atomically, its rows to the store first; the hash of the file's content."""
    arrays, rows = dict[str, Array](), dict[str, Rows]()
    text = json.dumps(_encode(state, arrays, rows))
    if rows and store is None:
        raise TypeError(f"a checkpoint cannot hold Rows ({', '.join(rows)}) without a store for them")
    places = json.dumps({name: store.put(each) for name, each in rows.items()}) if store and rows else ""
    if not arrays:
        arrays["empty"] = np.zeros(1, np.uint8)  # safetensors has no files without tensors
    sha256 = _digest(text + places, arrays)
    about = {"format": str(FORMAT), "state": text, "sha256": sha256} | ({"rows": places} if places else {})
    write_bytes(path, to_bytes(arrays, metadata=about))
    return sha256


def load(path: Path, store: RowStore | None = None, sha256: str | None = None) -> State:
    """Read a state back; a file that is damaged, foreign, from another format or not `sha256` is a CheckpointError."""
    about, arrays = _read(path)
    if sha256 not in (None, about["sha256"]):
        raise CheckpointError(f"{path}: not the file that was saved: its hash is another.")
    state: State = _decode(json.loads(about["state"]), arrays, _rows(path, about, store))
    return state


def row_places(path: Path) -> dict[str, Any]:
    """What a checkpoint says of its rows, by name."""
    places: dict[str, Any] = json.loads(_read(path)[0].get("rows", "{}"))
    return places


def _read(path: Path) -> tuple[dict[str, str], dict[str, Array]]:
    """A checkpoint's metadata and arrays, checked."""
    try:
        content = path.read_bytes()
        arrays, about = from_bytes(content), _metadata(content)
    except (OSError, SafetensorError, ValueError, KeyError) as error:  # KeyError: a type that numpy does not have
        raise CheckpointError(f"{path}: damaged or not a checkpoint: {error}.") from None
    if about.get("format") != str(FORMAT):
        raise CheckpointError(f"{path}: checkpoint format {about.get('format')!r}; this version reads {FORMAT}.")
    if about.get("sha256") != _digest(about.get("state", "") + about.get("rows", ""), arrays):
        raise CheckpointError(f"{path}: damaged: its content does not match its hash.")
    return about, arrays


def _rows(path: Path, about: Mapping[str, str], store: RowStore | None) -> dict[str, Rows]:
    """A checkpoint's rows by name."""
    places = json.loads(about.get("rows", "{}"))
    if places and store is None:
        raise TypeError(f"{path} holds Rows ({', '.join(places)}): it cannot be loaded without a store for them")
    try:
        return {name: store.get(name, place) for name, place in places.items()} if store else {}
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from None


def load_newest(paths: list[Path], store: RowStore | None = None) -> State | None:
    """The first of `paths`, newest first, that can be read; None where there are none. Says which it left out."""
    for left, path in zip(range(len(paths) - 1, -1, -1), paths, strict=True):
        try:
            return load(path, store)
        except CheckpointError as error:
            if not left:
                hope = "No checkpoint can be read: delete them to start this session from the beginning."
                raise CheckpointError(f"{error} {hope}") from None
            logger.warning(f"{error} Using the checkpoint before it.")
    return None


def prune(paths: list[Path], current: Path) -> list[Path]:
    """Of `paths`, newest first, keep the one just written and its predecessor; later ones could not be read.

    Gives the predecessor, where there is one.
    """
    place = paths.index(current)
    for path in (*paths[:place], *paths[place + KEEP :]):
        path.unlink(missing_ok=True)
    return paths[place + 1 : place + KEEP]


def _encode(value: Any, arrays: dict[str, Array], rows: dict[str, Rows]) -> Any:
    """Plain JSON for a state; arrays and rows move to `arrays` and `rows` and leave a reference."""
    if isinstance(value, Tensor | np.ndarray):
        key = str(len(arrays))
        tensor = isinstance(value, Tensor)
        arrays[key] = np.ascontiguousarray(value.detach().cpu().numpy() if isinstance(value, Tensor) else value)
        # ascontiguousarray makes a 0-d array 1-d: the shape is kept here
        return {"~tensor" if tensor else "~array": key, "shape": list(value.shape)}
    if isinstance(value, Rows):
        if value.name in rows:
            raise ValueError(f"two memories save their rows as {value.name!r}: the names must differ")
        rows[value.name] = value
        return {"~rows": value.name}
    if isinstance(value, Mapping):
        return {"~dict": [[_encode(k, arrays, rows), _encode(v, arrays, rows)] for k, v in value.items()]}
    if isinstance(value, list | tuple):
        return {"~tuple" if isinstance(value, tuple) else "~list": [_encode(item, arrays, rows) for item in value]}
    if isinstance(value, np.generic):
        return _encode(value.item(), arrays, rows)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a checkpoint cannot hold {type(value).__name__}: {value!r}")


def _decode(value: Any, arrays: dict[str, Array], rows: dict[str, Rows]) -> Any:
    """The state that `_encode` took apart."""
    if not isinstance(value, dict):
        return value
    (kind, content), *_ = value.items()
    if kind in ("~tensor", "~array"):
        array = arrays[content].reshape(value["shape"]).copy()
        return torch.from_numpy(array) if kind == "~tensor" else array
    if kind == "~rows":
        return rows[content]
    if kind == "~dict":
        return {_decode(k, arrays, rows): _decode(v, arrays, rows) for k, v in content}
    items = [_decode(item, arrays, rows) for item in content]
    return tuple(items) if kind == "~tuple" else items


def _digest(text: str, arrays: Mapping[str, Array]) -> str:
    digest = hashlib.sha256(text.encode())
    for key in sorted(arrays):
        digest.update(f"{key}{arrays[key].dtype}{arrays[key].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[key]).data)
    return digest.hexdigest()


def _metadata(content: bytes) -> dict[str, str]:
    """The metadata in a safetensors file's header: an 8-byte length, then JSON."""
    size = int.from_bytes(content[:8], "little")
    about: dict[str, str] = json.loads(content[8 : 8 + size]).get("__metadata__", {})
    return about
