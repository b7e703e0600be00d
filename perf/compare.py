"""Two runners in this process, in rounds that alternate, so that both meet the same moods of the machine."""

from __future__ import annotations

import statistics
import time

import torch
from loguru import logger

from perf.runners import Runner

ROUNDS = 3


def quiet() -> None:
    """One thread, and no log lines that would be measured too."""
    logger.remove()
    torch.set_num_threads(1)


def compare(title: str, first: Runner, second: Runner, other: str, frames: int, warm_up: int) -> float:
    """Print the medians of both in frames a second, and of their ratio by rounds."""
    first.run(warm_up)
    second.run(warm_up)
    pairs = [(_frames_a_second(first, frames), _frames_a_second(second, frames)) for _ in range(ROUNDS)]
    mine, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(a / b for a, b in pairs)
    print(f"{title}: {mine:,.0f} frames/s, {other} {theirs:,.0f}, ratio {ratio:.2f}", flush=True)
    return ratio


def _frames_a_second(runner: Runner, frames: int) -> float:
    start = time.perf_counter()
    runner.run(frames)
    return frames / (time.perf_counter() - start)
