"""Spec keys as the code declares them: name, type, default, meaning."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

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
    text = (
        getattr(annotation, "__name__", "")
        if isinstance(annotation, type) and not _generic(annotation)
        else repr(annotation)
    )
    text = re.sub(r"Annotated\[(\w+), [^\]]*?\)\]", r"\1", text)
    text = re.sub(r"typing\.Literal\[(.*?)\]", lambda m: m[1].replace(", ", " | "), text)
    text = re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", text)
    return text.replace("NoneType", "null").replace("None", "null")


def _generic(annotation: type) -> bool:
    return bool(getattr(annotation, "__args__", ()))


def default_text(field: FieldInfo) -> str:
    """A default as it would stand in a spec; required keys have none."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True) if field.default is PydanticUndefined else field.default
    if isinstance(value, Model):
        return str({k: v for k, v in value.model_dump().items() if v is not None})
    return (
        {None: "null", True: "true", False: "false"}.get(value, str(value))
        if isinstance(value, bool | None)
        else str(value)
    )
