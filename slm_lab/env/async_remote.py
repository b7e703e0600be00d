"""A worker process as its parent sees it: started, asked, waited for no longer than allowed, ended for certain."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from time import monotonic
from typing import Any

from slm_lab.env.async_worker import Shared, serve
from slm_lab.lib.process import without_main
from slm_lab.spec.schema import EnvSpec
from slm_lab.types import Array

JOIN_SECONDS = 5.0
LAST_WORDS_SECONDS = 1.0
LONGEST = 1e6  # seconds that one call may wait for
LAST_WORDS_BYTES = 2**16


class WorkerFault(Exception):
    """A worker that raised, ended or did not answer; the text says which and where."""


class Remote:
    """The process that holds the envs at `rows`."""

    def __init__(self, spec: EnvSpec, rows: Array, shared: Shared) -> None:
        self.rows = rows
        self._spec, self._shared = spec, shared
        self.process: BaseProcess
        self._pipe: Connection
        self._last_words: Connection  # what its fault handler wrote

    def start(self, seeds: list[int]) -> None:
        """Start a process, which answers once when its envs are built."""
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._last_words, words = context.Pipe(duplex=False)
        args = (theirs, words, self._spec, seeds, int(self.rows[0]), self._shared)
        self.process = context.Process(target=serve, args=args, daemon=True)
        with without_main():
            self.process.start()
        theirs.close()  # so that a dead worker reads as the end of its pipe
        words.close()

    def send(self, command: str, value: Any) -> None:
        with suppress(ConnectionError):  # it died: what it said last is still in its pipe
            self._pipe.send((command, value))

    def answer(self, asked: float, seconds: float) -> Any:
        """Its next answer, until `seconds` after it was asked; WorkerFault where there is none."""
        try:
            if not self._pipe.poll(min(max(asked + seconds - monotonic(), 0), LONGEST)):
                raise WorkerFault(f"did not answer within {seconds:g} s{self._abort()}")
            fine, value = self._pipe.recv()
        except (EOFError, ConnectionError):
            self.process.join(JOIN_SECONDS)
            raise WorkerFault(f"ended with exit code {self.process.exitcode}{self._where()}") from None
        if not fine:
            raise WorkerFault(f"failed:\n{value}")
        return value

    def _abort(self) -> str:
        """End a process that listens to nobody; where it was."""
        if self.process.is_alive() and self.process.pid is not None:
            os.kill(self.process.pid, signal.SIGABRT)
            self.process.join(LAST_WORDS_SECONDS)
            self.process.kill()
        return self._where()

    def _where(self) -> str:
        """The stack it left behind, on lines of its own."""
        words = os.read(self._last_words.fileno(), LAST_WORDS_BYTES) if self._last_words.poll() else b""
        return f":\n{words.decode(errors='replace')}" if words else ""

    def hang_up(self) -> None:
        """Tell the process to end, which it does when its envs are closed."""
        self._pipe.close()

    def end(self) -> None:
        """Hang up, wait a little, then kill."""
        self.hang_up()
        self.process.join(JOIN_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self._last_words.close()
