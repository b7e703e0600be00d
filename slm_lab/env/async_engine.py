"""Envs in worker processes: commands by pipes, arrays through shared memory, the same numbers as in one process."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes import c_byte
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space

from slm_lab.env.engine import SyncEngine, Transition, put, take
from slm_lab.env.slot import Slot
from slm_lab.env.spaces import ObsCodec, mask_size
from slm_lab.lib.cores import cores
from slm_lab.lib.errors import RunError
from slm_lab.lib.process import without_main
from slm_lab.spec.schema import EnvSpec
from slm_lab.types import Array, Obs, Shape, State

JOIN_SECONDS = 5.0


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


def serve(pipe: Connection, spec: EnvSpec, seeds: Sequence[int], first: int, shared: Shared) -> None:
    """A worker's life: answer commands until told to close, until one fails, or until the parent is gone."""
    # signals to the whole group are the parent's business: it still wants the envs' state for its checkpoint
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    fine, worker = _attempt(Worker, spec, seeds, first, shared)
    answer = worker
    with suppress(EOFError, ConnectionError):  # the parent hung up or is gone
        while fine:
            command, value = pipe.recv()
            fine, answer = _attempt(worker.commands[command], value)
            if fine:
                pipe.send((True, answer))
        pipe.send((False, answer))
    if isinstance(worker, Worker):
        worker.close()


def _attempt(function: Callable[..., Any], *args: Any) -> tuple[bool, Any]:
    """(True, result), or (False, the traceback as text)."""
    try:
        return True, function(*args)
    except Exception:
        return False, traceback.format_exc()


class AsyncEngine:
    """Envs stepped in worker processes, a block of them in each; observations come back through shared memory."""

    def __init__(self, spec: EnvSpec, seeds: Sequence[int]) -> None:
        probe = Slot(spec, seeds[0])
        self.num_envs = len(seeds)
        self.observation_space, self.action_space = probe.env.observation_space, probe.env.action_space
        probe.close()
        shared = Shared(probe.codec, self.action_space, self.num_envs)
        self._views = shared.views()
        self._masked = False  # known from the first reset on
        self._blocks = np.array_split(np.arange(self.num_envs), min(self.num_envs, cores()))
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []
        # also runs when this object goes or the interpreter ends, before multiprocessing waits for its children
        self._finish = Finalize(self, _stop, args=(self._pipes, self._processes), exitpriority=10)
        for block in self._blocks:
            self._start(spec, [seeds[i] for i in block], int(block[0]), shared)

    def _start(self, spec: EnvSpec, seeds: list[int], first: int, shared: Shared) -> None:
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs, spec, seeds, first, shared), daemon=True)
        with without_main():
            process.start()
        theirs.close()  # so that a dead worker reads as the end of its pipe
        self._pipes.append(ours)
        self._processes.append(process)

    def reset(self, index: Array) -> tuple[Obs, Array | None]:
        local = {w: index[np.isin(index, block)] - block[0] for w, block in enumerate(self._blocks)}
        self._masked = any(self._ask("reset", {w: rows for w, rows in local.items() if len(rows)}))
        return self._show(index)

    def current(self) -> tuple[Obs, Array | None]:
        self._masked = any(self._ask("current"))
        return self._show(slice(None))

    def _show(self, index: Any) -> tuple[Obs, Array | None]:
        return take(self._views.obs, index), self._views.mask[index].copy() if self._masked else None

    def step(self, action: Array) -> Transition:
        views = self._views
        views.action[:] = action
        self._ask("step")
        obs, mask = self._show(slice(None))
        return Transition(obs, views.reward.copy(), views.terminated.copy(), views.truncated.copy(), mask)

    def state_dict(self) -> State:
        return {"slots": [slot for block in self._ask("state") for slot in block]}

    def load_state_dict(self, state: State) -> list[int]:
        slots = state["slots"]
        answers = self._ask("load", {w: [slots[i] for i in block] for w, block in enumerate(self._blocks)})
        return [int(block[i]) for block, local in zip(self._blocks, answers, strict=True) for i in local]

    def _ask(self, command: str, values: dict[int, Any] | None = None) -> list[Any]:
        """Send a command to workers (all by default), then wait for every answer."""
        asked = dict.fromkeys(range(len(self._pipes))) if values is None else values
        for w, value in asked.items():
            try:
                self._pipes[w].send((command, value))
            except ConnectionError:
                continue  # it died: what it said last is still in its pipe
        return [self._answer(w) for w in asked]

    def _answer(self, w: int) -> Any:
        try:
            fine, value = self._pipes[w].recv()
        except (EOFError, ConnectionError):
            self.close()
            raise RunError(f"An env worker process died (exit code {self._processes[w].exitcode}).") from None
        if not fine:
            self.close()
            raise RunError(f"An env failed in its worker process:\n{value}")
        return value

    def close(self) -> None:
        self._finish()


def _stop(pipes: list[Connection], processes: list[BaseProcess]) -> None:
    """End all workers: hang up, wait a little, then kill."""
    for pipe in pipes:
        pipe.close()
    for process in processes:
        process.join(JOIN_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()
