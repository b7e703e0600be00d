"""How cost grows with envs, net width, sessions and replay size, and what start-up takes.

Run: python -m perf.growth [--only envs,width]   (writes perf/results/growth_*.json and docs/PERFORMANCE.md)
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from perf.child import Child, Lap
from perf.command import ROOT, first_row, train
from perf.page import write_page
from perf.results import Series, facts, write
from perf.rows import Contestant
from perf.tasks import Task, dqn, mlp, ppo

ROUNDS = 3
Points = list[dict[str, float]]


def measured(task: Task, frames: int, warm_up: int) -> Lap:
    """Median speed of ours on one thread over rounds, and the memory at the end, in a new process."""
    with Child(task, Contestant("ours", 1)) as child:
        child.run(warm_up)
        laps = [child.run(frames) for _ in range(ROUNDS)]
    return Lap(statistics.median(lap.speed for lap in laps), laps[-1].memory_mb)


def envs(short: bool) -> Points:
    """PPO's speed with 1 to 256 envs: rollouts grow with them, and so does the number of minibatches."""
    points = Points()
    for num_envs in (1, 4, 16) if short else (1, 2, 4, 8, 16, 32, 64, 128, 256):
        rollout = 256 * num_envs
        frames = rollout * max(1, 4096 // rollout)
        task = ppo("CartPole-v1", num_envs, 256, 128, 15, mlp((64, 64), "tanh"))
        lap = measured(task, frames, rollout)
        points.append({"num_envs": num_envs, "speed": lap.speed, "memory_mb": lap.memory_mb})
    return points


def width(short: bool) -> Points:
    """PPO's speed with two layers of 64 to 1024 units."""
    points = Points()
    for units in (64, 128) if short else (64, 128, 256, 512, 1024):
        lap = measured(ppo("CartPole-v1", 4, 256, 128, 15, mlp((units, units), "tanh")), 2048, 1024)
        points.append({"width": units, "speed": lap.speed, "memory_mb": lap.memory_mb})
    return points


def sessions(short: bool) -> Points:
    """Wall time and memory of `train` with 1 to 4 sessions."""
    points = Points()
    for number in (1, 2) if short else (1, 2, 3, 4):
        run = train([f"max_session={number}", f"max_frame={2048 if short else 50_000}"])
        points.append({"sessions": number, "seconds": run.seconds, "memory_mb": run.memory_mb})
    return points


def replay(short: bool) -> Points:
    """DQN's speed and memory with a full replay of 1e4 to 1e6 transitions, drawn from uniformly and by priority."""
    prioritized = {"name": "PrioritizedReplay", "alpha": 0.6, "epsilon": 1e-6, "beta_spec": 0.4}
    kinds: dict[str, dict[str, Any]] = {"uniform": {"name": "Replay"}, "prioritized": prioritized}
    points = Points()
    for size in (1000, 10_000) if short else (10_000, 30_000, 100_000, 300_000, 1_000_000):
        point = {"size": float(size)}
        for kind, memory in kinds.items():
            # no update until it is full
            task = dqn("CartPole-v1", 4, 32, (64, 64), size, start=size, memory=memory)
            lap = measured(task, 1000 if short else 8000, size + 2000)
            point |= {f"{kind}_speed": lap.speed, f"{kind}_memory_mb": lap.memory_mb}
        points.append(point)
    return points


def startup(short: bool) -> Points:
    """Median seconds to the first row of the whole command, and to the first frame by what they are spent on."""
    sets = ["max_session=1", "log_frequency=4"]
    tries = 1 if short else 5
    first_row(sets)  # what is on disk now, stays in the system's cache
    whole = statistics.median(first_row(sets) for _ in range(tries))
    found = [_parts() for _ in range(tries)]
    parts = {part: statistics.median(each[part] for each in found) for part in found[0]}
    return [{"command to first row": whole, **parts}]


def _parts() -> dict[str, float]:
    command = [sys.executable, "-m", "perf.startup", str(time.time())]
    answer = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found: dict[str, float] = json.loads(answer.splitlines()[-1])
    return found


SERIES: dict[str, Callable[[bool], Points]] = {
    "envs": envs,
    "width": width,
    "sessions": sessions,
    "replay": replay,
    "startup": startup,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m perf.growth", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default=",".join(SERIES), help=f"some of {', '.join(SERIES)}")
    parser.add_argument("--short", action="store_true", help="a few points with few frames; nothing is written")
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    unknown = sorted(set(names) - SERIES.keys())
    if unknown:
        parser.error(f"--only: unknown {', '.join(unknown)}; known: {', '.join(SERIES)}")
    for name in names:
        points = SERIES[name](arguments.short)
        print(name, *points, sep="\n  ", flush=True)
        if not arguments.short:
            write(Series(name, points, facts()))
    if not arguments.short:
        print(*write_page(), sep="\n")


if __name__ == "__main__":
    main()
