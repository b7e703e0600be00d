"""The base of every spec model, and pydantic's errors in words: path, what came, what is allowed, what is near."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from slm_lab.lib.errors import SpecError, hint


class Model(BaseModel):
    """A part of a spec: frozen, no unknown keys, every field described where it is declared."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    inert: ClassVar[Mapping[str, str]] = {}
    """Keys that public specs carry and nothing reads, with the reason: they warn instead of failing."""


def _number(value: Any) -> Any:
    """Numbers may come as text ("1e7"), never as booleans."""
    if isinstance(value, bool):
        raise ValueError("a number, not a boolean")
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return value
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a finite number")
    return value


Int = Annotated[int, BeforeValidator(_number)]
Float = Annotated[float, BeforeValidator(_number)]
_WORD = re.compile(r"\w+")
_TYPES = {"int", "float", "str", "bool", "dict", "list", "tuple", "none"}
M = TypeVar("M", bound=Model)


def parse(model: type[M], data: Any, path: str, notes: list[str]) -> M:
    """A mapping as a typed model. Inert keys add to `notes`; all errors come together in one SpecError."""
    if not isinstance(data, Mapping):
        raise SpecError(f"{path}: expected a mapping, got {show(data)}.")
    kept = {}
    for key, value in data.items():
        if key in model.inert and key not in model.model_fields:
            notes.append(f"{path}.{key}: {model.inert[key]}; ignored.")
        else:
            kept[key] = value
    try:
        return model.model_validate(kept)
    except ValidationError as error:
        raise SpecError("\n".join(_messages(model, path, error))) from None


def _messages(model: type[Model], path: str, error: ValidationError) -> list[str]:
    """One line for each place that is wrong; the alternatives of a union are one place."""
    places = dict[str, list[Any]]()
    for detail in error.errors():
        # pydantic names the alternatives of a union in the location: they are no part of the spec
        loc = [
            part for part in detail["loc"] if isinstance(part, int) or (_WORD.fullmatch(part) and part not in _TYPES)
        ]
        places.setdefault(".".join([path, *map(str, loc)]).strip("."), []).append(detail)
    return [_message(model, where, details) for where, details in places.items()]


def _message(model: type[Model], where: str, details: list[Any]) -> str:
    """One line for pydantic's entries about one place."""
    kind, value, loc = details[0]["type"], details[0]["input"], details[0]["loc"]
    if kind == "extra_forbidden":
        known = sorted(_fields_at(model, loc[:-1]))
        return f"{where}: unknown key.{hint(str(loc[-1]), known)} Known: {', '.join(known)}."
    if kind == "missing":
        return f"{where}: missing key (required)."
    reasons = dict.fromkeys(d["msg"].removeprefix("Value error, ").removeprefix("Input should be ") for d in details)
    return f"{where}: got {show(value)}; allowed: {', or '.join(reasons)}."


def _fields_at(model: type[Model], loc: tuple[Any, ...]) -> list[str]:
    """Field names of the model that an error location points into."""
    for part in loc:
        field = model.model_fields.get(str(part))
        inner = _model_in(field.annotation) if field else None
        if inner is None:
            break
        model = inner
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[Model] | None:
    """The Model inside an annotation such as `Schedule | None`."""
    options = getattr(annotation, "__args__", ()) or (annotation,)
    return next((o for o in options if isinstance(o, type) and issubclass(o, Model)), None)


def show(value: Any) -> str:
    """A value as a message shows it: its type and, when short, itself."""
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"
