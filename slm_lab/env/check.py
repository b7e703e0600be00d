"""Is this env spec runnable? Answered from the registry and the constructor's signature, without building an env."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from slm_lab.env.source import find
from slm_lab.lib.errors import SpecError, hint
from slm_lab.spec.schema import EnvSpec


def check_gym(spec: EnvSpec) -> None:
    """SpecError for an unknown id or constructor argument."""
    known = arguments(find(spec.name).creator)
    if known is None:
        return
    wrong = unknown_keys(spec.kwargs, {*EnvSpec.model_fields, *known})
    if wrong:
        raise SpecError("\n".join(wrong))


def unknown_keys(given: Iterable[str], known: set[str]) -> list[str]:
    """A line for each key of `env` that is not known."""
    fields = sorted(known)
    return [
        f"env.{key}: unknown key.{hint(key, fields)} Known: {', '.join(fields)}." for key in given if key not in known
    ]


def no_switches(kwargs: Mapping[str, Any], switches: Iterable[str]) -> list[str]:
    """A line for each of `switches` that is given and is neither true nor false."""
    return [
        f"env.{key}: got {kwargs[key]!r}; allowed: true or false."
        for key in switches
        if not isinstance(kwargs.get(key, False), bool)
    ]


def arguments(creator: Callable[..., Any]) -> set[str] | None:
    """Names a constructor takes by keyword, or None when it takes any."""
    if not inspect.isclass(creator):
        names, takes_any = _named(creator)
        return None if takes_any else names
    names = set()
    for base in creator.__mro__:  # a constructor with **kwargs passes them to the next one up
        if "__init__" in vars(base):
            more, takes_any = _named(vars(base)["__init__"])
            names |= more
            if not takes_any:
                return names - {"self"}
    return None


def _named(function: Callable[..., Any]) -> tuple[set[str], bool]:
    """Keyword names of one function, and whether it takes any others."""
    parameters = inspect.signature(function).parameters.values()
    names = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return names, any(p.kind is p.VAR_KEYWORD for p in parameters)
