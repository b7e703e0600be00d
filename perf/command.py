"""The command line from outside: how long it takes, how much memory it holds, when its first row is there."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from slm_lab.lib.errors import RunError

FILE, NAME = "slm_lab/spec/benchmark/ppo/ppo_cartpole.json", "ppo_cartpole"
ROOT = Path(__file__).resolve().parents[1]
OUTPUT = "output.txt"
LOOK = 0.25  # seconds between two looks at memory


class Finished(NamedTuple):
    """Wall time of a run, and the most memory that all its processes held together."""

    seconds: float
    memory_mb: float


def train(sets: Sequence[str]) -> Finished:
    """`slm-lab run` of PPO on CartPole in mode train with these overrides, to its end."""
    with tempfile.TemporaryDirectory() as name, _started(Path(name), sets) as (process, start):
        most = 0.0
        while process.poll() is None:
            most = max(most, tree_memory(process.pid))
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK)
        seconds = time.perf_counter() - start
        if process.returncode:
            raise _failed(process, Path(name))
        return Finished(seconds, most)


def first_row(sets: Sequence[str]) -> float:
    """Seconds from the command to the first row of its table; it is not awaited further."""
    with tempfile.TemporaryDirectory() as name, _started(Path(name), sets) as (process, start):
        while not any(table.stat().st_size for table in Path(name).glob("*/info/*_session_df_train.csv")):
            if process.poll() is not None:
                raise _failed(process, Path(name))
            time.sleep(0.002)
        return time.perf_counter() - start


@contextmanager
def _started(folder: Path, sets: Sequence[str]) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    """The command, which writes to this folder, and when it was given; it is ended with the block."""
    command = [str(Path(sys.executable).with_name("slm-lab")), "run", FILE, NAME, "train", "--data-dir", str(folder)]
    command += [word for item in sets for word in ("-s", item)]
    with (folder / OUTPUT).open("wb") as output:
        start = time.perf_counter()
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield process, start
        finally:
            process.terminate()  # nothing to do where it has ended
            process.wait()


def _failed(process: subprocess.Popen[bytes], folder: Path) -> RunError:
    return RunError(f"slm-lab: exit code {process.returncode}\n{(folder / OUTPUT).read_text()}")


def tree_memory(pid: int) -> float:
    """Megabytes of a process and those it started; pages that several share are counted once."""
    total = 0.0
    try:
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            try:
                total += process.memory_full_info().pss / 2**20
            except psutil.Error:  # ended since it was listed
                continue
    except psutil.NoSuchProcess:
        return 0.0
    return total
