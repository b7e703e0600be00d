"""Processes for sessions, asked to end through their pipe."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from slm_lab.experiment.server import warm_up
from slm_lab.experiment.worker import Task, serve
from slm_lab.lib.errors import RunError
from slm_lab.lib.process import without_main


@dataclass
class Child:
    """A session's process and the pipe it talks through."""

    process: BaseProcess
    pipe: Connection

    def ask_to_end(self, reason: str) -> None:
        """Through the pipe: unlike a signal it also reaches a process that is not ready to listen yet."""
        with suppress(OSError):  # it has ended already
            self.pipe.send(reason)

    def kill(self) -> None:
        if self.process.is_alive():
            self.process.kill()

    def ended(self, timeout: float) -> str:
        """How its process ended."""
        self.process.join(timeout)
        return f"its process ended with exit code {self.process.exitcode}"


def start(task: Task) -> Child:
    """A process that runs one session."""
    context = warm_up()
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(task, theirs), name=f"session {task.paths.session}")
    try:
        with without_main():
            process.start()
    except (EOFError, OSError) as error:
        raise RunError(f"its process could not be started: {type(error).__name__} {error}".rstrip()) from None
    theirs.close()
    return Child(process, ours)
