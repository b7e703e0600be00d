"""Whether the code still gives what a cell's record holds."""

from __future__ import annotations

from pathlib import Path

from slm_lab.experiment.bench_record import head_frames, read_record, record_path, write_record
from slm_lab.experiment.record import git_state
from slm_lab.experiment.verify import Verified, differences, first_rows, surroundings
from slm_lab.lib.errors import LabError
from slm_lab.spec.load import from_mapping
from slm_lab.spec.suite import Cell


def verify_cell(cell: Cell, results: Path) -> Verified | None:
    """The first rows of the cell's first recorded session, compared; None without a record.

    Noted in it, but for a difference that may come from elsewhere than the code.
    """
    path = record_path(results, cell)
    if not path.exists():
        return None
    record = read_record(path)
    if not record.sessions:
        return None
    first = min(record.sessions, key=int)
    head = record.sessions[first].head
    if not head:
        raise LabError(f"{path}: session {first} has no first rows: there is nothing to compare.")
    spec = from_mapping(record.spec, str(record.spec["name"])).spec
    frames = min(head_frames(cell.log_frequency, cell.num_envs), spec.session_frames)
    lines = differences(head, first_rows(spec, spec.meta.trial or 0, int(first), frames))
    around = surroundings({"versions": record.versions, "machine": record.machine})
    found = Verified(len(head), frames, lines, around)
    if not found.foreign:
        verified = {"commit": git_state()["sha"], "same": not lines}
        write_record(path, record.model_copy(update={"verified": verified}))
    return found
