"""Spec text to plain values: JSON and YAML, both with `${var}` placeholders, duplicate keys refused.

Placeholders are filled after parsing (see slm_lab.spec.overrides), so no value can break a file. Here they only become
parseable: each is swapped for marks of the same length, which keeps the columns of error messages true.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml

from slm_lab.lib.errors import LabError

PLACEHOLDER = re.compile(r"\$\{([^\s{}\"']+)\}")

_JSON_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|' + PLACEHOLDER.pattern)
_BARE, _DOLLAR, _OPEN, _CLOSE = "\ue000", "\ue001", "\ue002", "\ue003"  # private use: never part of a spec
_UNMARK = str.maketrans({_DOLLAR: "$", _OPEN: "{", _CLOSE: "}"})
_TAG = "tag:yaml.org,2002:"


def read(path: Path) -> dict[str, Any]:
    """The entries of a spec file, name -> spec; YAML by its extension, JSON otherwise."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise LabError(f"{path}: not UTF-8 text: {error.reason} at byte {error.start}.") from None
    except OSError as error:
        raise LabError(f"{path}: cannot be read: {error.strerror or error}.") from None
    parse = parse_yaml if path.suffix.lower() in (".yaml", ".yml") else parse_json
    try:
        entries = parse(text, str(path))
    except RecursionError:
        raise LabError(f"{path}: nested too deep, or an anchor holds itself.") from None
    if not isinstance(entries, dict):
        raise LabError(f"{path}: expected a mapping of spec names to specs, got a {type(entries).__name__}.")
    return entries


def parse_json(text: str, where: str) -> Any:
    """JSON as plain values; bare placeholders become text."""

    def quote(token: re.Match[str]) -> str:
        return token[0] if token[1] is None else f'"{_BARE}{token[1]}"'

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        twice = _repeated(key for key, _ in pairs)
        if twice:
            keys = ", ".join(dict.fromkeys(key for key, _ in pairs))
            raise LabError(f"{where}: duplicate key {twice!r} in the mapping of {keys}.")
        return dict(pairs)

    def number(literal: str) -> float:
        value = float(literal)
        if not math.isfinite(value):
            raise LabError(f"{where}: {literal} is not a finite number.")
        return value

    try:
        value = json.loads(
            _JSON_TOKEN.sub(quote, text), object_pairs_hook=unique, parse_float=number, parse_constant=number
        )
    except json.JSONDecodeError as error:
        raise LabError(f"{where}: line {error.lineno}, column {error.colno}: {error.msg}.") from None
    except ValueError as error:  # an integer of thousands of digits
        raise LabError(f"{where}: {error}.") from None
    return _restored(value, lambda part: f"${{{part[1:]}}}" if part.startswith(_BARE) else part)


def parse_yaml(text: str, where: str) -> Any:
    """YAML with the numbers and booleans of YAML 1.2 as plain values."""
    loader = _Loader(PLACEHOLDER.sub(f"{_DOLLAR}{_OPEN}\\1{_CLOSE}", text))
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _refuse_duplicates(node)
        value = loader.construct_document(node)
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, error.position - before.rfind("\n")
        raise LabError(f"{where}: line {line}, column {column}: {error.reason}.") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        reason = ", ".join(part for part in (error.context, error.problem) if part).translate(_UNMARK)
        raise LabError(f"{where}: {place}{reason}.") from None
    finally:
        loader.dispose()
    return _restored(value, lambda part: part.translate(_UNMARK))


def _restored(value: Any, unmark: Callable[[str], str]) -> Any:
    """A copy of parsed values with the placeholders back in."""
    if isinstance(value, str):
        return unmark(value)
    if isinstance(value, dict):
        return {_restored(key, unmark): _restored(item, unmark) for key, item in value.items()}
    if isinstance(value, list):
        return [_restored(item, unmark) for item in value]
    return value


def _repeated(keys: Iterable[str]) -> str | None:
    return next((key for key, count in Counter(keys).items() if count > 1), None)


def _refuse_duplicates(root: yaml.Node) -> None:
    """Raise where a mapping has a key twice. Nodes still tell what it has itself from what it merges in."""
    pending, seen = [root], set[int]()
    while pending:
        node = pending.pop()
        if id(node) in seen:  # reached again through an alias
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            pending.extend(node.value)
        elif isinstance(node, yaml.MappingNode):
            keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            twice = _repeated(key.value for key in keys)
            if twice is not None:
                again = [key for key in keys if key.value == twice][1]
                raise yaml.constructor.ConstructorError(None, None, f"duplicate key {twice!r}", again.start_mark)
            pending.extend(part for pair in node.value for part in pair)


_Base: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


class _Loader(_Base):  # type: ignore[misc]
    """PyYAML's safe loader with the scalars of YAML 1.2: `3e-4` is a number, `on` and `2020-01-01` are text."""

    yaml_implicit_resolvers: dict[str, Any] = {}
    yaml_constructors: dict[str | None, Any] = {
        tag: _Base.yaml_constructors[tag] for tag in (None, *(_TAG + kind for kind in ("null", "str", "seq", "map")))
    }

    def construct_literal(self, node: yaml.ScalarNode) -> bool | int | float:
        """A boolean or a finite number; an explicit tag may put any text here."""
        kind, text = node.tag.removeprefix(_TAG), node.value
        try:
            if kind == "bool":
                return ("false", "true").index(text.lower()) == 1
            if kind == "int":
                return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
            value = float(text)
            if math.isfinite(value):
                return value
        except ValueError:
            pass
        reason = f"{text[:60]} is not a {'boolean' if kind == 'bool' else 'finite number'}"
        raise yaml.constructor.ConstructorError(None, None, reason, node.start_mark)


_DIGITS = "0123456789"
for _name, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+" + _DIGITS),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+." + _DIGITS),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+."),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(f"{_TAG}{_name}", re.compile(rf"^(?:{_pattern})$"), list(_first))
for _name in ("bool", "int", "float"):
    _Loader.add_constructor(f"{_TAG}{_name}", _Loader.construct_literal)
