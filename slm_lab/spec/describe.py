"""Spec keys as the code declares them: name, type, default, meaning."""

from __future__ import annotations

import json
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from slm_lab.spec.parse import Model


class KeyDoc(NamedTuple):
    """One key of a spec section."""

    key: str
    type: str
    default: str
    meaning: str


def describe(model: type[Model]) -> list[KeyDoc]:
    """The keys of a model, in the order they are declared."""
    return [
        KeyDoc(name, type_name(field.annotation), default_text(field), field.description or "")
        for name, field in model.model_fields.items()
    ]


def type_name(annotation: Any) -> str:
    """A type as a reader of specs would say it."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_name(arguments[0])
    if origin in (Union, UnionType):
        return " | ".join(dict.fromkeys(type_name(argument) for argument in arguments))
    if origin is Literal:
        return " | ".join("false" if value is False else str(value) for value in arguments)
    if origin is not None:
        return f"{origin.__name__}[{', '.join(type_name(argument) for argument in arguments)}]"
    return "null" if annotation in (None, NoneType) else "any" if annotation is Any else str(annotation.__name__)


def default_text(field: FieldInfo) -> str:
    """A default as it would stand in a spec; required keys have none."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True) if field.default is PydanticUndefined else field.default
    if isinstance(value, Model):
        value = {key: item for key, item in value.model_dump().items() if item is not None}
    return json.dumps(value)
