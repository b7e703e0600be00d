"""Run folders written by hand: what this lab and public SLM-Lab leave on disk, without training."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slm_lab.experiment.paths import Kind, Paths

EVERY = 100  # frames between rows


def saved_spec(
    name: str = "x",
    algorithm: str = "PPO",
    env: Mapping[str, Any] | None = None,
    meta: Mapping[str, Any] | None = None,
    **agent: Any,
) -> dict[str, Any]:
    """A spec as a run saves it; `agent` adds sections such as memory."""
    return {
        "name": name,
        "agent": {"name": algorithm, "algorithm": {"name": algorithm, "gamma": 0.99}, **agent},
        "env": {"name": "CartPole-v1", "num_envs": 4, "max_frame": 400, **(env or {})},
        "meta": {"max_session": 2, "log_frequency": EVERY, "record": {"mode": "train"}, **(meta or {})},
    }


def write_run(folder: Path, returns: Sequence[Sequence[float]], spec: Mapping[str, Any] | None = None) -> Path:
    """A run folder with a table of `returns` for each session, a row every 100 frames; as many sessions are planned."""
    planned = {"max_session": len(returns)}
    spec = dict(spec or saved_spec(meta=planned))
    paths = write_spec_only(folder, spec)
    for k, series in enumerate(returns):
        for kind in ("train", "eval"):
            write_table(paths, k, kind, series)
    return folder


def write_spec_only(folder: Path, spec: Mapping[str, Any], trial: int = 0) -> Paths:
    paths = Paths(folder, spec["name"], trial)
    paths.make_folders()
    paths.experiment_spec.write_text(json.dumps(spec))
    paths.trial_spec.write_text(json.dumps(spec))
    return paths


def write_table(paths: Paths, session: int, kind: Kind, returns: Sequence[float]) -> Path:
    """A session's table with the columns that every lab writes; gradient steps are 0, 10, 20, ..."""
    path = paths.for_session(session).session_table(kind)
    rows = ["total_reward,frame,wall_t,opt_step,lr"]
    rows += [f"{value},{EVERY * (i + 1)},{i},{10 * i},0.001" for i, value in enumerate(returns)]
    path.write_text("\n".join(rows) + "\n")
    return path
