"""Checkpoints: one safetensors file with every part's state, whole or not there, checked when read, nothing unpickled.

Arrays and tensors are stored as tensors; all else is JSON in the file's metadata, with a format version and a hash
over both.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from loguru import logger
from safetensors import SafetensorError
from safetensors.numpy import load as from_bytes
from safetensors.numpy import save as to_bytes
from torch import Tensor

from slm_lab.lib.errors import LabError
from slm_lab.lib.io import write_bytes
from slm_lab.types import Array, State, Stateful

FORMAT = 1
KEEP = 2  # a damaged file has a predecessor


class CheckpointError(LabError):
    """A checkpoint that cannot be used."""


def gather(parts: Mapping[str, Stateful]) -> State:
    """The state of every part."""
    return {name: part.state_dict() for name, part in parts.items()}


def scatter(state: State, parts: Mapping[str, Stateful]) -> None:
    """Give every part its state back."""
    for name, part in parts.items():
        part.load_state_dict(state[name])


def save(path: Path, state: State) -> None:
    """Write a state atomically."""
    arrays = dict[str, Array]()
    text = json.dumps(_encode(state, arrays))
    if not arrays:
        arrays["empty"] = np.zeros(1, np.uint8)  # safetensors has no files without tensors
    about = {"format": str(FORMAT), "state": text, "sha256": _digest(text, arrays)}
    write_bytes(path, to_bytes(arrays, metadata=about))


def load(path: Path) -> State:
    """Read a state back; a file that is damaged, foreign or from another format is a CheckpointError."""
    try:
        content = path.read_bytes()
        arrays, about = from_bytes(content), _metadata(content)
    except (OSError, SafetensorError, ValueError, KeyError) as error:  # KeyError: a type that numpy does not have
        raise CheckpointError(f"{path}: damaged or not a checkpoint: {error}.") from None
    if about.get("format") != str(FORMAT):
        raise CheckpointError(f"{path}: checkpoint format {about.get('format')!r}; this version reads {FORMAT}.")
    if about.get("sha256") != _digest(about.get("state", ""), arrays):
        raise CheckpointError(f"{path}: damaged: its content does not match its hash.")
    state: State = _decode(json.loads(about["state"]), arrays)
    return state


def load_newest(paths: list[Path]) -> State | None:
    """The first of `paths`, newest first, that can be read; None where there are none. Says which it left out."""
    for left, path in zip(range(len(paths) - 1, -1, -1), paths, strict=True):
        try:
            return load(path)
        except CheckpointError as error:
            if not left:
                hope = "No checkpoint can be read: delete them to start this session from the beginning."
                raise CheckpointError(f"{error} {hope}") from None
            logger.warning(f"{error} Using the checkpoint before it.")
    return None


def prune(paths: list[Path], current: Path) -> None:
    """Of `paths`, newest first, keep the one just written and its predecessor; later ones could not be read."""
    place = paths.index(current)
    for path in (*paths[:place], *paths[place + KEEP :]):
        path.unlink(missing_ok=True)


def _encode(value: Any, arrays: dict[str, Array]) -> Any:
    """Plain JSON for a state; arrays move to `arrays` and leave a reference."""
    if isinstance(value, Tensor | np.ndarray):
        key = str(len(arrays))
        tensor = isinstance(value, Tensor)
        arrays[key] = np.ascontiguousarray(value.detach().cpu().numpy() if isinstance(value, Tensor) else value)
        # ascontiguousarray makes a 0-d array 1-d: the shape is kept here
        return {"~tensor" if tensor else "~array": key, "shape": list(value.shape)}
    if isinstance(value, Mapping):
        return {"~dict": [[_encode(k, arrays), _encode(v, arrays)] for k, v in value.items()]}
    if isinstance(value, list | tuple):
        return {"~tuple" if isinstance(value, tuple) else "~list": [_encode(item, arrays) for item in value]}
    if isinstance(value, np.generic):
        return _encode(value.item(), arrays)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a checkpoint cannot hold {type(value).__name__}: {value!r}")


def _decode(value: Any, arrays: dict[str, Array]) -> Any:
    """The state that `_encode` took apart."""
    if not isinstance(value, dict):
        return value
    (kind, content), *_ = value.items()
    if kind in ("~tensor", "~array"):
        array = arrays[content].reshape(value["shape"]).copy()
        return torch.from_numpy(array) if kind == "~tensor" else array
    if kind == "~dict":
        return {_decode(k, arrays): _decode(v, arrays) for k, v in content}
    items = [_decode(item, arrays) for item in content]
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
