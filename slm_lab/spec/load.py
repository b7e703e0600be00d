"""From a spec file, or a mapping, to a frozen Spec: found, read, overridden, brought up to date, checked."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from slm_lab.lib.errors import LabError, SpecError, hint
from slm_lab.spec.env_names import update_env_name
from slm_lab.spec.legacy import modernise
from slm_lab.spec.modes import for_mode
from slm_lab.spec.overrides import RECORDED, apply, refuse_leftovers
from slm_lab.spec.parse import parse
from slm_lab.spec.schema import Spec
from slm_lab.spec.settings import Setting, env_suffix, parse_settings
from slm_lab.spec.text import read
from slm_lab.spec.tree import Tree, copied, text_of

__all__ = ["Loaded", "difference", "dump", "find", "for_mode", "from_mapping", "load", "spec_names"]

_PACKAGED = Path(__file__).parent
_SUFFIXES = (".json", ".yaml", ".yml")


@dataclass(frozen=True)
class Loaded:
    """A spec, and lines for the log: what is odd about it, such as keys that nothing reads, and what -s changed."""

    spec: Spec
    notes: list[str]
    applied: list[str]


def find(file: str | Path) -> Path:
    """The spec file of that name: as given, else among the packaged specs, with or without `slm_lab/spec/`."""
    given = Path(file)
    inner = Path(*given.parts[2:]) if given.parts[:2] == ("slm_lab", "spec") else given
    candidates = [given, _PACKAGED / given, _PACKAGED / inner]
    for path in candidates:
        if os.path.isfile(path):
            return path
    folder = next((path for path in candidates if os.path.isdir(path)), None)
    if folder is not None:
        raise LabError(f"{file}: a folder; give one spec file. In it: {', '.join(_spec_files(folder)) or 'none'}.")
    near = _near(given)
    raise LabError(f"{file}: no such spec file, here or among the packaged specs.{near}")


def _near(given: Path) -> str:
    """Spec files whose name is like the given one: beside it, and packaged."""
    files = [str(given.parent / name) for name in _spec_files(given.parent, "*")] + _spec_files(_PACKAGED)
    names = get_close_matches(given.name, {Path(file).name for file in files}, n=3)
    near = [file for name in names for file in files if Path(file).name == name]
    return f" Near: {', '.join(near)}." if near else ""


def _spec_files(folder: Path, pattern: str = "**/*") -> list[str]:
    """Spec files in a folder, relative to it."""
    if not os.path.isdir(folder):
        return []
    return sorted(str(path.relative_to(folder)) for path in folder.glob(pattern) if path.suffix in _SUFFIXES)


def spec_names(file: str | Path) -> list[str]:
    """Names in a spec file that can be run."""
    return _runnable(read(find(file)))


def _runnable(entries: Mapping[str, Any]) -> list[str]:
    """Names of specs: helpers start with `_` or have no agent."""
    return [
        name
        for name, entry in entries.items()
        if isinstance(name, str) and not name.startswith("_") and isinstance(entry, dict) and "agent" in entry
    ]


def load(file: str | Path, name: str, sets: Sequence[str] = ()) -> Loaded:
    """One spec of a file, with `-s` texts applied."""
    path = find(file)
    entries = read(path)
    if name not in entries or name.startswith("_"):
        names = _runnable(entries)
        known = f"Known: {', '.join(names)}." if names else "It holds none."
        raise SpecError(f"{path}: no spec {name!r} to run.{hint(name, names)} {known}")
    try:
        return from_mapping(entries[name], name, sets)
    except SpecError as error:
        raise SpecError(f"{path}, {name}:\n{error}") from None


def from_mapping(data: Mapping[str, Any], name: str, sets: Sequence[str] = ()) -> Loaded:
    """One spec given as a mapping, with `-s` texts applied."""
    if not isinstance(data, Mapping):
        raise SpecError(f"{name}: expected a mapping with agent, env and meta, got a {type(data).__name__}.")
    settings = parse_settings(sets)
    notes, applied = list[str](), list[str]()
    try:
        tree: Tree = copied(data)
    except RecursionError:
        raise SpecError(f"{name}: nested too deep, or it holds itself.") from None
    modernise(tree, notes)
    tree = apply(tree, settings, applied)
    modernise(tree, notes)  # an override may bring an older form too
    refuse_leftovers(tree)
    update_env_name(tree, notes)
    _record(tree, settings)
    tree["name"] = name + env_suffix(settings)
    return Loaded(parse(Spec, tree, "", notes), notes, applied)


def _record(tree: Tree, settings: Iterable[Setting]) -> None:
    """Keep the overrides with the spec, after those it was saved with."""
    meta = tree.get("meta")
    if isinstance(meta, dict) and isinstance(meta.setdefault("overrides", []), list):
        meta["overrides"] += [str(setting) for setting in settings]


def dump(spec: Spec) -> dict[str, Any]:
    """The spec as JSON can hold it, defaults included; reads back as an equal one."""
    return spec.model_dump(mode="json")


def difference(old: Spec, new: Spec) -> list[str]:
    """A line `path: old -> new` for each value that differs, but for the search space and what runs record."""
    return list(_lines(_compared(old), _compared(new), ""))


def _compared(spec: Spec) -> dict[str, Any]:
    plain = dump(spec)
    plain["meta"] = {key: value for key, value in plain["meta"].items() if key not in RECORDED}
    return {key: value for key, value in plain.items() if key != "search"}


def _lines(old: Any, new: Any, path: str) -> Iterable[str]:
    """Differences below a path; lists are one value unless they hold mappings."""
    if _nested(old) and _nested(new) and len(old) == len(new):
        old, new = ({str(index): item for index, item in enumerate(side)} for side in (old, new))
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            below = f"{path}.{key}".lstrip(".")
            if key in old and key in new:
                yield from _lines(old[key], new[key], below)
            else:
                yield f"{below}: {_shown(old, key)} -> {_shown(new, key)}"
    elif old != new:
        yield f"{path}: {text_of(old)} -> {text_of(new)}"


def _nested(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(item, dict) for item in value)


def _shown(side: Mapping[str, Any], key: str) -> str:
    return text_of(side[key]) if key in side else "unset"
