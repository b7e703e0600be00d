"""Fixtures that tests of several packages use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from loguru import logger


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    """Log lines of warnings."""
    lines = list[str]()
    sink = logger.add(lambda line: lines.append(line.record["message"]), level="WARNING")
    yield lines
    logger.remove(sink)
