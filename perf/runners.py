"""Those who train: a session of ours, a model of Stable-Baselines3 or SBX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from perf.tasks import Task
from slm_lab.agent.plan import plan_agent
from slm_lab.experiment.check import preflight
from slm_lab.experiment.computing import choose_computing
from slm_lab.experiment.session import Options, Session
from slm_lab.spec.load import from_mapping
from slm_lab.spec.schema import Spec


class Runner(Protocol):
    """Something that trains for so many frames more."""

    def run(self, frames: int) -> None: ...


class Ours:
    """A session of a spec, stepped as the command line steps it."""

    def __init__(self, spec: Mapping[str, Any], threads: int = 1) -> None:
        parsed = as_run(from_mapping(spec, "perf").spec, threads)
        plan = plan_agent(parsed.agent, parsed.env.num_envs, [])
        self.session = Session(parsed, plan, (0, 0, 0), options=Options(env_threads=threads))

    def run(self, frames: int) -> None:
        self.session.run(until=self.session.clock.frame + frames)


def as_run(spec: Spec, threads: int) -> Spec:
    """The spec with what a run records before it starts: all that a session reads of it is said here."""
    flight = preflight(spec, [], [])
    computing = choose_computing(spec, flight.plan, flight.agent, spec.meta.compile, threads, jobs=1)
    record = {"threads": threads, "env_threads": threads, "compiled": computing.compiled}
    return spec.model_copy(update={"meta": spec.meta.model_copy(update={"record": record})})


class Peer:
    """A model of Stable-Baselines3, or of a library with its interface."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def run(self, frames: int) -> None:
        self.model.learn(frames, reset_num_timesteps=False)


def sb3(task: Task) -> Peer:
    """The task's model of Stable-Baselines3."""
    import stable_baselines3

    return _peer(vars(stable_baselines3)[task.algorithm], task)


def sbx(task: Task) -> Peer:
    """The task's model of SBX, on JAX."""
    import sbx as library

    return _peer(vars(library)[task.algorithm], task)


def _peer(algorithm: Any, task: Task) -> Peer:
    env = peer_env(task.spec["env"]["name"], task.spec["env"]["num_envs"])
    return Peer(algorithm(task.policy, env, device="cpu", seed=0, **task.arguments))


def peer_env(name: str, num_envs: int) -> Any:
    """Their vector env in one process; frames of Atari as ours are: skipped, 84x84, stacked by four."""
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import VecFrameStack

    if not name.startswith("ALE/"):
        return make_vec_env(name, n_envs=num_envs, seed=0)
    import ale_py  # noqa: F401  # registers the games

    # their wrapper skips four frames: the game itself must not
    return VecFrameStack(make_atari_env(name, n_envs=num_envs, seed=0, env_kwargs={"frameskip": 1}), n_stack=4)
