"""Is this env spec runnable? Answered from the registry and the constructor's signature, without building an env."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from slm_lab.env.source import find
from slm_lab.lib.errors import SpecError, hint
from slm_lab.spec.schema import EnvSpec


def check_gym(spec: EnvSpec) -> None:
    """SpecError for an unknown id or constructor argument."""
    known = arguments(find(spec.name).creator)
    if known is None:
        return
    unknown = [key for key in spec.kwargs if key not in known]
    fields = sorted({*EnvSpec.model_fields, *known})
    if unknown:
        raise SpecError(
            "\n".join(f"env.{key}: unknown key.{hint(key, fields)} Known: {', '.join(fields)}." for key in unknown)
        )


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
