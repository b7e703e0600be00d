"""What tests of the benchmark suite share: cells of tiny specs, and records that no training made."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from run_helpers import tiny

from slm_lab.experiment.bench_record import Record, Row, SessionRecord, record_path, write_record
from slm_lab.spec.load import dump
from slm_lab.spec.suite import Cell, spec_hash

FRAMES = 300
CODE = {"sha": "abcdef1234", "dirty": False}


def cell_of(algorithm: str = "A2C", **changes: Any) -> Cell:
    row = {
        "family": "classic",
        "env": "CartPole-v1",
        "algorithm": algorithm,
        "file": "tiny.json",
        "name": f"tiny_{algorithm.lower()}",
        "frames": FRAMES,
        "num_envs": 2,
        "log_frequency": 50,
        "sessions": 2,
        "target": 10,
        "best": 20,
        "source": "docs",
    }
    return Cell(**{**row, **changes})


def tiny_suite(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Writes the spec file that cells load from, and gives what writes it again with changes; no graphs are drawn."""
    monkeypatch.setattr("slm_lab.spec.suite.FOLDER", folder)
    monkeypatch.setattr("slm_lab.experiment.session.session_graphs", lambda *_: None)
    monkeypatch.setattr("slm_lab.experiment.metric_files.trial_graphs", lambda *_: [])
    use_code(CODE, monkeypatch)

    def write(**algorithm: Any) -> None:
        specs = {
            name: tiny(
                kind,
                env={"max_frame": FRAMES, "num_envs": 2},
                meta={"max_session": 2, "log_frequency": 50},
                algorithm=algorithm if kind != "Random" else {},
            )
            for name, kind in (("tiny_a2c", "ActorCritic"), ("tiny_random", "Random"))
        }
        (folder / "tiny.json").write_text(json.dumps(specs))

    write()
    return write


def use_code(code: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs be of this commit: that of the checkout may change while tests run."""
    for module in ("control", "bench_run"):
        monkeypatch.setattr(f"slm_lab.experiment.{module}.git_state", lambda: code)


def record_of(cell: Cell, scores: Sequence[float], head: Sequence[Row] = (), **changes: Any) -> Record:
    sessions = {
        str(k): SessionRecord(
            seed=k,
            frames=FRAMES,
            wall_t=1.0,
            fps=300.0,
            metrics={"total_reward_ma": score},
            curve={"frame": [150.0, 300.0], "total_reward": [score / 2, score]},
            head=list(head),
            evaluation=[score, score + 2],
            commit="abcdef1234",
            clean=True,
        )
        for k, score in enumerate(scores)
    }
    spec = cell.load().spec
    plain = {"format": 1, "mode": "train", "planned": cell.sessions, "versions": {}, "machine": {}, "threads": 1}
    about = {"family": cell.family, "env": cell.env, "algorithm": cell.algorithm, "spec": dump(spec)}
    return Record(**{**plain, **about, "spec_hash": spec_hash(spec), "sessions": sessions, **changes})


def keep(folder: Path, cell: Cell, record: Record) -> Path:
    path = record_path(folder / "results", cell)
    write_record(path, record)
    return path
