"""Envs in worker processes: commands by pipes, arrays through shared memory, the same numbers as in one process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from multiprocessing.util import Finalize
from time import monotonic
from typing import Any, NoReturn

import numpy as np
from loguru import logger

from slm_lab.env.async_remote import Remote, WorkerFault
from slm_lab.env.async_worker import Shared
from slm_lab.env.engine import Transition, take
from slm_lab.env.seeds import later_seeds
from slm_lab.env.slot import Slot
from slm_lab.lib.cores import cores
from slm_lab.lib.errors import RunError
from slm_lab.spec.schema import EnvSpec
from slm_lab.types import Array, Obs, State

START_SECONDS = 60.0  # that a worker may take to start, at least: imports can be slow on a busy machine
REPLAYED = 0.01  # of the time for an answer: what each step of an episode that is brought back may take


class AsyncEngine:
    """Envs stepped in worker processes, a block of them in each; observations come back through shared memory.

    A worker that fails is replaced, as often as the spec allows. Episodes lost with it are reported as broken in the
    step where that happened, or in the next one.
    """

    def __init__(self, spec: EnvSpec, seeds: Sequence[int]) -> None:
        probe = Slot(spec, seeds[0])
        self.num_envs = len(seeds)
        self.observation_space, self.action_space = probe.env.observation_space, probe.env.action_space
        probe.close()
        shared = Shared(probe.codec, self.action_space, self.num_envs)
        self._views = shared.views()
        self._masked = False  # known from the first reset on
        self._timeout, self._restarts = spec.worker_timeout, spec.worker_restarts
        self._seeds = list(seeds)
        self._steps = 0
        self._lost = set[int]()  # envs whose episode broke since the last step
        blocks = np.array_split(np.arange(self.num_envs), min(self.num_envs, cores()))
        self._remotes: list[Remote] = []
        # also runs when this object goes or the interpreter ends, before multiprocessing waits for its children
        self._finish = Finalize(self, _stop, args=(self._remotes,), exitpriority=10)
        for block in blocks:
            remote = Remote(spec, block, shared)
            remote.start([seeds[i] for i in block])
            self._remotes.append(remote)
        self._replace(self._not_ready(range(len(self._remotes))))

    def reset(self, index: Array) -> tuple[Obs, Array | None]:
        local = {w: index[np.isin(index, remote.rows)] - remote.rows[0] for w, remote in enumerate(self._remotes)}
        answers, faults = self._ask("reset", {w: rows for w, rows in local.items() if len(rows)})
        # a new worker has no episodes at all
        answers |= self._ask_new("reset", {w: np.arange(len(self._remotes[w].rows)) for w in faults}, faults)
        self._lost.difference_update(index.tolist())
        self._masked = any(answers.values())
        return self._show(index)

    def current(self) -> tuple[Obs, Array | None]:
        self._masked = any(self._ask_or_fail("current").values())
        return self._show(slice(None))

    def _show(self, index: Any) -> tuple[Obs, Array | None]:
        return take(self._views.obs, index), self._views.mask[index].copy() if self._masked else None

    def step(self, action: Array) -> Transition:
        views = self._views
        views.action[:] = action
        _, faults = self._ask("step")
        self._replace(faults)
        self._steps += 1
        obs, mask = self._show(slice(None))
        broken = self._broken() if self._lost else None
        return Transition(
            obs, views.reward.copy(), views.terminated.copy(), views.truncated.copy(), mask, broken=broken
        )

    def _broken(self) -> Array:
        """Which envs [N] lost their episode; told once."""
        broken = np.zeros(self.num_envs, bool)
        broken[list(self._lost)] = True
        self._lost.clear()
        return broken

    def state_dict(self) -> State:
        """The open episodes, and which of them stand where one broke that nobody was told of yet."""
        answers = self._ask_or_fail("state")  # episodes that nobody can tell cannot be saved
        slots = {"slots": [slot for w in sorted(answers) for slot in answers[w]]}
        return {**slots, "lost": sorted(self._lost)} if self._lost else slots

    def load_state_dict(self, state: State) -> list[int]:
        slots = state["slots"]
        values = {w: [slots[i] for i in remote.rows] for w, remote in enumerate(self._remotes)}
        answers, faults = self._ask("load", values)
        answers |= self._ask_new("load", {w: values[w] for w in faults}, faults)
        self._seeds = [int(slot["seed"]) for slot in slots]
        self._lost = set(state.get("lost", ()))
        return [int(self._remotes[w].rows[i]) for w in sorted(answers) for i in answers[w]]

    def _ask(self, command: str, values: dict[int, Any] | None = None) -> tuple[dict[int, Any], dict[int, str]]:
        """Send a command to workers (all by default), then wait for every one: answers, and faults."""
        asked: dict[int, Any] = dict.fromkeys(range(len(self._remotes))) if values is None else values
        for w, value in asked.items():
            self._remotes[w].send(command, value)
        if command != "load":
            return self._answers(dict.fromkeys(asked, self._timeout))
        return self._answers({w: self._timeout * (1 + REPLAYED * _steps(slots)) for w, slots in asked.items()})

    def _answers(self, seconds: dict[int, float]) -> tuple[dict[int, Any], dict[int, str]]:
        """What each asked worker says within its time, and what is wrong with those that do not."""
        answers, faults = dict[int, Any](), dict[int, str]()
        asked = monotonic()
        for w, allowed in seconds.items():
            try:
                answers[w] = self._remotes[w].answer(asked, allowed)
            except WorkerFault as fault:
                faults[w] = str(fault)
        return answers, faults

    def _ask_or_fail(self, command: str) -> dict[int, Any]:
        """Answers of all workers, where a new one could not give them."""
        answers, faults = self._ask(command)
        for w, fault in faults.items():
            self._fail(w, f"{fault}\nWhat it held cannot be had from a new one.")
        return answers

    def _ask_new(self, command: str, values: dict[int, Any], faults: dict[int, str]) -> dict[int, Any]:
        """Replace workers and ask the new ones, until all have answered."""
        answers = dict[int, Any]()
        while faults:
            self._replace(faults)
            given, faults = self._ask(command, {w: values[w] for w in faults})
            answers |= given
        return answers

    def _replace(self, faults: dict[int, str]) -> None:
        """Start failed workers anew, until they are ready: their envs get other seeds, their episodes are lost."""
        while faults:
            for w, fault in faults.items():
                self._start_again(w, fault)
            faults = self._not_ready(faults)

    def _not_ready(self, started: Iterable[int]) -> dict[int, str]:
        """What is wrong with workers that were just started."""
        return self._answers(dict.fromkeys(started, max(self._timeout, START_SECONDS)))[1]

    def _start_again(self, w: int, fault: str) -> None:
        remote = self._remotes[w]
        remote.end()
        if not self._restarts:
            self._fail(w, f"{fault}\nNo restart is left (env.worker_restarts).")
        self._restarts -= 1
        left = f"A new one takes its place; restarts left: {self._restarts}"
        logger.warning(f"{_name(remote)} {fault}\n{left}")
        rows = remote.rows.tolist()
        for i, seed in zip(rows, later_seeds([self._seeds[i] for i in rows], self._steps), strict=True):
            self._seeds[i] = seed  # the old one might lead to the same fault
        self._lost.update(rows)
        remote.start([self._seeds[i] for i in rows])

    def _fail(self, w: int, fault: str) -> NoReturn:
        self.close()
        raise RunError(f"{_name(self._remotes[w])} {fault}")

    def close(self) -> None:
        self._finish()


def _name(remote: Remote) -> str:
    return f"The worker process of envs {remote.rows.tolist()}"


def _steps(slots: list[State]) -> int:
    """Steps that bringing back these episodes takes."""
    return sum(len(slot["actions"]) for slot in slots if slot["actions"] is not None)


def _stop(remotes: list[Remote]) -> None:
    """End all workers; all are told before the first is waited for."""
    for remote in remotes:
        remote.hang_up()
    for remote in remotes:
        remote.end()
