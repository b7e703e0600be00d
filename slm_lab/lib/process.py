"""Processes of our own that import the lab and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def without_main() -> Iterator[None]:
    """Start processes that do not import the user's script, which may well call us at its top level."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")  # multiprocessing looks here for what to import
    try:
        yield
    finally:
        sys.modules["__main__"] = main
