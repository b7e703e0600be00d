"""Processes for sessions: forked from a server that has imported torch once, and asked to end through their pipe."""

from __future__ import annotations

import multiprocessing
import signal
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from slm_lab.experiment.worker import SIGNALS, Task, serve
from slm_lab.lib.errors import RunError
from slm_lab.lib.process import without_main

# the last three are what torch.optim, TensorBoard and the graphs import when first used: seconds for every session
PRELOAD = ["slm_lab.experiment.worker", "torch._dynamo", "torch.utils.tensorboard", "matplotlib.backends.backend_agg"]


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


def warm_up() -> Any:
    """Let the server that sessions start from do its imports, where the system has one; gives the way to start them."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    resource_tracker.ensure_running()  # it lifts the block when it starts
    # the server and new sessions inherit the block: a Ctrl-C while they import must not end them with a traceback
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    return context


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
