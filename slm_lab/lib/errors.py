"""Errors a user can act on: one message, no traceback. The command line turns them into exit code 2."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TypeVar

T = TypeVar("T")
LISTED = 20  # names an error gives


class LabError(Exception):
    """Bad input: the message says where, what came, what is allowed and what is near."""


class SpecError(LabError):
    """A spec that cannot be run as written."""


class RunError(Exception):
    """A run that failed or is incomplete: exit code 1."""


class NotFiniteError(RunError):
    """Numbers that learning cannot go on with."""


def hint(name: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?`, or nothing when no known name is near."""
    names = {str(k).lower(): str(k) for k in known}
    near = get_close_matches(name.lower(), list(names), n=1, cutoff=0.6)
    return f" Did you mean {names[near[0]]!r}?" if near else ""


def listing(names: Sequence[str]) -> str:
    """Names as an error gives them: `a, b and 3 more`."""
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def lookup(registry: Mapping[str, T], name: object, path: str, kind: str) -> T:
    """The registry's entry for a spec name, or a SpecError that says what there is."""
    if isinstance(name, str) and name in registry:
        return registry[name]
    raise SpecError(
        f"{path}: unknown {kind} {name!r}.{hint(str(name), registry)} Known: {', '.join(sorted(registry))}."
    )
