"""A result that can be published: one small file a cell, written by the program, refused where it was tampered with."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import Field

from slm_lab.experiment import analysis
from slm_lab.experiment.paths import Paths
from slm_lab.lib.errors import LabError
from slm_lab.lib.io import make_folder, plain, read_json, write_json
from slm_lab.spec.load import dump
from slm_lab.spec.parse import Model, parse
from slm_lab.spec.random_baseline import baseline
from slm_lab.spec.schema import Spec
from slm_lab.spec.suite import Cell, spec_hash

FORMAT = 1
POINTS = 100  # of a learning curve
HEAD = 5000  # frames whose rows are kept as they were, to see whether the code still gives them
Row = dict[str, float | None]
UNSTEADY = ("wall_t", "fps")  # columns that differ from run to run


class SessionRecord(Model):
    """What one session came to."""

    seed: int = Field(description="its own seed")
    frames: int = Field(description="frames spent")
    wall_t: float = Field(description="seconds of training")
    fps: float = Field(description="frames a second, at its end")
    metrics: dict[str, float | None] = Field(description="final numbers, by name")
    curve: dict[str, list[float | None]] = Field(description="thinned columns frame and total_reward")
    head: list[Row] = Field(description="first rows of its table, without times")
    evaluation: list[float] = Field(description="returns of the final policy's most likely actions")
    commit: str = Field(description="of the code")
    clean: bool | None = Field(description="whether the code was as committed")

    @property
    def score(self) -> float:
        score = self.metrics["total_reward_ma"]
        return math.nan if score is None else score


class Record(Model):
    """The result of a cell, complete or not."""

    format: int = Field(description="of this file")
    mode: str = Field(description="how it was run; only train counts")
    family: str = Field(description="of the cell")
    env: str = Field(description="of the cell")
    algorithm: str = Field(description="of the cell")
    spec: dict[str, Any] = Field(description="as run")
    spec_hash: str = Field(description="of what decides its numbers")
    planned: int = Field(description="sessions")
    versions: dict[str, str] = Field(description="of packages")
    machine: dict[str, Any] = Field(description="it ran on")
    threads: int = Field(description="of torch in a session")
    sessions: dict[str, SessionRecord] = Field(description="by index")
    verified: dict[str, Any] | None = Field(None, description="commit, and whether its code still gives the first rows")

    @property
    def complete(self) -> bool:
        return len(self.sessions) == self.planned

    @property
    def scores(self) -> list[float]:
        return [self.sessions[key].score for key in sorted(self.sessions, key=int)]

    @property
    def score(self) -> float:
        """The mean over all sessions; NaN while some are missing."""
        return float(np.mean(self.scores)) if self.complete else math.nan


def record_path(folder: Path, cell: Cell) -> Path:
    return folder / cell.family / f"{cell.slug}.json"


def read_record(path: Path) -> Record:
    """A record that is what the program wrote; LabError with the reason where it is not."""
    content = read_json(path)
    seal = content.pop("seal", None) if isinstance(content, dict) else None
    if seal is None:
        raise LabError(f"{path}: not a result: it has no seal.")
    if seal != _seal(content):
        raise LabError(f"{path}: changed by hand: its content does not fit its seal. Run the cell again.")
    record = parse(Record, content, path.name, [])
    if record.format != FORMAT:
        raise LabError(f"{path}: format {record.format}, this version reads {FORMAT}.")
    if record.mode != "train":
        raise LabError(f"{path}: from a {record.mode} run; only train runs are results.")
    return record


def write_record(path: Path, record: Record) -> None:
    content = plain(record.model_dump())
    make_folder(path.parent)
    write_json(path, {**content, "seal": _seal(content)})


def _seal(content: dict[str, Any]) -> str:
    """A hash of a record's content, against slips of the hand and of merges."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def new_record(cell: Cell, spec: Spec) -> Record:
    """A record without sessions, of a spec as `control` prepared it for a run."""
    told = spec.meta.record
    return Record(
        format=FORMAT,
        mode=told["mode"],
        family=cell.family,
        env=cell.env,
        algorithm=cell.algorithm,
        spec=dump(spec),
        spec_hash=spec_hash(spec),
        planned=spec.meta.max_session,
        versions=told["versions"],
        machine=told["machine"],
        threads=told["threads"],
        sessions={},
    )


def session_record(spec: Spec, paths: Paths) -> SessionRecord:
    """What a finished session's files say of it."""
    table = pd.read_csv(paths.session_table("train"))
    zero = baseline(spec.env.name, spec.env.kwargs) or 0.0
    last, told = table.iloc[-1], read_json(paths.session_spec)["meta"]
    return SessionRecord(
        seed=told["session_seed"],
        frames=int(last["frame"]),
        wall_t=float(last["wall_t"]),
        fps=float(last["fps"]),
        metrics=plain(analysis.session_metrics(table, zero)["scalar"]),
        curve=thinned(table),
        head=head_rows(table, spec.meta.log_frequency, spec.env.num_envs),
        evaluation=read_json(paths.session_evaluation),
        commit=told["git_sha"],
        clean=None if told["record"].get("git_dirty") is None else not told["record"]["git_dirty"],
    )


def thinned(table: pd.DataFrame) -> dict[str, list[float | None]]:
    """Frames and returns of at most POINTS rows, evenly spread, the last among them."""
    rows = np.unique(np.linspace(0, len(table) - 1, min(POINTS, len(table))).round().astype(int))
    kept = table.iloc[rows]
    curve: dict[str, list[float | None]] = plain({key: kept[key].tolist() for key in ("frame", "total_reward")})
    return curve


def head_rows(table: pd.DataFrame, log_frequency: int, num_envs: int) -> list[Row]:
    """The rows of the first frames, at least one, without what no two runs share."""
    return without_times(table[table["frame"] <= head_frames(log_frequency, num_envs)])


def without_times(table: pd.DataFrame) -> list[Row]:
    """Rows of a table, less what no two runs share."""
    rows: list[Row] = plain(table.drop(columns=[*UNSTEADY], errors="ignore").to_dict("records"))
    return rows


def head_frames(log_frequency: int, num_envs: int) -> int:
    """Frames to train to see the first rows again: a row is due at the first vector step past its frame."""
    return max(HEAD, log_frequency + num_envs)
