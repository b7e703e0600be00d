"""`-s key=value` on a spec: fills `${key}` placeholders, else sets one value, else is an error. Never ignored."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from slm_lab.lib.errors import SpecError, hint
from slm_lab.spec.parse import Model
from slm_lab.spec.schema import EnvSpec, MetaSpec
from slm_lab.spec.settings import Setting
from slm_lab.spec.text import PLACEHOLDER
from slm_lab.spec.tree import Path, Tree, copied, dotted, locate, text_of, walk

RECORDED = ("overrides", "trial", "session", "session_seed", "experiment_ts", "git_sha", "record")
"""Keys of `meta` that a run writes: no bare `-s` key means them, and no difference between specs lies in them."""

LISTED = re.compile(r"^(search\.)?(agent|env)\.0\.")
"""How SLM-Lab 4 wrote a path: `agent` and `env` were lists of one there."""

_SECTIONS: dict[str, type[Model]] = {"env": EnvSpec, "meta": MetaSpec}
_SHORTHAND = {"env": "env.name", "max_frame": "env.max_frame"}


class Change(NamedTuple):
    """One value of a spec that `-s` decided."""

    path: str
    old: str
    new: str
    flags: str

    def __str__(self) -> str:
        return f"{self.path}: {self.old} -> {self.new} ({self.flags})"


def apply(tree: Tree, settings: Sequence[Setting], applied: list[str]) -> Tree:
    """The spec with every setting in it, and a line for each value that changed."""
    names = sorted({name for _, _, name in placeholders(tree)})
    filler = _Filler({setting.key: setting for setting in settings})
    filled: Tree = filler.fill(tree, ())
    changes = {change.path: change for change in filler.changes}
    for setting in settings:
        if setting.key in filler.used:
            continue
        change = _set(filled, setting, names)
        if change.path in changes:
            raise SpecError(f"{change.path}: set twice, by {changes[change.path].flags} and by {change.flags}.")
        changes[change.path] = change
    applied.extend(str(change) for change in changes.values())
    return filled


@dataclass
class _Filler:
    """Fills placeholders, and keeps what was used where."""

    settings: Mapping[str, Setting]
    used: set[str] = field(default_factory=set)
    changes: list[Change] = field(default_factory=list)

    def fill(self, node: Any, path: Path) -> Any:
        """A copy of a node with its placeholders filled, typed where one is the whole value."""
        if isinstance(node, str):
            return self._value(node, path)
        if isinstance(node, list):
            return [self.fill(item, (*path, index)) for index, item in enumerate(node)]
        if not isinstance(node, dict):
            return node
        keys = [self._inline(key) for key in node]
        if len(set(keys)) < len(keys):
            raise SpecError(f"{dotted(path)}: two keys are the same once filled: {', '.join(node)}.")
        return {key: self.fill(item, (*path, key)) for key, item in zip(keys, node.values(), strict=True)}

    def _value(self, text: str, path: Path) -> Any:
        names = [name for name in PLACEHOLDER.findall(text) if name in self.settings]
        if not names:
            return text
        self.used.update(names)
        value = copied(self.settings[names[0]].value) if PLACEHOLDER.fullmatch(text) else self._inline(text)
        flags = ", ".join(f"-s {self.settings[name]}" for name in dict.fromkeys(names))
        self.changes.append(Change(dotted(path), text_of(text), text_of(value), flags))
        return value

    def _inline(self, text: str) -> str:
        def value(found: re.Match[str]) -> str:
            if found[1] not in self.settings:
                return found[0]
            self.used.add(found[1])
            return self.settings[found[1]].inline

        return PLACEHOLDER.sub(value, text)


def _set(tree: Tree, setting: Setting, names: Sequence[str]) -> Change:
    """Set the one value a setting without placeholder means."""
    try:
        path, parent, key = _target(tree, setting.key, names)
    except SpecError as error:
        raise SpecError(f"-s {setting}: {error}") from None
    old = text_of(parent[key]) if isinstance(parent, list) or key in parent else "unset"
    parent[key] = setting.value
    return Change(dotted(path), old, text_of(setting.value), f"-s {setting}")


def _target(tree: Tree, key: str, names: Sequence[str]) -> tuple[Path, Any, Any]:
    """Path, parent and last key: of a dotted path, of the only such key, or of a known one of env or meta."""
    where = _SHORTHAND.get(key, key)
    if "." in where:
        return locate(tree, LISTED.sub(r"\1\2.", where).split("."))
    paths = [path for path, _ in walk(_settable(tree)) if path[-1] == key]
    if len(paths) == 1:
        return locate(tree, [str(part) for part in paths[0]])
    if paths:
        raise SpecError(f"{key!r} occurs more than once; give the path: {', '.join(map(dotted, paths))}.")
    known = {name: section for section, model in _SECTIONS.items() for name in model.model_fields}
    section = known.get(key, "")
    if key not in RECORDED and isinstance(tree.get(section), dict):
        return (section, key), tree[section], key
    near = known.keys() - set(RECORDED) | {str(path[-1]) for path, _ in walk(_settable(tree))} | set(names)
    raise SpecError(
        f"no placeholder and no key {key!r} in this spec.{hint(key, near)} "
        f"Placeholders: {', '.join(names) or 'none'}. A new key needs its full path, like agent.algorithm.{key}."
    )


def _settable(tree: Tree) -> Tree:
    """The spec without what a bare key never means: the search space and the keys a run records."""
    kept = {key: item for key, item in tree.items() if key != "search"}
    if isinstance(kept.get("meta"), dict):
        kept["meta"] = {key: item for key, item in kept["meta"].items() if key not in RECORDED}
    return kept


def placeholders(tree: Tree) -> Iterator[tuple[Path, str, str]]:
    """Path, text and name of every placeholder in the keys and values of a spec."""
    for path, item in walk(tree):
        for text in (path[-1], item):
            if isinstance(text, str):
                yield from ((path, text, name) for name in PLACEHOLDER.findall(text))


def refuse_leftovers(tree: Tree) -> None:
    """Raise where a placeholder is still there."""
    lines = [f"{dotted(path)}: {text} is not filled; give -s {name}=..." for path, text, name in placeholders(tree)]
    if lines:
        raise SpecError("\n".join(dict.fromkeys(lines)))
