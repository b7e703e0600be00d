"""A resumed run is the same run, bit for bit: in one process, and through kills of the command line."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest
from run_helpers import (  # noqa: F401
    ALGORITHM_SPECS,
    CASES,
    EPISODES,
    Program,
    assert_equal,
    assert_same_results,
    files_of,
    no_sinks,
    only_run,
    read_table,
    run_tiny,
    session,
    start_program,
    state_of,
    takes,
    tiny,
    tiny_spec,
    wait_for,
    write_spec,
)

from slm_lab.agent.algorithm import ALGORITHMS
from slm_lab.experiment import checkpoint
from slm_lab.experiment.paths import Kind, Paths
from slm_lab.experiment.session import Session
from slm_lab.spec.schema import Spec

ENVS = ("CartPole-v1", "Pendulum-v1", "LunarLander-v3", "Hopper-v5")
KEY, OTHER = (3, 0, 1), (1000, 2, 5)
VARIANTS: dict[str, dict[str, Any]] = {
    "whole episodes": {"memory": EPISODES, "algorithm": {"time_horizon": 2}},
    "rigorous eval": {"meta": {"rigorous_eval": 2}},
    "separate learning rates by torch": {
        "net": {"lr_scheduler_spec": {"name": "StepLR", "step_size": 1, "gamma": 0.5}, "critic_clip_grad_val": None}
    },
    "one env": {
        "env": {"num_envs": 1, "max_frame": 150},
        "algorithm": {"minibatch_size": 8},
        "meta": {"log_frequency": 25},
    },
    "rows off the grid": {"env": {"max_frame": 310}, "meta": {"log_frequency": 70}},
    "checks": {},
}


@pytest.fixture(autouse=True)
def _no_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than all the rest."""
    monkeypatch.setattr("slm_lab.experiment.session.session_graphs", lambda *_: None)


def build(spec: Spec, key: tuple[int, int, int], folder: Path, variant: str) -> Session:
    return session(spec, key, folder, checks=variant == "checks")


def open_episodes(one: Session) -> int:
    """Envs that are in mid-episode."""
    state = one.env.state_dict()
    while "engine" not in state:
        state = state["env"]
    engine = state["engine"]
    if "elapsed" in engine:
        return int((engine["elapsed"] > 0).sum())
    return sum(slot["actions"] is not None for slot in engine["slots"])


def resumed(spec: Spec, folder: Path, at: int, variant: str) -> Session:
    """A session stopped at a frame, and its rest run by one that was built for another seed."""
    first = build(spec, KEY, folder, variant)
    first.run(until=at)
    assert first.clock.frame == at
    assert at % 2 == 1
    assert (open_episodes(first) > 0) == (spec.env.name != "task_envs:Both")  # whose episodes are of one step
    for hidden in first.agent.context.hidden.values():
        assert hidden.any(-1).sum() == open_episodes(first)
    memory = first.agent.memory
    if memory is not None and "cursor" in memory.state_dict():
        assert memory.state_dict()["cursor"] > 0  # in mid-rollout
    elif memory is not None:
        assert first.clock.opt_step > 0
    first.close()
    second = build(spec, OTHER, folder, variant)
    assert second.resume()
    second.key = KEY  # evaluation draws its seeds from it
    assert second.clock.frame == at
    second.run()
    return second


def assert_resume_is_exact(spec: Spec, tmp_path: Path, variant: str = "") -> None:
    straight = build(spec, KEY, tmp_path / "straight", variant)
    straight.run()
    at = 37 * spec.env.num_envs if spec.env.num_envs > 1 else 77
    second = resumed(spec, tmp_path / "resumed", at, variant)
    assert_equal(state_of(second), state_of(straight))
    kinds: tuple[Kind, Kind] = ("train", "eval")
    for kind in kinds:
        ours, theirs = (read_table(files_of(one).session_table(kind)) for one in (second, straight))
        pd.testing.assert_frame_equal(ours, theirs, check_exact=True)
    assert_equal(checkpoint.load(files_of(second).best), checkpoint.load(files_of(straight).best), "best")
    straight.close()
    second.close()


def test_every_algorithm_has_a_tiny_spec() -> None:
    assert ALGORITHM_SPECS.keys() == ALGORITHMS.keys()


@pytest.mark.parametrize(
    ("algorithm", "env"), [(algorithm, env) for algorithm in ALGORITHMS for env in ENVS if takes(algorithm, env)]
)
def test_resume_is_exact(algorithm: str, env: str, tmp_path: Path) -> None:
    spec = tiny_spec(algorithm, env)
    assert spec.env.normalize_obs == spec.env.normalize_reward == (env in ("Pendulum-v1", "Hopper-v5"))
    assert_resume_is_exact(spec, tmp_path)


@pytest.mark.parametrize("variant", VARIANTS)
def test_resume_is_exact_with(variant: str, tmp_path: Path) -> None:
    assert_resume_is_exact(tiny_spec("PPO", "CartPole-v1", **VARIANTS[variant]), tmp_path, variant)


@pytest.mark.parametrize("case", CASES)
def test_resume_is_exact_for(case: str, tmp_path: Path) -> None:
    algorithm, env, sections = CASES[case]
    assert_resume_is_exact(tiny_spec(algorithm, env, **sections), tmp_path)


def test_saving_does_not_change_what_follows(tmp_path: Path) -> None:
    spec = tiny_spec("PPO", "Pendulum-v1")
    straight, saving = session(spec, KEY), session(spec, KEY, tmp_path, every=0)  # a checkpoint at every row
    straight.run()
    saving.run()
    assert_equal(state_of(saving), state_of(straight))


def test_a_resumed_run_can_be_resumed_again_at_any_frame(tmp_path: Path) -> None:
    spec = tiny_spec("ActorCritic", "Hopper-v5")
    straight = session(spec, KEY, tmp_path / "straight")
    straight.run()
    for i, at in enumerate((3, 60, 61, 63, 177, 297)):
        part = session(spec, (50 + i, 0, 0), tmp_path / "parts") if i else session(spec, KEY, tmp_path / "parts")
        assert part.resume() == (i > 0)
        part.run(until=at)
        part.close()
    last = session(spec, OTHER, tmp_path / "parts")
    assert last.resume()
    last.run()
    assert_equal(state_of(last), state_of(straight))
    pd.testing.assert_frame_equal(
        read_table(files_of(last).session_table("train")), read_table(files_of(straight).session_table("train"))
    )


@pytest.mark.parametrize("algorithm", ["PPO", "DoubleDQN"])
def test_a_stop_while_a_checkpoint_is_written_leaves_a_run_that_resumes(algorithm: str, tmp_path: Path) -> None:
    spec = tiny_spec(algorithm, "CartPole-v1")
    straight = session(spec, KEY, tmp_path / "straight")
    straight.run()
    first = session(spec, KEY, tmp_path / "parts", every=0)  # a checkpoint at every row
    first.report = lambda _: first.stop("asked for at a row, which comes before its checkpoint")
    assert first.run().frame == files_of(first).newest_frame() == spec.meta.log_frequency  # it is written twice
    second = session(spec, OTHER, tmp_path / "parts")
    assert second.resume()
    second.run()
    assert_equal(state_of(second), state_of(straight))


# the command line, killed


KILLABLE: dict[str, dict[str, Any]] = {
    "PPO": {"algorithm": {"time_horizon": 32, "minibatch_size": 64, "training_epoch": 4}},
    "DoubleDQN": {"algorithm": {"training_frequency": 16}, "memory": {"max_size": 3000}},  # its ring goes round
}


def killable(sessions: int, algorithm: str = "PPO") -> dict[str, Any]:
    """A run that outlasts its kills, each of them up to half a second after a start, at 50,000 frames a second."""
    return tiny(
        algorithm,
        **KILLABLE[algorithm],
        env={"num_envs": 4, "max_frame": 60_000, "max_t": 500},
        meta={"max_session": sessions, "log_frequency": 400},
    )


@dataclass
class Kit:
    """A spec file, where its runs go, and the folder of the run that was never interrupted."""

    file: Path
    data: Path
    straight: Path

    def start(self, mode: str) -> Program:
        output = self.data.parent / f"{self.data.name}.txt"
        every = ["--checkpoint-every", "0.2", "--data-dir", str(self.data)]
        return start_program(["run", *every, str(self.file), "tiny", mode], output)

    def planned(self) -> int:
        """How many sessions a run has."""
        return int(json.loads(self.file.read_text())["tiny"]["meta"]["max_session"])

    def sessions(self) -> list[Paths]:
        """The files of each session, none before the run has a folder."""
        runs = [Paths(path.parent, "tiny") for path in self.data.glob("*/tiny_t0_spec.json")]
        return [run.for_session(k) for run in runs for k in range(self.planned())]

    def frames(self) -> list[int]:
        """Frame of the newest checkpoint of each session, 0 where there is none."""
        return [files.newest_frame() or 0 for files in self.sessions()] or [0] * self.planned()

    def saved(self) -> list[int]:
        """When the newest checkpoint of each session was written.

        Its frame says less: a stop that comes between a checkpoint and the next step saves that frame once more.
        """
        return [files.checkpoints()[0].stat().st_mtime_ns for files in self.sessions()]

    def wait_for_progress(self, program: Program) -> None:
        """Until every session has written a new checkpoint."""
        before = self.frames()

        def advanced() -> bool:
            assert program.process.exitcode is None, f"ended too early:\n{program.text()}"
            return all(now > then for now, then in zip(self.frames(), before, strict=True))

        wait_for(advanced, "a new checkpoint")


def kit(tmp_path: Path, sessions: int, algorithm: str = "PPO") -> Kit:
    spec = killable(sessions, algorithm)
    straight = run_tiny(tmp_path / "straight", spec, jobs=2).predir
    return Kit(write_spec(tmp_path, spec), tmp_path / "data", straight)


def assert_clean_end(program: Program) -> None:
    """No traceback, and no process of ours is left."""
    wait_for(lambda: not program.left(), "the end of every process", 30)
    assert "Traceback" not in program.text()


@pytest.mark.parametrize("algorithm", KILLABLE)
def test_a_run_killed_at_any_moment_comes_to_the_same_results(algorithm: str, tmp_path: Path) -> None:
    ours, rng = kit(tmp_path, 1, algorithm), random.Random(0)
    for i, number in enumerate((signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGKILL)):
        program = ours.start("train@latest" if i else "train")
        ours.wait_for_progress(program)
        time.sleep(rng.uniform(0, 0.25))
        before = ours.saved()
        os.kill(program.pid, number)
        code = program.wait()
        if code == 0:  # it was at its end already
            break
        assert code == {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}[number]
        if number != signal.SIGKILL:
            assert ours.saved() > before
            assert_clean_end(program)
    assert i >= 2
    program = ours.start("train@latest")
    assert program.wait() == 0, program.text()
    assert_same_results(only_run(ours.data), ours.straight)


@pytest.mark.timeout(600)
def test_sessions_in_processes_of_their_own_survive_every_kind_of_kill(tmp_path: Path) -> None:
    ours = kit(tmp_path, 2)

    program = ours.start("train")
    ours.wait_for_progress(program)
    survivor, victim = program.sessions()
    victim.kill()
    wait_for(lambda: "Session 1 crashed: its process ended with exit code -9" in program.text(), "a report")
    before = ours.saved()
    os.kill(program.pid, signal.SIGKILL)
    assert program.wait() == -9
    psutil.wait_procs([survivor], timeout=30)
    wait_for(lambda: not program.left(), "the end of the session whose parent was killed", 30)
    assert ours.saved()[0] > before[0]

    program = ours.start("train@latest")
    ours.wait_for_progress(program)
    program.sessions()
    os.kill(program.pid, signal.SIGTERM)
    assert program.wait() == 143
    assert_clean_end(program)

    program = ours.start("train@latest")
    ours.wait_for_progress(program)
    program.sessions()
    program.signal_group(signal.SIGINT)
    assert program.wait() == 130
    assert_clean_end(program)
    assert "crashed" not in program.text().split("continuing")[-1]

    program = ours.start("train@latest")
    wait_for(lambda: "continuing" in program.text().split("Trial 0 incomplete")[-1], "the start")
    program.sessions()
    program.signal_group(signal.SIGINT)  # before any session listens
    assert program.wait() == 130
    assert_clean_end(program)
    assert "crashed" not in program.text().split("continuing")[-1]

    program = ours.start("train@latest")
    ours.wait_for_progress(program)
    program.sessions()
    program.signal_group(signal.SIGKILL)
    assert program.wait() == -9

    program = ours.start("train@latest")
    assert program.wait() == 0, program.text()
    assert_same_results(only_run(ours.data), ours.straight)
