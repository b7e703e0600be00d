"""What a worker process of envs does: answer the parent's commands, with arrays through shared memory."""

from __future__ import annotations

import faulthandler
import signal
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes import c_byte
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space

from slm_lab.env.engine import SyncEngine, put
from slm_lab.env.spaces import ObsCodec, mask_size
from slm_lab.spec.schema import EnvSpec
from slm_lab.types import Array, Obs, Shape


class Shared:
    """Arrays in memory that the parent and its workers see; must be passed on when a process is started."""

    def __init__(self, codec: ObsCodec, action_space: Space[Any], n: int) -> None:
        obs = codec.empty(n)
        self.keys = list(obs) if isinstance(obs, dict) else None
        parts = {f"obs.{key}": value for key, value in obs.items()} if isinstance(obs, dict) else {"obs": obs}
        self._fields: dict[str, tuple[Any, Shape, np.dtype[Any]]] = {}
        for name, array in parts.items():
            self._add(name, array.shape, array.dtype)
        self._add("action", (n, *(action_space.shape or ())), np.dtype(action_space.dtype))
        self._add("reward", (n,), np.dtype(np.float64))
        self._add("terminated", (n,), np.dtype(bool))
        self._add("truncated", (n,), np.dtype(bool))
        self._add("mask", (n, mask_size(action_space)), np.dtype(bool))

    def _add(self, name: str, shape: Shape, dtype: np.dtype[Any]) -> None:
        size = int(np.prod(shape)) * dtype.itemsize
        self._fields[name] = (get_context("spawn").RawArray(c_byte, max(1, size)), shape, dtype)

    def views(self) -> Views:
        """The arrays of this process over the shared memory."""
        arrays = {
            name: np.ndarray(shape, dtype, buffer=memoryview(raw)) for name, (raw, shape, dtype) in self._fields.items()
        }
        obs = arrays["obs"] if self.keys is None else {key: arrays[f"obs.{key}"] for key in self.keys}
        return Views(obs, *(arrays[name] for name in ("action", "reward", "terminated", "truncated", "mask")))


class Views(NamedTuple):
    """Numpy views of the shared arrays."""

    obs: Obs
    action: Array
    reward: Array
    terminated: Array
    truncated: Array
    mask: Array


class Worker:
    """A block of envs in a worker process: what the parent asks by name, answered through shared memory."""

    def __init__(self, spec: EnvSpec, seeds: Sequence[int], first: int, shared: Shared) -> None:
        self._engine = SyncEngine(spec, seeds)
        self._rows = slice(first, first + len(seeds))
        self._views = shared.views()
        self.commands: dict[str, Callable[[Any], Any]] = {
            "reset": self._reset,
            "step": self._step,
            "current": self._current,
            "state": lambda _: self._engine.state_dict()["slots"],
            "load": lambda slots: self._engine.load_state_dict({"slots": slots}),
        }

    def _reset(self, index: Array) -> bool:
        obs, mask = self._engine.reset(index)
        return self._show(index + self._rows.start, obs, mask)

    def _current(self, _: None) -> bool:
        return self._show(self._rows, *self._engine.current())

    def _show(self, rows: Any, obs: Obs, mask: Array | None) -> bool:
        put(self._views.obs, rows, obs)
        if mask is not None:
            self._views.mask[rows] = mask
        return mask is not None

    def _step(self, _: None) -> None:
        views, rows = self._views, self._rows
        step = self._engine.step(views.action[rows])
        views.reward[rows], views.terminated[rows], views.truncated[rows] = step[1:4]
        self._show(rows, step.obs, step.mask)

    def close(self) -> None:
        self._engine.close()


def serve(
    pipe: Connection, last_words: Connection, spec: EnvSpec, seeds: Sequence[int], first: int, shared: Shared
) -> None:
    """A worker's life: say that it is ready, then answer until told to close, until it fails, or the parent is gone."""
    faulthandler.enable(last_words.fileno())  # where it was, if it crashes below Python or is aborted
    # signals to the whole group are the parent's business: it still wants the envs' state for its checkpoint
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    fine, worker = _attempt(Worker, spec, seeds, first, shared)
    answer = None if fine else worker
    with suppress(EOFError, ConnectionError):  # the parent hung up or is gone
        while fine:
            pipe.send((True, answer))
            command, value = pipe.recv()
            fine, answer = _attempt(worker.commands[command], value)
        pipe.send((False, answer))
    if isinstance(worker, Worker):
        worker.close()


def _attempt(function: Callable[..., Any], *args: Any) -> tuple[bool, Any]:
    """(True, result), or (False, the traceback as text)."""
    try:
        return True, function(*args)
    except Exception:
        return False, traceback.format_exc()
