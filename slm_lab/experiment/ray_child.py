"""Sessions on the nodes of a Ray cluster: each in a worker of its own, which calls back and talks as a process does.

The connection is one of multiprocessing, kept for those who hold a key that goes to the worker with its task. It ends
when either side does, so that a session whose run is gone stops by itself.
"""

from __future__ import annotations

import secrets
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import AuthenticationError, Pipe
from multiprocessing.connection import Client, Connection, Listener

import ray
from ray.util import get_node_ip_address

from slm_lab.experiment.cluster import Room, cluster, must_see
from slm_lab.experiment.pool import Start
from slm_lab.experiment.worker import FailedMessage, Task, serve


@contextmanager
def sessions_on(address: str) -> Iterator[tuple[Start, Room]]:
    """How sessions are started on the cluster at an address, and what room it has."""
    with cluster(address) as room:
        yield RayChild, room


@ray.remote(max_calls=1, max_retries=0)  # a worker that ran a session is not used again, as its threads are set
def _session(task: Task, address: tuple[str, int], key: bytes, modules: Sequence[str]) -> None:
    """Run one session on a node and say how it goes; `modules` are folders in which a spec's own ones may lie."""
    sys.path.extend(place for place in modules if place not in sys.path)  # last, so that they shadow nothing
    with Client(address, authkey=key) as pipe:
        try:
            must_see(task.paths.predir, task.paths.trial_spec)
        except Exception as error:
            pipe.send(FailedMessage(str(error), ""))
            return
        serve(task, pipe)


class RayChild:
    """A session on the cluster, on whichever node has room, and the pipe that brings what it says."""

    def __init__(self, task: Task) -> None:
        key, host = secrets.token_bytes(32), get_node_ip_address()  # type: ignore[no-untyped-call]
        self._listener = Listener((host, 0), authkey=key)
        placed = replace(task, paths=replace(task.paths, predir=task.paths.predir.resolve()))
        called = _session.options(num_cpus=task.threads, name=f"session {task.paths.session}")
        self._place = called.remote(placed, self._listener.address, key, sys.path)  # Ray's name of the result to come
        self.pipe, self._inlet = Pipe(duplex=False)
        self._far: Connection | None = None  # the session, once it has called
        self._asked, self._lock = "", threading.Lock()
        for job in (self._listen, self._give_up):
            threading.Thread(target=job, daemon=True).start()

    def ask_to_end(self, reason: str) -> None:
        with self._lock, suppress(OSError):  # it has ended already
            self._asked = reason
            if self._far is not None:
                self._far.send(reason)

    def kill(self) -> None:
        with suppress(Exception):  # it has ended already, or the cluster has
            ray.cancel(self._place, force=True)

    def ended(self, timeout: float) -> str:
        """How its worker ended."""
        done, _ = ray.wait([self._place], timeout=timeout)
        try:
            ray.get(done)
        except Exception as error:
            return f"its worker on the cluster is gone: {str(error).strip().splitlines()[0]}"
        return "its worker on the cluster ended" if done else "its worker on the cluster does not end"

    def _listen(self) -> None:
        """Hand on what the session says; the pipe ends when it does, or when it ends without having called."""
        lost = suppress(OSError, EOFError, AuthenticationError)
        with self._inlet, lost, self._listener, self._listener.accept() as far:
            with self._lock:
                self._far = far
                if self._asked:
                    far.send(self._asked)
            while True:
                self._inlet.send(far.recv())

    def _give_up(self) -> None:
        """Stop listening where the session's worker ends without having called."""
        while self._far is None:
            done, _ = ray.wait([self._place], timeout=1.0)
            if done and self._far is None:
                with suppress(OSError, EOFError, AuthenticationError):
                    Client(self._listener.address, authkey=b"nobody").close()  # wakes the accept up, which refuses it
                return
