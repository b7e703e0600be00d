"""Every file name of a run, once."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Literal

from slm_lab.lib.errors import LabError, hint, listing
from slm_lab.lib.io import make_folder

Kind = Literal["train", "eval"]  # which of a session's two tables
STAMP = re.compile(r"_(\d{4}_\d{2}_\d{2}_\d{6})(?:_(\d+))?$")
TEMPORARY = re.compile(r"\.tmp\d+$")


@dataclass(frozen=True)
class Paths:
    """Where one run keeps its files: the experiment's, those of one trial and, with `session`, those of one session."""

    predir: Path
    name: str
    trial: int = 0
    session: int | None = None

    @classmethod
    def new(cls, data_dir: Path, name: str, now: datetime) -> Paths:
        """A run's own new folder `<name>_<time>`, created so that no run started in the same second takes it too."""
        make_folder(data_dir)
        stamped = f"{name}_{now:%Y_%m_%d_%H%M%S}"
        for number in count(1):
            predir = data_dir / (stamped if number == 1 else f"{stamped}_{number}")
            try:
                predir.mkdir()
            except FileExistsError:
                continue
            except OSError as error:
                raise LabError(f"{predir}: cannot create this folder: {error.strerror or error}") from None
            break
        return cls(predir, name)

    @staticmethod
    def latest(data_dir: Path, name: str) -> Path:
        """The newest folder of exactly this spec name."""
        stamped = [(path, STAMP.search(path.name)) for path in data_dir.glob("*") if path.is_dir()]
        runs = [(path, match) for path, match in stamped if match]
        ours = [(path, match) for path, match in runs if path.name[: match.start()] == name]
        if not ours:
            raise LabError(_no_run(data_dir, name, [path.name for path, _ in runs]))
        return max(ours, key=lambda run: (run[1][1], int(run[1][2] or 1)))[0]

    def for_session(self, session: int) -> Paths:
        return replace(self, session=session)

    def make_folders(self) -> None:
        for folder in ("info", "graph", "log", "model"):
            make_folder(self.predir / folder)

    @property
    def trial_name(self) -> str:
        return f"{self.name}_t{self.trial}"

    @property
    def session_name(self) -> str:
        if self.session is None:
            raise ValueError("these are the paths of a trial: ask for_session(k) first")
        return f"{self.trial_name}_s{self.session}"

    def beside_spec(self, path: Path) -> Path:
        """Where the copy for quick access of a file in a sub-folder stands."""
        return self.predir / path.name

    # specs

    @property
    def experiment_spec(self) -> Path:
        return self.predir / f"{self.name}_spec.json"

    @property
    def trial_spec(self) -> Path:
        return self.predir / f"{self.trial_name}_spec.json"

    @property
    def session_spec(self) -> Path:
        return self.predir / f"{self.session_name}_spec.json"

    # tables and metrics

    def session_table(self, kind: Kind) -> Path:
        return self.predir / "info" / f"{self.session_name}_session_df_{kind}.csv"

    def session_metrics(self, kind: Kind) -> Path:
        return self.predir / "info" / f"{self.session_name}_session_metrics_{kind}.json"

    def session_scalar(self, kind: Kind) -> Path:
        return self.predir / "info" / f"{self.session_name}_session_metrics_scalar_{kind}.json"

    @property
    def session_evaluation(self) -> Path:
        """Returns of the policy a session ended with."""
        return self.predir / "info" / f"{self.session_name}_session_evaluation.json"

    @property
    def session_profile(self) -> Path:
        """With --profile: where a session's time went."""
        return self.predir / "info" / f"{self.session_name}_profile.json"

    @property
    def trial_metrics(self) -> Path:
        return self.predir / "info" / f"{self.trial_name}_trial_metrics.json"

    @property
    def trial_scalar(self) -> Path:
        return self.predir / "info" / f"{self.trial_name}_trial_metrics_scalar.json"

    @property
    def trial_data(self) -> Path:
        """What each trial of a search gave."""
        return self.predir / "info" / f"{self.name}_trial_data_dict.json"

    @property
    def experiment_table(self) -> Path:
        return self.predir / "info" / f"{self.name}_experiment_df.csv"

    # graphs; `what` is e.g. mean_returns_vs_frames

    def session_graph(self, kind: Kind, what: str) -> Path:
        return self.predir / "graph" / f"{self.session_name}_session_graph_{kind}_{what}.png"

    @property
    def flame_graph(self) -> Path:
        """With --profile: a web page."""
        return self.predir / "graph" / f"{self.session_name}_profile.html"

    def trial_graph(self, what: str) -> Path:
        return self.predir / "graph" / f"{self.trial_name}_trial_graph_{what}.png"

    @property
    def experiment_graph(self) -> Path:
        return self.predir / "graph" / f"{self.name}_experiment_graph.png"

    def multi_trial_graph(self, what: str) -> Path:
        return self.predir / "graph" / f"{self.name}_multi_trial_graph_{what}.png"

    # logs

    @property
    def experiment_log(self) -> Path:
        return self.predir / "log" / f"{self.name}.log"

    @property
    def trial_log(self) -> Path:
        return self.predir / "log" / f"{self.trial_name}.log"

    @property
    def session_log(self) -> Path:
        return self.predir / "log" / f"{self.session_name}.log"

    @property
    def tensorboard(self) -> Path:
        return self.predir / "log" / f"{self.session_name}_tb"

    # searches

    def best_spec(self, rank: int) -> Path:
        """The spec of a search's best trials, from rank 1 on, as a file to run."""
        return self.predir / "best" / f"{self.name}_top{rank}.json"

    @property
    def validation(self) -> Path:
        """Where the best specs of a search are trained anew."""
        return self.predir / "validation"

    @property
    def validation_table(self) -> Path:
        return self.predir / f"{self.name}_validation.csv"

    @property
    def ray_tune(self) -> Path:
        return self.predir / "ray_tune"

    def leftovers(self) -> list[Path]:
        """Temporary files of writes that a kill cut off."""
        return [path for path in self.predir.rglob("*.tmp*") if TEMPORARY.search(path.name)]

    def trial_files(self) -> list[Path]:
        """All files of one trial, in whichever folder."""
        own = re.compile(re.escape(self.trial_name) + r"(?!\d)")
        inside = ((path, path.relative_to(self.predir).parts) for path in self.predir.rglob("*") if path.is_file())
        return [path for path, parts in inside if any(own.match(part) for part in parts)]

    # models

    @property
    def models(self) -> Path:
        return self.predir / "model"

    def checkpoint(self, frame: int) -> Path:
        return self.models / f"{self.session_name}_ckpt-{frame}.safetensors"

    @property
    def best(self) -> Path:
        return self.models / f"{self.session_name}_ckpt-best.safetensors"

    def chunk(self, rows: str, start: int, stop: int) -> Path:
        """Rows start <= row < stop of a memory."""
        return self.models / f"{self.session_name}_{rows}-{start}-{stop}.safetensors"

    def chunks(self) -> list[Path]:
        """The session's chunks of rows, of any memory."""
        name = re.compile(re.escape(f"{self.session_name}_") + r"\w+-\d+-\d+\.safetensors")
        return [path for path in self.models.glob("*.safetensors") if name.fullmatch(path.name)]

    def checkpoints(self) -> list[Path]:
        """The session's checkpoints, newest first, without the best."""
        return [path for _, path in self._numbered()]

    def newest_frame(self) -> int | None:
        """The frame of the session's newest checkpoint, where it has one."""
        return next((frame for frame, _ in self._numbered()), None)

    def _numbered(self) -> list[tuple[int, Path]]:
        name = re.compile(re.escape(f"{self.session_name}_ckpt-") + r"(\d+)\.safetensors")
        found = [(path, name.fullmatch(path.name)) for path in self.models.glob("*.safetensors")]
        return sorted(((int(match[1]), path) for path, match in found if match), reverse=True)


def _no_run(data_dir: Path, name: str, folders: list[str]) -> str:
    """Why there is no latest run: what there is instead, newest first."""
    if not folders:
        return f"{data_dir}: no run of spec {name!r}; there are no runs in this folder."
    by_age = sorted(folders, key=lambda folder: STAMP.sub(r" \1", folder).rsplit(" ", 1)[1], reverse=True)
    names = sorted({STAMP.sub("", folder) for folder in folders})
    return f"{data_dir}: no run of spec {name!r}.{hint(name, names)} There is: {listing(by_age)}."
