"""Where log lines go: stderr or a live display's console, and a file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from loguru import logger

from slm_lab.lib.errors import LabError, hint
from slm_lab.lib.io import make_folder

if TYPE_CHECKING:
    from rich.console import Console

LEVELS = ("TRACE", "DEBUG", "INFO", "SUCCESS", "WARNING", "ERROR", "CRITICAL")
FORMAT = "{time:YYYY-MM-DD HH:mm:ss} | <level>{level}</level> | PID:{process} | {module}:{function} | {message}"


def configure(level: str, file: Path | None = None, console: Console | None = None) -> None:
    """Replace every sink: stderr, or `console` so that lines pass above what it draws, and `file` where given."""
    name = checked(level)
    logger.remove()
    # `out` neither wraps nor reads [brackets] as markup
    logger.add(
        sys.stderr if console is None else lambda line: console.out(line, end="", highlight=False),
        level=name,
        format=FORMAT,
        diagnose=False,
    )
    if file is not None:
        _add_file(name, file)


def configure_worker(level: str, file: Path, forward: Callable[[str, str], None]) -> None:
    """Replace every sink of a session's own process: all to its file, warnings also to `forward(level, text)`."""
    name = checked(level)
    logger.remove()
    _add_file(name, file)
    logger.add(
        lambda line: forward(line.record["level"].name, line.record["message"]), level="WARNING", format="{message}"
    )


@contextmanager
def also_to(level: str, file: Path) -> Iterator[None]:
    """A further file for a while: that of a session which runs in this process."""
    sink = _add_file(checked(level), file)
    try:
        yield
    finally:
        logger.remove(sink)


def checked(level: str) -> str:
    """The level's name as loguru knows it."""
    name = level.upper()
    if name not in LEVELS:
        raise LabError(f"log level: unknown level {level!r}.{hint(level, LEVELS)} Known: {', '.join(LEVELS)}.")
    return name


def _add_file(level: str, file: Path) -> int:
    make_folder(file.parent)
    try:
        # loguru reads {braces} in a path as its own
        escaped = str(file).replace("{", "{{").replace("}", "}}")
        return logger.add(escaped, level=level, format=FORMAT, diagnose=False, encoding="utf-8")
    except OSError as error:
        raise LabError(f"{file}: cannot write this log: {error.strerror or error}") from None
