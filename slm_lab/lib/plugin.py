"""Components by name: from a registry, or `module:Class` from a user's own package."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, TypeVar

from slm_lab.lib.errors import SpecError, hint, lookup

T = TypeVar("T")


def component(registry: Mapping[str, type[T]], name: object, path: str, kind: str, base: type[Any]) -> type[T]:
    """The class a spec names, or a SpecError that says what there is."""
    if not (isinstance(name, str) and ":" in name):
        return lookup(registry, name, path, kind)
    found = import_name(name, path)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise SpecError(f"{path}: {name!r} is not a {kind}: expected a subclass of {base.__module__}.{base.__name__}.")
    return found


def import_name(name: str, path: str) -> Any:
    """The object behind `module:Name`."""
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever a module does when it is first run
        reason = f"{type(error).__name__}: {error}"
        raise SpecError(f"{path}: cannot import {module_name!r} of {name!r}: {reason}.") from error
    if attribute not in vars(module):
        raise SpecError(f"{path}: module {module_name!r} has no {attribute!r}.{hint(attribute, vars(module))}")
    return vars(module)[attribute]
