"""Working through the suite: sessions of several cells side by side, each recorded as soon as it is finished."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from loguru import logger

from slm_lab.experiment.bench_record import Record, new_record, read_record, record_path, session_record, write_record
from slm_lab.experiment.bench_status import counted
from slm_lab.experiment.control import Prepared, RunOptions, begin, prepare, prepare_rest, trial_of
from slm_lab.experiment.display import Display
from slm_lab.experiment.lock import alone
from slm_lab.experiment.paths import Paths
from slm_lab.experiment.pool import Pool
from slm_lab.experiment.record import git_state
from slm_lab.experiment.server import warm_up
from slm_lab.experiment.session import Stop
from slm_lab.experiment.trial import Trial
from slm_lab.experiment.worker import DoneMessage, FailedMessage, LogMessage, Message, RowMessage, Task, signals
from slm_lab.lib.cores import cores
from slm_lab.lib.errors import LabError, RunError
from slm_lab.spec.load import Loaded
from slm_lab.spec.suite import Cell, spec_hash

EPISODES = 100  # of the policy each session ends with
THREADS = 1  # of torch in a session, so that numbers do not follow from the number of cores
BUDGET_SPENT = "time budget"

# how long a frame takes, against one of PPO on classic control: only the order of work follows from it
DEAR_ALGORITHMS = {"SAC": 15.0, "CrossQ": 20.0, "DQN": 3.0, "DDQN+PER": 4.0}
DEAR_FAMILIES = {"box2d": 1.5, "mujoco": 2.0, "playground": 5.0, "atari": 20.0}


def cost(cell: Cell) -> float:
    """Roughly how long a cell takes, in frames of the cheapest kind."""
    return cell.frames * cell.sessions * DEAR_ALGORITHMS.get(cell.algorithm, 1.0) * DEAR_FAMILIES.get(cell.family, 1.0)


@dataclass(frozen=True)
class Place:
    """A session of a cell."""

    cell: str
    session: int


@dataclass
class Open:
    """A cell that is being worked on."""

    cell: Cell
    run: Prepared
    trial: Trial
    record: Record


@dataclass
class Standing:
    """How far a running session is."""

    share: float = 0.0
    score: float = float("nan")


Report = Callable[[dict[Place, Standing], int, int], None]  # running sessions, sessions done, sessions in all


@dataclass
class Bench:
    """Runs what the records do not hold yet, cheapest first; a second call goes on where the first was stopped."""

    cells: Sequence[Cell]
    results: Path
    options: RunOptions
    report: Report
    stop: Stop = field(default_factory=Stop)
    failures: list[str] = field(default_factory=list)
    _held: ExitStack = field(default_factory=ExitStack)  # the locks of open runs
    _open: dict[str, Open] = field(default_factory=dict)
    _running: dict[Place, Standing] = field(default_factory=dict)
    _done: int = 0
    _total: int = 0

    def run(self, seconds: float | None = None) -> bool:
        """Work until all is recorded, until a signal, or for so long; True when nothing is left to do."""
        queue = deque(self._missing())
        self._total = len(queue)
        if not queue:
            if not self.failures:
                logger.info(f"nothing to do: all sessions of {counted(len(self.cells))} are recorded")
            return not self.failures
        timer = threading.Timer(seconds, self.stop, [BUDGET_SPENT]) if seconds is not None else None
        warm_up()
        with self._held, signals(self.stop):
            if timer is not None:
                timer.daemon = True
                timer.start()
            Pool(self._task, self._tell, self.stop).run(queue, min(self.options.jobs or cores(), self._total))
            if timer is not None:
                timer.cancel()
        return not queue and not self.failures and self._done == self._total

    def _missing(self) -> list[Place]:
        """Sessions that no record of today's spec holds, cheapest cells first."""
        places = list[Place]()
        for cell in sorted(self.cells, key=cost):
            try:
                wanted = spec_hash(cell.load().spec)
            except LabError as error:
                self.failures.append(f"{cell.id}: {error}")
                continue
            record = self._recorded(cell, wanted)
            done = record.sessions if record else {}
            places += [Place(cell.id, k) for k in range(cell.sessions) if str(k) not in done]
        return places

    def _recorded(self, cell: Cell, wanted: str) -> Record | None:
        """The cell's record, unless it is of another spec or not to be trusted: then the cell is run anew."""
        path = record_path(self.results, cell)
        if not path.exists():
            return None
        with suppress(LabError):
            record = read_record(path)
            return record if record.spec_hash == wanted else None
        return None

    def _task(self, place: Place) -> Task:
        if place.cell not in self._open:
            cell = next(cell for cell in self.cells if cell.id == place.cell)
            try:
                self._open[place.cell] = self._begin(cell)
            except LabError as error:  # the others go on
                raise RunError(str(error)) from None
        return self._open[place.cell].trial.task(place.session)

    def _begin(self, cell: Cell) -> Open:
        """Open the cell's run: the one that was interrupted, or a new one."""
        loaded = cell.load()
        run = self._interrupted(loaded) or prepare(loaded, "train", replace(self.options, threads=THREADS))
        self._held.enter_context(alone(run.paths.predir, run.paths.models))
        begin(run)
        display = Display(run.spec.name, run.spec.meta.max_session, run.spec.session_frames)
        trial = trial_of(replace(run, resume=True), "train", self.options, display, EPISODES)
        record = self._recorded(cell, spec_hash(loaded.spec)) or new_record(cell, run.spec)
        logger.info(f"{cell.id}: {'continuing' if run.resume else 'writing to'} {run.paths.predir}")
        return Open(cell, run, trial, record)

    def _interrupted(self, loaded: Loaded) -> Prepared | None:
        """The newest run of a spec, where that and the code, whose commit it names, are still the same."""
        with suppress(LabError):
            folder = Paths.latest(self.options.data_dir, loaded.spec.name)
            run, now = prepare_rest(loaded, "train", folder, self.options), git_state()
            was = {"sha": run.spec.meta.git_sha, "dirty": run.spec.meta.record.get("git_dirty")}
            if was == now:
                return run
            logger.warning(f"{folder}: made by other code ({_short(was)}, now {_short(now)}); begun anew")
        return None

    def _tell(self, place: Place, message: Message | None) -> None:
        if message is None:
            self._running[place] = Standing()
        elif isinstance(message, RowMessage):
            frames = self._open[place.cell].cell.frames
            score = float(message.row["total_reward_ma"])
            self._running[place] = Standing(float(message.row["frame"]) / frames, score)
        elif isinstance(message, LogMessage):
            logger.log(message.level, f"{place.cell} session {place.session}: {message.text}")
        else:
            self._running.pop(place, None)
            self._ended(place, message)
        self.report(self._running, self._done, self._total)

    def _ended(self, place: Place, message: Message) -> None:
        if isinstance(message, FailedMessage):
            self.failures.append(f"{place.cell} session {place.session}: {message.reason}")
            logger.error(
                f"{place.cell} session {place.session} crashed: {message.reason}\n{message.traceback}".rstrip()
            )
        elif isinstance(message, DoneMessage) and message.result.finished:
            self._done += 1
            self._keep(self._open[place.cell], place.session)

    def _keep(self, work: Open, session: int) -> None:
        """Put a finished session into the cell's record, at once."""
        found = session_record(work.trial.spec, work.run.paths.for_session(session))
        work.record = work.record.model_copy(update={"sessions": {**work.record.sessions, str(session): found}})
        write_record(record_path(self.results, work.cell), work.record)
        logger.info(f"{work.cell.id} session {session}: total_reward_ma {found.score:.2f}")
        if work.record.complete:
            work.trial.sum_up()
            logger.info(f"{work.cell.id}: {work.record.score:.2f}, mean of {work.record.planned} sessions")


def _short(code: dict[str, Any]) -> str:
    """A commit as the page shows it: `+` where the code was changed since."""
    return f"{str(code['sha'])[:7]}{'+' * bool(code['dirty'])}"
