"""Whether the code still gives what a cell's record holds."""

from __future__ import annotations

from pathlib import Path

from slm_lab.experiment.bench_record import head_frames, read_record, record_path, write_record
from slm_lab.experiment.record import git_state
from slm_lab.experiment.verify import differences, first_rows
from slm_lab.spec.load import from_mapping
from slm_lab.spec.suite import Cell


def verify_cell(cell: Cell, results: Path) -> list[str] | None:
    """What differs in the first rows of the cell's first recorded session, noted in the record; None without one."""
    path = record_path(results, cell)
    if not path.exists():
        return None
    record = read_record(path)
    if not record.sessions:
        return None
    first = min(record.sessions, key=int)
    spec = from_mapping(record.spec, str(record.spec["name"])).spec
    now = first_rows(spec, spec.meta.trial or 0, int(first), head_frames(cell.log_frequency))
    lines = differences(record.sessions[first].head, now)
    verified = {"commit": git_state()["sha"], "same": not lines}
    write_record(path, record.model_copy(update={"verified": verified}))
    return lines
