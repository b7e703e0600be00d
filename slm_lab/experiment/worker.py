"""One session from start to end, in this process or in one of its own, and what it tells whoever started it."""

from __future__ import annotations

import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any

import torch
from loguru import logger

from slm_lab.agent.plan import plan_agent
from slm_lab.experiment.evaluate import evaluate
from slm_lab.experiment.hogwild import Team
from slm_lab.experiment.lock import writing
from slm_lab.experiment.paths import Paths
from slm_lab.experiment.profile import ProfiledSession
from slm_lab.experiment.server import SIGNALS
from slm_lab.experiment.session import Options, Session, SessionResult, Stop
from slm_lab.experiment.tensorboard import Events
from slm_lab.experiment.track import Row
from slm_lab.lib.io import write_json
from slm_lab.lib.log import configure_worker
from slm_lab.lib.rng import seed_of
from slm_lab.spec.load import dump
from slm_lab.spec.schema import Spec


@dataclass(frozen=True)
class Task:
    """Everything a process needs to run one session."""

    spec: Spec  # as recorded for the trial
    paths: Paths  # of this session
    options: Options
    threads: int
    log_level: str
    resume: bool
    team: Team | None = None  # the workers it trains with


@dataclass(frozen=True)
class RowMessage:
    """A session logged a row."""

    row: Row


@dataclass(frozen=True)
class LogMessage:
    """A session has something to say to the person at the terminal."""

    level: str
    text: str


@dataclass(frozen=True)
class DoneMessage:
    """A session ended, by itself or on request."""

    result: SessionResult


@dataclass(frozen=True)
class FailedMessage:
    """A session crashed."""

    reason: str
    traceback: str


@dataclass(frozen=True)
class StoppedMessage:
    """A session ended on request, without a result of its own: what it has is its last checkpoint."""


Message = RowMessage | LogMessage | DoneMessage | FailedMessage | StoppedMessage
Send = Callable[[Message], None]


def run_session(task: Task, send: Send, stop: Stop) -> None:
    """Run a session and report how it went; an exception becomes a message, that of a stop where one was asked for."""
    session: Session | None = None
    torch.set_num_threads(task.threads)
    try:
        with writing(task.paths.models):
            session = _build(task, send, stop)
            result = session.run()
            if isinstance(session, ProfiledSession):
                send(LogMessage("INFO", session.profile.table()))
            if result.finished and task.options.last_episodes:
                write_json(task.paths.session_evaluation, _last_episodes(session, task.options.last_episodes))
            send(DoneMessage(result))
    except Exception as error:
        text = traceback.format_exc()
        logger.debug(text)
        reason = f"{type(error).__name__}: {error}"
        if stop.reason:  # Ctrl-C also ends what a session has started, a C++ compiler say, and then it cannot go on
            send(LogMessage("WARNING", f"interrupted by {stop.reason}: {reason.splitlines()[0]}"))
            send(StoppedMessage())
        else:
            send(FailedMessage(reason, text))
    finally:
        if session is not None:
            session.close()


def _last_episodes(session: Session, episodes: int) -> list[float]:
    """Raw returns of the policy that a session ended with."""
    return evaluate(session.agent, session.spec.env, session.key, session.clock.frame, episodes, deterministic=True)


def _build(task: Task, send: Send, stop: Stop) -> Session:
    index = task.paths.session or 0
    base, trial = task.spec.meta.random_seed, task.paths.trial
    meta = {"session": index, "session_seed": seed_of(base, trial, index)}
    spec = task.spec.model_copy(update={"meta": task.spec.meta.model_copy(update=meta)})
    session = (ProfiledSession if task.options.profile else Session)(
        spec,
        plan_agent(spec.agent, spec.env.num_envs, []),
        (base, trial, index),
        task.paths,
        task.options,
        report=lambda row: send(RowMessage(row)),
        stop=stop,
    )
    resumed = task.resume and session.resume()
    if resumed:
        send(LogMessage("INFO", f"session {index} continues from frame {session.clock.frame}"))
    if task.team is not None:
        session.join(task.team, fresh=not resumed)
    write_json(task.paths.session_spec, dump(spec))
    session.events = Events(task.paths.tensorboard, session.clock.frame)
    return session


def serve(task: Task, pipe: Connection) -> None:
    """The main function of a session's own process."""
    stop = Stop()
    lock = threading.Lock()

    def send(message: Message) -> None:
        try:
            with lock:
                pipe.send(message)
        except OSError:  # nobody listens any more
            stop("the parent process is gone")

    configure_worker(task.log_level, task.paths.session_log, lambda level, text: send(LogMessage(level, text)))
    threading.Thread(target=_watch_parent, args=(pipe, stop), daemon=True).start()
    with signals(stop):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # blocked until somebody listens, see server.py
        run_session(task, send, stop)
    pipe.close()


def _watch_parent(pipe: Connection, stop: Stop) -> None:
    """The parent speaks once, to ask for an end; the end of the pipe means that it is gone."""
    try:
        stop(pipe.recv())
    except (EOFError, OSError):
        stop("the parent process is gone")


@contextmanager
def signals(stop: Stop) -> Iterator[Stop]:
    """Ctrl-C and SIGTERM become a request to stop; a second one ends the process as usual."""
    if threading.current_thread() is not threading.main_thread():
        yield stop  # only the main thread may set handlers
        return
    before: dict[int, Any] = {}

    def handle(number: int, frame: FrameType | None) -> None:
        signal.signal(number, before[number])
        stop(signal.Signals(number).name)

    for wanted in SIGNALS:
        before[wanted] = signal.signal(wanted, handle)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
