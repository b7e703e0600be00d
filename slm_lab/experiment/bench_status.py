"""How the suite stands: what each cell's record says, by one rule."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from slm_lab.experiment.analysis import engineering
from slm_lab.experiment.bench_record import Record, read_record, record_path
from slm_lab.lib.columns import columns
from slm_lab.lib.errors import LabError
from slm_lab.spec.suite import Cell, spec_hash

RULE = (
    "A cell's score is the mean over all its sessions of `total_reward_ma`. It is *beaten* above the best published "
    "score and at or above the target where there is one, *met* at or above the target, *recorded* where there is "
    "neither target nor published score, else *below*. *Drifted*: the spec was changed since, or the code no longer "
    "gives the rows that were recorded first."
)


@dataclass(frozen=True)
class Judged:
    """A cell, its record where there is a sound one, and how it stands; `note` gives the reason where one is needed."""

    cell: Cell
    record: Record | None
    verdict: str
    note: str = ""


def judge(cell: Cell, results: Path) -> Judged:
    """How a cell stands."""
    path = record_path(results, cell)
    if not path.exists():
        return Judged(cell, None, "not run")
    try:
        record = read_record(path)
        wanted = spec_hash(cell.load().spec)
    except LabError as error:
        return Judged(cell, None, "refused", str(error))
    if not record.complete:
        return Judged(cell, record, "incomplete", f"{len(record.sessions)} of {record.planned} sessions")
    if record.spec_hash != wanted:
        return Judged(cell, record, "drifted", "the spec has changed since")
    if record.verified is not None and not record.verified["same"]:
        return Judged(cell, record, "drifted", f"the code of {record.verified['commit'][:7]} gives other rows")
    return Judged(cell, record, _verdict(cell, record.score))


def _verdict(cell: Cell, score: float) -> str:
    """NaN reaches nothing."""
    if cell.best is not None and score > cell.best and (cell.target is None or score >= cell.target):
        return "beaten"
    if cell.target is None:
        return "below" if cell.best is not None else "recorded"
    return "met" if score >= cell.target else "below"


def matrix(judged: Iterable[Judged]) -> str:
    """One line a cell, and how many there are of each kind."""
    judged = list(judged)
    header = ("env", "algorithm", "frames", "target", "best", "score", "")
    rows = [header] + [
        (
            item.cell.env,
            item.cell.algorithm,
            engineering(item.cell.frames),
            shown(item.cell.target),
            shown(item.cell.best),
            shown(item.record.score) if item.record else "-",
            item.verdict + (f": {item.note}" if item.note else ""),
        )
        for item in judged
    ]
    kinds = [item.verdict for item in judged]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    return "\n".join([*columns(rows), "", f"{counted(len(judged))}: {counts}"])


def counted(cells: int) -> str:
    """`1 cell`, `2 cells`."""
    return f"{cells} cell{'s' * (cells != 1)}"


def shown(value: float | None) -> str:
    """A score with as many digits as it can bear."""
    if value is None or value != value:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.2f}".rstrip("0").rstrip(".")
