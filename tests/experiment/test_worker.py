"""What a session tells whoever started it about its end."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from run_helpers import tiny_spec

from slm_lab.experiment.paths import Paths
from slm_lab.experiment.pool import Pool
from slm_lab.experiment.session import Options, Session, SessionResult, Stop
from slm_lab.experiment.worker import FailedMessage, LogMessage, Message, StoppedMessage, Task, run_session
from slm_lab.lib.errors import RunError


def a_task(folder: Path) -> Task:
    paths = Paths(folder, "tiny").for_session(0)
    paths.make_folders()
    return Task(tiny_spec(), paths, Options(), 1, "INFO", False)


def told_by(task: Task) -> list[Message]:
    told = list[Message]()
    run_session(task, told.append, Stop())
    return told


def test_an_error_is_told_with_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Session) -> SessionResult:
        raise RunError("no compiler\nand how it was called")

    monkeypatch.setattr(Session, "run", broken)
    (message,) = told_by(a_task(tmp_path))
    assert isinstance(message, FailedMessage)
    assert message.reason == "RunError: no compiler\nand how it was called"
    assert message.traceback.startswith("Traceback")


def test_an_error_after_a_request_to_stop_is_a_stop_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(session: Session) -> SessionResult:
        session.stop("SIGINT")  # as a terminal's Ctrl-C, which the compiler that it waits for got too
        raise RunError("no compiler\nand how it was called")

    monkeypatch.setattr(Session, "run", interrupted)
    said = "interrupted by SIGINT: RunError: no compiler"
    assert told_by(a_task(tmp_path)) == [LogMessage("WARNING", said), StoppedMessage()]


@dataclass
class Ended:
    """A child that has said all it had to say, and is gone."""

    said: list[Message]
    pipe: Connection = field(init=False)

    def __post_init__(self) -> None:
        self.pipe, theirs = Pipe()
        for message in self.said:
            theirs.send(message)
        theirs.close()

    def ask_to_end(self, reason: str) -> None:
        """It has ended."""

    def kill(self) -> None:
        """It has ended."""

    def ended(self, timeout: float) -> str:
        return "its process ended with exit code 1"


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        ([StoppedMessage()], [None, StoppedMessage()]),
        ([FailedMessage("broken", "")], [None, FailedMessage("broken", "")]),
        ([], [None, FailedMessage("its process ended with exit code 1", "")]),
    ],
)
def test_a_pool_hears_once_how_a_session_ended(
    said: list[Message], heard: list[Message | None], tmp_path: Path
) -> None:
    told = list[Message | None]()
    task = a_task(tmp_path)
    Pool[int](lambda _: task, lambda _, message: told.append(message), Stop(), lambda _: Ended(said)).run(deque([0]), 1)
    assert told == heard
