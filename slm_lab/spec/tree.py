"""A spec as a tree of plain values: copied, walked, and reached by dotted paths."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from slm_lab.lib.errors import SpecError, hint
from slm_lab.spec.parse import show

Tree = dict[str, Any]
Path = tuple[str | int, ...]


def dotted(path: Path) -> str:
    return ".".join(str(part) for part in path)


def text_of(value: Any) -> str:
    """A value as notes show it."""
    return json.dumps(value, ensure_ascii=False)


def copied(value: Any, path: Path = ()) -> Any:
    """A deep copy made of dicts, lists, text, finite numbers, booleans and None; a SpecError for anything else."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, list | tuple):
        return [copied(item, (*path, index)) for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise SpecError(f"{dotted(path)}: keys must be text, got {show(key)}.".lstrip(": "))
        return {key: copied(item, (*path, key)) for key, item in value.items()}
    raise SpecError(
        f"{dotted(path)}: got {show(value)}; allowed: mappings, lists, text, finite numbers, booleans and null."
    )


def children(node: Any) -> Iterator[tuple[str | int, Any]]:
    """Keys or indices of a mapping or list with their values; nothing for a scalar."""
    if isinstance(node, dict):
        yield from node.items()
    elif isinstance(node, list):
        yield from enumerate(node)


def walk(node: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value below a node with its path, parents first."""
    for key, item in children(node):
        yield (*path, key), item
        yield from walk(item, (*path, key))


def locate(node: Any, parts: Sequence[str], path: Path = ()) -> tuple[Path, Any, Any]:
    """Where a path ends: in full, its parent, and its last part, which may be new if the parent is a mapping."""
    rest = ".".join(parts)  # keys of a search space hold dots themselves
    if isinstance(node, dict) and (len(parts) == 1 or rest in node):
        return (*path, rest), node, rest
    key = _step(node, parts[0], dotted(path) or "the spec")
    if len(parts) == 1:
        return (*path, key), node, key
    return locate(node[key], parts[1:], (*path, key))


def _step(node: Any, part: str, where: str) -> Any:
    """The key or index of a path's next part, which must exist."""
    if isinstance(node, dict):
        if part in node:
            return part
        raise SpecError(f"{where}: no key {part!r}.{hint(part, node)} Known: {', '.join(node)}.")
    if isinstance(node, list):
        if part.isdecimal() and int(part) < len(node):
            return int(part)
        raise SpecError(f"{where}: no entry {part!r} in a list of {len(node)}.")
    raise SpecError(f"{where}: no key {part!r} in {show(node)}.")
