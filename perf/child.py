"""A contestant in a process of its own, with its own threads; it works only while it is asked to."""

from __future__ import annotations

import os
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import TracebackType
from typing import NamedTuple

from perf.rows import Contestant
from perf.tasks import Task
from slm_lab.lib.errors import RunError
from slm_lab.lib.process import without_main

CORES = 2  # that anybody may use, so that the table means the same on larger machines


class Lap(NamedTuple):
    """Frames a second, and the memory of the process after it."""

    speed: float
    memory_mb: float


class Child:
    """The process of a contestant, seen from the one that measures."""

    def __init__(self, task: Task, contestant: Contestant) -> None:
        self.contestant = contestant
        context = get_context("spawn")
        self.pipe, far_end = context.Pipe()
        self.process = context.Process(target=serve, args=(far_end, task, contestant))
        with without_main():
            self.process.start()
        far_end.close()

    def run(self, frames: int) -> Lap:
        """Train for so many frames."""
        try:
            self.pipe.send(frames)
            return Lap(*self.pipe.recv())
        except (EOFError, OSError):
            raise RunError(f"{self.contestant.name}: its process ended; what it said stands above.") from None

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.pipe.close()  # the child ends when nobody is left to ask
        self.process.join()


def serve(pipe: Connection, task: Task, contestant: Contestant) -> None:
    """The main function of the process: build, then run the frames that are asked for until nobody asks."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])  # before XLA counts them
    import psutil
    import torch
    from loguru import logger

    from perf.runners import Ours, Runner, sb3, sbx

    logger.remove()  # lines would be measured too
    torch.set_num_threads(contestant.threads)
    runner: Runner
    if contestant.library == "ours":
        runner = Ours(task.spec, contestant.threads)
    else:
        runner = {"sb3": sb3, "sbx": sbx}[contestant.library](task)
    while True:
        try:
            frames = pipe.recv()
        except EOFError:
            return
        start = time.perf_counter()
        runner.run(frames)
        seconds = time.perf_counter() - start
        pipe.send((frames / seconds, psutil.Process().memory_info().rss / 2**20))
