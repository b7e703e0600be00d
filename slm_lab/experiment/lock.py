"""One run at a time on a run's files. A folder itself is locked, so that nothing outlives the process that holds it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slm_lab.lib.errors import LabError

PATIENCE = 120.0  # seconds to wait for sessions whose parent is gone: they end by themselves


@contextmanager
def alone(predir: Path, models: Path) -> Iterator[None]:
    """Hold a run for this process, once the last session of a killed one has let go of its `models`."""
    with _locked(predir, fcntl.LOCK_EX, 0):
        with _locked(models, fcntl.LOCK_EX, PATIENCE):
            pass
        yield


@contextmanager
def writing(models: Path) -> Iterator[None]:
    """Say that a session writes here; sessions do not keep each other out."""
    with _locked(models, fcntl.LOCK_SH, PATIENCE):
        yield


@contextmanager
def _locked(folder: Path, kind: int, patience: float) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY)
    end = time.monotonic() + patience
    try:
        while not _take(handle, kind):
            if time.monotonic() >= end:
                raise LabError(f"{folder}: another process is at work on this run; let it end, or stop it, first.")
            time.sleep(0.05)
        yield
    finally:
        os.close(handle)


def _take(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: nobody can be kept out
        return True
    return True
