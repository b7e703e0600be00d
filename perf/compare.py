"""Two runners side by side, in rounds that alternate, so that both meet the same moods of the machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from typing import Any, Protocol

import torch
from loguru import logger

from slm_lab.agent.plan import plan_agent
from slm_lab.experiment.session import Session
from slm_lab.spec.load import from_mapping

ROUNDS = 3


class Runner(Protocol):
    """Something that trains for so many frames more."""

    def run(self, frames: int) -> None: ...


class Ours:
    """A session of a spec, stepped as the command line steps it."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        parsed = from_mapping(spec, "perf").spec
        self.session = Session(parsed, plan_agent(parsed.agent, parsed.env.num_envs, []), (0, 0, 0))

    def run(self, frames: int) -> None:
        self.session.run(until=self.session.clock.frame + frames)


class Peer:
    """A model of Stable-Baselines3."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def run(self, frames: int) -> None:
        self.model.learn(frames, reset_num_timesteps=False)


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
