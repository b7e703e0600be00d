"""Does the code still give the numbers that were recorded? The first frames of a session are trained again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pandas as pd
import torch

from slm_lab.agent.plan import plan_agent
from slm_lab.experiment.bench_record import Row, without_times
from slm_lab.experiment.control import read_saved
from slm_lab.experiment.finished import described
from slm_lab.experiment.paths import Paths
from slm_lab.experiment.record import machine, versions
from slm_lab.experiment.session import Options, Session
from slm_lab.lib.errors import LabError
from slm_lab.spec.schema import Spec

HARMLESS = ("slm-lab:", "machine.cores:", "machine.memory_gb:")  # of the surroundings: these change no number


class Verified(NamedTuple):
    """How many rows were compared over how many frames, what differs in them, and in where they were made."""

    rows: int
    frames: int
    lines: list[str]
    surroundings: list[str]

    @property
    def foreign(self) -> bool:
        """Whether what differs may come from the processor or a version, and not from the code."""
        return bool(self.lines) and any(not line.startswith(HARMLESS) for line in self.surroundings)

    def told(self) -> list[str]:
        """What differs, and what of it in the surroundings."""
        around = "what differs in the surroundings:" if self.surroundings else "the surroundings are the same"
        return [*self.lines, around, *(f"  {line}" for line in self.surroundings)]


def verify_run(folder: Path, session: int, frames: int) -> Verified:
    """Compare the first rows of a session's table with those the code gives now."""
    spec = read_saved(described(folder).paths.trial_spec)
    paths = Paths(folder, spec.name, spec.meta.trial or 0, session)
    if not paths.session_table("train").exists():
        raise LabError(f"{folder}: session {session} has no table: there is no {paths.session_table('train').name}.")
    if spec.workers > 1:
        raise LabError(f"{folder}: its workers trained together, in a race: such runs cannot be repeated.")
    frames = min(max(frames, spec.meta.log_frequency), spec.session_frames)
    table = pd.read_csv(paths.session_table("train"))
    recorded = without_times(table[table["frame"] <= frames])
    now = first_rows(spec, paths.trial, session, frames)
    return Verified(len(recorded), frames, differences(recorded, now), surroundings(spec.meta.record))


def first_rows(spec: Spec, trial: int, session: int, frames: int) -> list[Row]:
    """The rows of a session's first frames, trained again from its recorded seed and settings, without times."""
    record, before = spec.meta.record, torch.get_num_threads()
    env = {"vectorization": record.get("vectorization", "sync")}
    spec = spec.model_copy(update={"env": spec.env.model_copy(update=env)})
    torch.set_num_threads(int(record.get("threads", 1)))
    try:
        with TemporaryDirectory() as folder:
            paths = Paths(Path(folder), spec.name, trial, session)
            paths.make_folders()
            key = (spec.meta.random_seed, trial, session)
            options = Options(checks=record.get("mode") == "dev")  # which adds a column
            run = Session(spec, plan_agent(spec.agent, spec.env.num_envs, []), key, paths, options)
            try:
                run.run(until=frames)
            finally:
                run.close()
            return without_times(pd.read_csv(paths.session_table("train")))
    finally:
        torch.set_num_threads(before)


def differences(recorded: Sequence[Row], now: Sequence[Row]) -> list[str]:
    """What differs, a line for each row that does; no lines where all are identical."""
    lines = list[str]()
    for number, row in enumerate(recorded):
        if number >= len(now):
            lines.append(f"row {number}: was not reached")
            continue
        other = now[number]
        wrong = [key for key in (*row, *(key for key in other if key not in row)) if row.get(key) != other.get(key)]
        if wrong:
            shown = ", ".join(f"{key} {row.get(key)} -> {other.get(key)}" for key in wrong)
            lines.append(f"row {number} (frame {row.get('frame'):g}): {shown}")
    return lines


def surroundings(record: Mapping[str, Any]) -> list[str]:
    """What differs between where a run ran and here: versions and machine."""
    now: dict[str, Any] = {**versions(), **{f"machine.{key}": value for key, value in machine().items()}}
    was: dict[str, Any] = {
        **record.get("versions", {}),
        **{f"machine.{key}": value for key, value in record.get("machine", {}).items()},
    }
    return [f"{key}: {was[key]} -> {now.get(key)}" for key in was if was[key] != now.get(key)]
