"""Hogwild: the sessions of a trial as workers that train one agent together, each in an env of its own."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from slm_lab.agent import Agent, make_agent
from slm_lab.agent.algorithm.base import Algorithm, resolve_device
from slm_lab.agent.net.shared import FileLock, SharedWeights, share
from slm_lab.agent.plan import plan_agent
from slm_lab.env import make_env
from slm_lab.experiment import checkpoint
from slm_lab.experiment.paths import Paths
from slm_lab.lib.errors import SpecError
from slm_lab.spec.schema import Spec
from slm_lab.types import Array, Rows, State

RACE = "meta.distributed: workers race; such a run cannot be repeated bit for bit."
GPU_KEYS = ("gpu", "actor_gpu", "critic_gpu")


@dataclass(frozen=True)
class Team:
    """What workers start from: the weights they share, and where all nets stand for one that has no checkpoint."""

    weights: SharedWeights
    params: dict[str, Array]  # those of target nets too, which are then each worker's own


def as_workers(spec: Spec, notes: list[str]) -> Spec:
    """The spec as its workers run it: shared memory is the processor's; says so where a GPU would have been used."""
    if spec.workers == 1:
        return spec
    notes.append(RACE)
    sections = {"net": spec.agent.net, "critic_net": spec.agent.critic_net}
    nets = {name: net for name, net in sections.items() if net}
    if any(_wants_gpu(net) for net in nets.values()):
        notes.append("agent.net.gpu: workers of meta.distributed share the processor's memory; the GPU is not used.")
    update = {name: {k: v for k, v in net.items() if k not in GPU_KEYS} | {"gpu": False} for name, net in nets.items()}
    return spec.model_copy(update={"agent": spec.agent.model_copy(update=update)})


def _wants_gpu(net: Mapping[str, Any]) -> bool:
    asked = [net[key] for key in GPU_KEYS if key in net] or ["auto"]
    return any(resolve_device(gpu).type != "cpu" for gpu in asked)


@contextmanager
def team(spec: Spec, paths: Paths, resume: bool) -> Iterator[Team | None]:
    """What the trial's workers share for as long as they run; None where each trains by itself."""
    mode = spec.meta.distributed
    if not mode or spec.workers == 1:
        yield None
        return
    algorithm = _template(spec, paths.trial)
    state = _newest(spec, paths) if resume else None
    if state is not None:
        algorithm.load_state_dict(state["agent"]["algorithm"])
    if algorithm.optim is None:
        if algorithm.memory_kind is not None:
            reason = f"{type(algorithm).__name__} has no optimiser whose weights workers could share"
            raise SpecError(f"meta.distributed: {reason}; allowed: false.")
        yield None
        return
    # not in the run's folder, which may lie on a network: a lock is taken with every step
    with TemporaryDirectory(prefix="slm_lab_") as folder:
        lock = Path(folder, "lock")
        lock.touch()
        params = {name: param.detach().numpy().copy() for name, param in algorithm.nets.named_parameters()}
        yield Team(share(algorithm.optim.optimizers, mode, spec.workers, lock), params)


def _template(spec: Spec, trial: int) -> Algorithm:
    """The algorithm that the first worker would build alone."""
    plan, key = plan_agent(spec.agent, spec.env.num_envs, []), (spec.meta.random_seed, trial, 0)
    env = make_env(spec.env.in_process(1), plan.gamma, key)
    try:
        return make_agent(replace(plan, memory=None, memory_spec=None), spec.env, env.spaces, key).algorithm
    finally:
        env.close()


def _newest(spec: Spec, paths: Paths) -> State | None:
    """The last state any worker saved, which has everybody's steps up to then; None where nobody has saved one."""
    saved = [path for k in range(spec.meta.max_session) for path in paths.for_session(k).checkpoints()]
    saved.sort(key=lambda path: path.stat().st_mtime_ns, reverse=True)
    return checkpoint.load_newest(saved, NoRows())


class NoRows:
    """A store for whoever does not need what memories hold."""

    def put(self, rows: Rows) -> Any:
        raise TypeError(f"rows of {rows.name!r} would be lost")

    def get(self, name: str, place: Any) -> Rows:
        return Rows(name, 0, 0, lambda _: iter(()))


class Member:
    """A session's agent in a team, for checkpoints: its state is a copy, taken while nobody steps."""

    def __init__(self, agent: Agent, start: Team, fresh: bool) -> None:
        """`fresh`: without a checkpoint of its own it starts with everybody's nets and target nets."""
        self.agent, optim = agent, agent.algorithm.optim
        assert optim is not None
        if fresh:
            for name, param in agent.algorithm.nets.named_parameters():
                param.data.copy_(torch.from_numpy(start.params[name]))
        optim.join(start.weights)
        self.lock = FileLock(start.weights.lock)

    def state_dict(self) -> State:
        with self.lock:
            state = self.agent.state_dict()
            # what the memory holds is its own, and may be large
            return {**state, "algorithm": copy.deepcopy(state["algorithm"])}

    def load_state_dict(self, state: State) -> None:
        raise RuntimeError("an agent is restored before it joins a team: now it would overwrite what all of them share")
