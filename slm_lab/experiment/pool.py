"""Sessions in processes of their own: as many at once as there is room for, listened to until all have ended."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable
from multiprocessing.connection import Connection, wait
from typing import Generic, Protocol, TypeVar

from slm_lab.experiment.child import start
from slm_lab.experiment.session import Stop
from slm_lab.experiment.worker import DoneMessage, FailedMessage, Message, StoppedMessage, Task
from slm_lab.lib.errors import RunError

PATIENCE = 120.0  # seconds a session may take to write its checkpoint and end, once asked
K = TypeVar("K", bound=Hashable)


class Child(Protocol):
    """A session that runs somewhere else, and the pipe it talks through."""

    pipe: Connection

    def ask_to_end(self, reason: str) -> None: ...

    def kill(self) -> None: ...

    def ended(self, timeout: float) -> str:
        """How it ended, in words."""
        ...


Start = Callable[[Task], Child]


class Pool(Generic[K]):
    """Runs the tasks behind keys in order; `tell` hears of every start, which is None, and all they say."""

    def __init__(
        self,
        task: Callable[[K], Task],
        tell: Callable[[K, Message | None], None],
        stop: Stop,
        begin: Start = start,
    ) -> None:
        self._task, self._tell, self._stop, self._begin = task, tell, stop, begin
        self._running: dict[K, Child] = {}
        self._ended = set[K]()  # those that said how they ended

    def run(self, queue: deque[K], jobs: int) -> None:
        """Keep `jobs` of them running until none is left, or until asked to stop."""
        asked_at: float | None = None
        try:
            while self._running or (queue and not self._stop.reason):
                while queue and len(self._running) < jobs and not self._stop.reason:
                    self._start(queue.popleft())
                if self._stop.reason and asked_at is None:
                    asked_at = time.monotonic()
                    for child in self._running.values():
                        child.ask_to_end(self._stop.reason)
                if asked_at is not None and time.monotonic() - asked_at > PATIENCE:
                    self._kill()
                self._listen()
        finally:
            self._kill()

    def _kill(self) -> None:
        for child in self._running.values():
            child.kill()

    def _start(self, key: K) -> None:
        try:
            self._running[key] = self._begin(self._task(key))
        except RunError as error:
            self._tell(key, FailedMessage(str(error), ""))
        else:
            self._tell(key, None)

    def _listen(self) -> None:
        """Take in what sessions say, for a moment; forget those that ended."""
        pipes = {child.pipe: key for key, child in self._running.items()}
        for pipe in wait(list(pipes), timeout=0.2):
            assert isinstance(pipe, Connection)
            key = pipes[pipe]
            try:
                message: Message = pipe.recv()
            except (EOFError, OSError):
                self._end(key)
                continue
            if isinstance(message, DoneMessage | FailedMessage | StoppedMessage):
                self._ended.add(key)
            self._tell(key, message)

    def _end(self, key: K) -> None:
        how = self._running.pop(key).ended(timeout=10)
        if key in self._ended:
            return
        if self._stop.reason:  # a signal to all of us came before it could listen
            self._tell(key, StoppedMessage())
        else:
            self._tell(key, FailedMessage(how, ""))
