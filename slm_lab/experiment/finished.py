"""A run read back from its folder: one of this lab, or one that public SLM-Lab wrote under the same file names."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from slm_lab.experiment.analysis import engineering, moving_average
from slm_lab.experiment.paths import Kind, Paths
from slm_lab.lib.errors import LabError, hint, listing
from slm_lab.lib.io import read_json
from slm_lab.spec.random_baseline import baseline, entry_key
from slm_lab.spec.schema import EnvSpec, MetaSpec
from slm_lab.types import Array

LABELS = {
    "VanillaDQN": "DQN",
    "DoubleDQN": "DDQN",
    "ActorCritic": "A2C",
    "Reinforce": "REINFORCE",
    "SoftActorCritic": "SAC",
}
OLDER = ("frame_op", "frame_op_len", "normalize_state")  # keys of SLM-Lab 4 that its envs never saw
TRIAL_SPEC = re.compile(r"(.+)_t(\d+)_spec\.json")


@dataclass(frozen=True)
class Logged:
    """What one session logged, row by row: frames [K], returns [K] and gradient steps [K]."""

    session: int
    frames: Array
    returns: Array
    opt_steps: Array
    wall_t: float  # seconds; NaN where no table says

    @property
    def score(self) -> float:
        """total_reward_ma: the mean return of the last 100 rows."""
        return float(moving_average(self.returns)[-1])


@dataclass(frozen=True)
class Finished:
    """One trial of a run folder: what its saved spec says, and what its sessions logged."""

    paths: Paths
    spec: Mapping[str, Any]  # as saved; other labs' keys included, so never validated
    mode: str  # dev, train or search; `unknown` where it was not recorded
    env: str
    kwargs: Mapping[str, Any]  # of the env
    algorithm: str  # as legends show it
    max_frame: int
    num_envs: int
    log_frequency: int
    planned: int  # sessions
    workers: int  # sessions that train one agent together and share its frames
    kind: Kind  # the table that scores are taken from: eval with rigorous_eval
    spacing: int  # frames between its rows
    search: bool
    sessions: tuple[Logged, ...] = ()  # the complete ones, or all of them where none is
    done: int = 0  # complete sessions
    notes: tuple[str, ...] = ()  # what a reader of its numbers must know

    @property
    def folder(self) -> Path:
        return self.paths.predir

    @property
    def name(self) -> str:
        return self.paths.name

    @property
    def env_key(self) -> str:
        """The env with its kwargs, e.g. LunarLander-v3{"continuous":true}: equal keys have comparable returns."""
        return entry_key(self.env, self.kwargs)

    @property
    def baseline(self) -> float | None:
        """What random actions score, where somebody measured it."""
        return baseline(self.env, self.kwargs)

    @property
    def session_frames(self) -> int:
        return -(-self.max_frame // self.workers)

    @property
    def scores(self) -> Array:
        """total_reward_ma of each session [S]."""
        return np.array([session.score for session in self.sessions])

    def complete(self, frames: Array) -> bool:
        """Whether a table with these frames [K] reaches the end: no row but one at the very end can be missing."""
        return len(frames) > 0 and bool(frames[-1] + self.spacing > self.session_frames)


def run_folders(data_dir: Path) -> list[Path]:
    """Folders of a data folder that hold the spec of a run, by name."""
    if not data_dir.is_dir():
        raise LabError(f"{data_dir}: no such folder; --data-dir names the one that runs are in.")
    return sorted(path for path in data_dir.iterdir() if path.is_dir() and _trial_specs(path))


def find_run(name: str, data_dir: Path) -> Path:
    """The run folder of that name in the data folder, or at that path."""
    for path in (data_dir / name, Path(name)):
        if path.is_dir():
            return path
    known = [path.name for path in run_folders(data_dir)] if data_dir.is_dir() else []
    listed = [folder for folder in known if name in folder] or known
    near = " Near: " if listed != known else f"{hint(name, known)} There is: "
    there = f"{near}{listing(listed)}." if known else " There are no runs in it."
    raise LabError(f"{name}: no such run folder, neither in {data_dir} nor as a path.{there}")


def read(folder: Path, trial: int = 0) -> Finished:
    """A run with what its sessions logged; those that stopped early are told, and left out where others did not."""
    run = described(folder, trial)
    logged = _from_tables(run) or _from_metrics(run)
    if not logged:
        expected = run.paths.for_session(0).session_table(run.kind).name
        raise LabError(f"{folder}: no results in it: there is neither info/{expected} nor any other table with rows.")
    complete = tuple(session for session in logged if run.complete(session.frames))
    notes = [_shortfall(run, session) for session in logged if not run.complete(session.frames)]
    if len(logged) < run.planned:
        notes.append(f"{folder.name}: {len(logged)} of {run.planned} sessions have tables.")
    if notes and not complete:
        notes.append(f"{folder.name}: no session is complete; the numbers are those of as far as they went.")
    return replace(run, sessions=complete or logged, done=len(complete), notes=tuple(notes))


def read_result(folder: Path) -> Finished:
    """A run whose score counts: a search is refused."""
    run = read(folder)
    if run.search:
        raise LabError(
            f"{folder}: a search, not a result: its trials differ in their settings, and the best of many is good by "
            "luck too. Train the spec you chose and take that run."
        )
    return run


def described(folder: Path, trial: int = 0) -> Finished:
    """What the saved spec of a run says, without its tables."""
    paths, spec = _spec_of(folder, trial)
    agent, env, meta = (_section(spec, key, paths) for key in ("agent", "env", "meta"))
    fields = (*EnvSpec.model_fields, *EnvSpec.inert, *OLDER)
    missing = [key for key in ("name", "max_frame") if env.get(key) is None]
    if missing:
        raise LabError(f"{paths.trial_spec}: its env has no {' and no '.join(missing)}.")
    planned, mode = _count(meta, "max_session", 1), meta.get("record", {}).get("mode", "unknown")
    log_frequency = _count(meta, "log_frequency", MetaSpec.model_fields["log_frequency"].default)
    evaluated = bool(meta.get("rigorous_eval"))
    return Finished(
        paths=paths,
        spec=spec,
        mode=mode,
        env=str(env["name"]),
        kwargs={key: value for key, value in env.items() if key not in fields},
        algorithm=_label(agent),
        max_frame=_count(env, "max_frame", 0),
        num_envs=_count(env, "num_envs", 1),
        log_frequency=log_frequency,
        planned=planned,
        workers=planned if meta.get("distributed") else 1,
        kind="eval" if evaluated else "train",
        spacing=_count(meta, "eval_frequency", log_frequency) if evaluated else log_frequency,
        search=mode == "search" or _searched(paths),
    )


def trials(folder: Path) -> list[int]:
    """Indices of the trials of a run folder."""
    return sorted({int(match[2]) for match in _trial_specs(folder)})


def read_table(path: Path) -> pd.DataFrame:
    """A session's table; a last row that a kill cut off is left out."""
    try:
        lines = path.read_text().splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"{path}: cannot be read: {error}") from None
    if len(lines) > 1 and lines[-1].count(",") < lines[0].count(","):
        lines.pop()
    table = pd.read_csv(io.StringIO("".join(lines))) if lines else pd.DataFrame()
    missing = [column for column in ("frame", "total_reward", "opt_step") if column not in table]
    if len(table) and missing:
        raise LabError(f"{path}: not the table of a session: no column {', '.join(missing)}.")
    return table.drop_duplicates("frame", keep="last") if len(table) else table


def _from_tables(run: Finished) -> tuple[Logged, ...]:
    found = []
    for k in range(run.planned):
        path = run.paths.for_session(k).session_table(run.kind)
        table = read_table(path) if path.exists() else pd.DataFrame()
        if len(table):
            frames, returns, opt_steps = (
                table[column].to_numpy(dtype=float) for column in ("frame", "total_reward", "opt_step")
            )
            wall_t = float(table["wall_t"].iloc[-1]) if "wall_t" in table else math.nan
            found.append(Logged(k, frames, returns, opt_steps, wall_t))
    return tuple(found)


def _from_metrics(run: Finished) -> tuple[Logged, ...]:
    """The same from the trial's metrics, for folders that were kept without their tables."""
    path = run.paths.trial_metrics
    if not path.exists():
        return ()
    data = read_json(path)
    local = data.get("local", {}) if isinstance(data, dict) else {}
    try:
        series = [
            [np.asarray(values, dtype=float) for values in local[key]]
            for key in ("frames", "mean_returns", "opt_steps")
        ]
        rows = [columns for columns in zip(*series, strict=True) if len(columns[0])]
    except (KeyError, TypeError, ValueError) as error:
        raise LabError(f"{path}: expected in `local` frames, mean_returns and opt_steps by session: {error}") from None
    return tuple(Logged(k, frames, returns, steps, math.nan) for k, (frames, returns, steps) in enumerate(rows))


def _shortfall(run: Finished, session: Logged) -> str:
    reached, planned = engineering(session.frames[-1]), engineering(run.session_frames)
    return f"{run.folder.name}: session {session.session} stopped at frame {reached} of {planned}."


def _trial_specs(folder: Path) -> list[re.Match[str]]:
    """Matches of (name, trial) for the specs of trials in a folder."""
    found = (TRIAL_SPEC.fullmatch(path.name) for path in folder.glob("*_spec.json"))
    return [match for match in found if match]


def _spec_of(folder: Path, trial: int) -> tuple[Paths, dict[str, Any]]:
    if not folder.is_dir():
        raise LabError(f"{folder}: no such run folder.")
    names = [match[1] for match in _trial_specs(folder) if int(match[2]) == trial]
    if not names:
        raise LabError(f"{folder}: not a run folder: there is no <name>_t{trial}_spec.json in it.")
    paths = Paths(folder, min(names, key=len), trial)
    spec = read_json(paths.trial_spec)
    if not isinstance(spec, dict):
        raise LabError(f"{paths.trial_spec}: not the spec of a run.")
    return paths, spec


def _section(spec: Mapping[str, Any], key: str, paths: Paths) -> Mapping[str, Any]:
    """A section of a spec; SLM-Lab 4 wrote agent and env as lists of one."""
    section = spec.get(key)
    if isinstance(section, list) and len(section) == 1:
        section = section[0]
    if not isinstance(section, Mapping):
        raise LabError(f"{paths.trial_spec}: no section `{key}`: not the spec of a run.")
    return section


def _count(section: Mapping[str, Any], key: str, default: int) -> int:
    """A whole number, which may have been saved as 1e6."""
    value = section.get(key)
    try:
        return default if value is None else int(float(value))
    except (TypeError, ValueError):
        raise LabError(f"{key}: expected a number in the saved spec, got {value!r}.") from None


def _label(agent: Mapping[str, Any]) -> str:
    """An algorithm as legends show it."""
    algorithm, memory = (_name(agent.get(key)) for key in ("algorithm", "memory"))
    label = LABELS.get(algorithm, algorithm)
    return f"{label}+PER" if label == "DDQN" and "Prioritized" in memory else label


def _name(component: Any) -> str:
    return str(component.get("name", "")) if isinstance(component, Mapping) else ""


def _searched(paths: Paths) -> bool:
    """Whether a folder has what only a search writes, or more than one trial."""
    return len(trials(paths.predir)) > 1 or any(
        path.exists() for path in (paths.trial_data, paths.experiment_table, paths.ray_tune)
    )
