"""What a search knows of its trials, in one file that only its driver writes: enough to go on after a kill.

Scores and frames of a running trial are in its session tables; here is what was drawn for it and how it ended.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from slm_lab.experiment.paths import Paths
from slm_lab.lib.errors import LabError
from slm_lab.lib.io import read_json, write_json

Ending = Literal["running", "done", "stopped", "failed"]
ENDINGS: tuple[Ending, ...] = ("running", "done", "stopped", "failed")


@dataclass(frozen=True)
class Drawn:
    """One trial of a search."""

    trial: int
    drawn: Mapping[str, float]  # path -> what the sampler drew
    values: Mapping[str, Any]  # path -> what the spec holds for it
    status: Ending = "running"  # stopped: by the scheduler, as others do better
    frame: int = 0
    score: float = math.nan  # total_reward_ma
    failures: int = 0
    reason: str = ""  # why it failed

    @property
    def rank(self) -> tuple[bool, bool, float, int]:
        """Smaller is better: trials with a score first, of these the whole ones, by score; NaN beats nothing."""
        scored = math.isfinite(self.score) and self.status != "failed"
        return not scored, self.status != "done", -self.score if scored else 0.0, self.trial


@dataclass
class SearchRecord:
    """All trials of a search by number, kept on disk."""

    path: Path
    trials: dict[int, Drawn] = field(default_factory=dict)

    @classmethod
    def at(cls, paths: Paths) -> SearchRecord:
        """What a search folder says; nothing where there is no file yet."""
        record = cls(paths.trial_data)
        if record.path.exists():
            record.trials = {trial.trial: trial for trial in _read(record.path)}
        return record

    def put(self, trial: Drawn) -> None:
        """Add a trial or replace it; on disk when this returns."""
        self.trials[trial.trial] = trial
        write_json(self.path, {str(number): asdict(found) for number, found in sorted(self.trials.items())})

    def saw(self, number: int, frame: int, score: float) -> None:
        """Where a trial stands, kept in memory: after a kill its tables say it again."""
        self.trials[number] = replace(self.trials[number], frame=frame, score=score)

    def ended(self, number: int, status: Ending, reason: str = "") -> None:
        self.put(replace(self.trials[number], status=status, reason=reason))

    def failed_once(self, number: int) -> None:
        """A failure that is tried again."""
        self.put(replace(self.trials[number], failures=self.trials[number].failures + 1))

    def ranked(self) -> list[Drawn]:
        """The best first."""
        return sorted(self.trials.values(), key=lambda trial: trial.rank)

    def of(self, *endings: Ending) -> list[Drawn]:
        """Trials with one of these endings, by number."""
        return [trial for _, trial in sorted(self.trials.items()) if trial.status in endings]


@dataclass(frozen=True)
class SearchResult:
    """What a search came to."""

    record: SearchRecord
    planned: int
    stopped: str  # the signal that ended it early, or nothing

    @property
    def complete(self) -> bool:
        """Whether all trials have ended, one of them with a score, and nothing was cut short."""
        ended = self.record.of("done", "stopped", "failed")
        return not self.stopped and len(ended) == self.planned and any(not trial.rank[0] for trial in ended)


def _read(path: Path) -> Iterator[Drawn]:
    data = read_json(path)
    for number, entry in data.items() if isinstance(data, dict) else ():
        try:
            score = math.nan if entry["score"] is None else float(entry["score"])
            found = Drawn(**{**entry, "score": score})
        except (TypeError, KeyError, ValueError):
            raise LabError(
                f"{path}: trial {number} cannot be read; this is not a file of this version's search."
            ) from None
        if found.status not in ENDINGS:
            raise LabError(f"{path}: trial {number}: unknown status {found.status!r}; known: {', '.join(ENDINGS)}.")
        yield found
