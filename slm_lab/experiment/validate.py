"""The best specs of a search trained anew on seeds that it never used: the only numbers of a search that count."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
from loguru import logger
from rich.console import Console

from slm_lab.experiment.analysis import format_number
from slm_lab.experiment.control import Logging, RunOptions, RunResult, resume, start
from slm_lab.experiment.finished import read
from slm_lab.experiment.paths import Paths
from slm_lab.experiment.search_record import Drawn, SearchRecord
from slm_lab.experiment.statistics import interval, mean
from slm_lab.lib.errors import LabError
from slm_lab.lib.io import write_text
from slm_lab.spec.load import load

COLUMNS = ("rank", "trial", "search_score", "validated_score", "low", "high", "sessions", "folder")


def validate(paths: Paths, record: SearchRecord, options: RunOptions, logging: Logging) -> str:
    """Train the best specs, or the rest of them; the signal that ended this early, or nothing."""
    own, rows = replace(options, data_dir=paths.validation), list[dict[str, Any]]()
    for rank, trial in enumerate([trial for trial in record.ranked() if not trial.rank[0]][: options.validate], 1):
        logger.info(f"validating rank {rank}, trial {trial.trial}, on seeds that the search did not use")
        result = _train(paths, rank, own, logging)
        if result.trial is not None and not result.trial.complete:
            return result.trial.stopped or "failed"
        rows.append(_row(rank, trial, result))
        table = pd.DataFrame(rows, columns=list(COLUMNS))
        write_text(paths.validation_table, table.to_csv(index=False))  # after each: what is there counts
    for row in rows:
        bounds = ", ".join(format_number("total_reward_ma", row[key]) for key in ("low", "high"))
        scores = [format_number("total_reward_ma", row[key]) for key in ("search_score", "validated_score")]
        Console().out(
            f"rank {row['rank']}, trial {row['trial']}: {scores[0]} in the search, validated {scores[1]} [{bounds}]",
            highlight=False,
        )
    return ""


def _train(paths: Paths, rank: int, options: RunOptions, logging: Logging) -> RunResult:
    """A run of a best spec: a new one, or the rest of one that is there."""
    name = f"{paths.name}_top{rank}"
    loaded = load(paths.best_spec(rank), name)
    try:
        begun = Paths.latest(options.data_dir, name)
    except LabError:
        return start(loaded, "train", options, logging)
    return resume(loaded, "train", str(begun), options, logging)


def _row(rank: int, trial: Drawn, result: RunResult) -> dict[str, Any]:
    run = read(result.predir)
    found = interval(mean, {run.env_key: run.scores})
    values = (rank, trial.trial, trial.score, found.value, found.low, found.high, len(run.scores), result.predir.name)
    return dict(zip(COLUMNS, values, strict=True))
