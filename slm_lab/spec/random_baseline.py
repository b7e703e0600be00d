"""What a random agent scores, from the file that `slm-lab baseline` writes; nothing is measured inside a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slm_lab.lib.io import read_json, write_json

FILE = Path(__file__).with_suffix(".json")
UNSCORED = ("life_loss_info", "privileged")
"""Arguments of envs that change what is learnt from, not what is scored."""


def entry_key(env_name: str, kwargs: Mapping[str, Any]) -> str:
    """The env's key in the file: its id, then its kwargs sorted, as in `LunarLander-v3{"continuous":true}`."""
    scored = {key: value for key, value in kwargs.items() if key not in UNSCORED}
    return env_name + (json.dumps(scored, sort_keys=True, separators=(",", ":"), default=str) if scored else "")


def baseline(env_name: str, kwargs: Mapping[str, Any]) -> float | None:
    """Mean return of random actions, or None where nobody measured this env with these kwargs."""
    entry = read_json(FILE).get(entry_key(env_name, kwargs))
    return None if entry is None else float(entry["mean"])


def entries() -> list[tuple[str, dict[str, Any]]]:
    """Env and kwargs of everything that was measured."""
    found = [key.partition("{") for key in read_json(FILE)]
    return [(name, json.loads(brace + rest) if brace else {}) for name, brace, rest in found]


def keep(key: str, entry: Mapping[str, float]) -> None:
    """Add an entry to the file, or replace it."""
    write_json(FILE, {**read_json(FILE), key: dict(entry)})
