"""`key=value` of `-s`, read: what the key is, what the value is."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from slm_lab.lib.errors import LabError, SpecError
from slm_lab.spec.text import parse_json

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_WORDS = {"true": True, "True": True, "false": False, "False": False, "null": None}


@dataclass(frozen=True)
class Setting:
    """One `-s key=value`; `value` is `text` as a number, boolean, null, list or mapping where it reads as one."""

    key: str
    text: str
    value: Any

    def __str__(self) -> str:
        return f"{self.key}={self.text}"

    @property
    def inline(self) -> str:
        """The value inside longer text: numbers in their plain form, anything else as it was given."""
        number = isinstance(self.value, int | float) and not isinstance(self.value, bool)
        return str(self.value) if number else self.text


def parse_settings(sets: Sequence[str]) -> list[Setting]:
    """`key=value` texts, each split at its first `=`."""
    settings: dict[str, Setting] = {}
    for item in sets:
        key, equals, text = item.partition("=")
        key = key.strip()
        if not equals or not all(key.split(".")):
            raise SpecError(f"-s {item}: expected key=value, for example -s max_frame=10000 or -s env.num_envs=8.")
        if key in settings:
            raise SpecError(f"-s {item}: {key} is already set by -s {settings[key]}.")
        settings[key] = Setting(key, text, typed(text))
    return list(settings.values())


def typed(text: str) -> Any:
    """A finite number (whole where it can be), boolean, null, JSON list or mapping; anything else stays text."""
    bare = text.strip()
    if bare in _WORDS:
        return _WORDS[bare]
    if _NUMBER.fullmatch(bare):
        number = _number(bare)
        return text if number is None else number
    if bare[:1] in ("[", "{"):
        try:
            return parse_json(bare, "-s")
        except (LabError, RecursionError):
            return text
    return text


def _number(text: str) -> int | float | None:
    """Text like `3e6` or `3e-4` as a number, None where it is too large for one."""
    try:
        return int(text)
    except ValueError:
        value = float(text)
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() else value


def env_suffix(settings: Iterable[Setting]) -> str:
    """`_pong` for `-s env=ALE/Pong-v5`: runs on different envs get different names. Empty without that setting."""
    env = next((setting.text.strip() for setting in settings if setting.key == "env"), None)
    if env is None:
        return ""
    short = re.split(r"[/:]", env)[-1].split("-")[0].lower()
    return "_" + re.sub(r"[^\w.]+", "_", short)
