"""Hogwild: sessions that train one agent together, through whole runs, crashes and resume."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from faulty_envs import seed_in
from loguru import logger
from run_helpers import (  # noqa: F401
    assert_equal,
    no_sinks,
    only_run,
    run_tiny,
    session,
    start_program,
    tables,
    tiny,
    tiny_spec,
    write_spec,
)

from slm_lab.agent.net.shared import FileLock
from slm_lab.experiment import checkpoint
from slm_lab.experiment.control import RunOptions, RunResult, read_saved
from slm_lab.experiment.hogwild import RACE, NoRows, Team, as_workers, team
from slm_lab.experiment.paths import Paths
from slm_lab.experiment.run import run
from slm_lab.experiment.session import Session
from slm_lab.lib.errors import LabError, SpecError
from slm_lab.spec.load import from_mapping, load, spec_names
from slm_lab.spec.schema import Spec
from slm_lab.types import Rows

SPECS = Path(__file__).resolve().parents[1] / "../shared/specs/benchmark"
DQN: dict[str, Any] = {
    "algorithm": {
        "name": "DQN",
        "gamma": 0.9,
        "training_frequency": 3,
        "explore_var_spec": {"name": "linear_decay", "start_val": 1.0, "end_val": 0.0, "end_step": 300},
    },
    "memory": {"name": "Replay", "batch_size": 8, "max_size": 500},
    "net": {
        "type": "MLPNet",
        "hid_layers": [8],
        "optim_spec": {"name": "Adam", "lr": 0.01},
        "update_type": "polyak",
        "polyak_coef": 0.1,
    },
}


def workers(count: int, mode: str = "shared", **sections: Any) -> dict[str, Any]:
    """A tiny spec whose sessions are workers."""
    meta = {"max_session": count, "distributed": mode, **sections.pop("meta", {})}
    return tiny(**{"algorithm_name": "PPO", **sections}, meta=meta)


def spec_of(data: dict[str, Any]) -> Spec:
    return from_mapping(data, "tiny").spec


# what a worker is


def test_workers_share_the_budget_of_frames() -> None:
    spec = spec_of(workers(7, env={"max_frame": 300}))
    assert (spec.workers, spec.session_frames) == (7, 43)  # 300 / 7 = 42.86
    alone = spec_of(workers(1, env={"max_frame": 300}))
    assert (alone.workers, alone.session_frames) == (1, 300)
    apart = tiny_spec(meta={"max_session": 7})
    assert (apart.workers, apart.session_frames) == (1, 300)


def test_schedules_run_over_the_frames_of_all_workers() -> None:
    net = {"optim_spec": {"name": "Adam", "lr": 0.1}, "lr_scheduler_spec": {"name": "LinearToZero", "frame": 300}}
    one = session(spec_of(workers(2, net=net)))
    one.run(until=48)  # 16 steps of 3 envs: the first update
    assert one.clock.max_frame == 150
    assert one.agent.algorithm.optim is not None
    assert one.agent.algorithm.optim.lr == pytest.approx(0.1 * (1 - 2 * 48 / 300))
    one.close()


def test_a_spec_of_workers_keeps_off_the_gpu_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, expected in ((False, [RACE]), (True, [RACE, "agent.net.gpu: workers"])):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        notes: list[str] = []
        spec = as_workers(spec_of(workers(2, net={"actor_gpu": True})), notes)
        assert (spec.agent.net["gpu"], "actor_gpu" in spec.agent.net) == (False, False)
        assert [note[: len(start)] for note, start in zip(notes, expected, strict=True)] == expected
    notes = []
    alone = spec_of(workers(1))
    assert as_workers(alone, notes) is alone
    assert notes == []


def dqn_team(tmp_path: Path) -> tuple[Spec, Any]:
    data = workers(2)
    spec = spec_of({**data, "agent": {"name": "DQN", **DQN}})
    return spec, team(spec, Paths(tmp_path, "tiny"), resume=False)


def params_of(one: Session) -> dict[str, torch.Tensor]:
    return {name: param.detach().clone() for name, param in one.agent.algorithm.nets.named_parameters()}


def test_workers_start_from_the_same_nets_and_targets(tmp_path: Path) -> None:
    spec, opened = dqn_team(tmp_path)
    with opened as start:
        assert isinstance(start, Team)
        first, second = session(spec, (3, 0, 0)), session(spec, (3, 0, 1))
        alone = params_of(first)
        assert not torch.equal(params_of(second)["net.net.body.0.weight"], alone["net.net.body.0.weight"])
        for one in (first, second):
            one.join(start, fresh=True)
            assert_equal(params_of(one), alone)
        assert torch.equal(alone["target.net.net.body.0.weight"], alone["net.net.body.0.weight"])
        second.run(until=60)
        for name, tensor in params_of(first).items():
            moved = not torch.equal(tensor, alone[name])
            assert moved == name.startswith("net."), name  # nets are shared, target nets are one's own
        assert not torch.equal(params_of(second)["target.net.net.body.0.weight"], alone["target.net.net.body.0.weight"])
        first.close()
        second.close()


def test_a_checkpoint_is_a_copy_taken_while_nobody_steps(tmp_path: Path) -> None:
    spec, opened = dqn_team(tmp_path)
    with opened as start:
        one = session(spec)
        one.join(start, fresh=True)
        one.run(until=60)
        taken: list[Any] = []
        reader = threading.Thread(target=lambda: taken.append(one.parts()["agent"].state_dict()))
        with FileLock(start.weights.lock):
            reader.start()
            time.sleep(0.2)
            assert taken == []
        reader.join(30)
        (state,) = taken
        optim = state["algorithm"]["optim"]["optimizers"]["net"]
        before = [tensor.clone() for tensor in (*state["algorithm"]["nets"].values(), *optim[0].values())]
        one.run(until=90)
        after = [*state["algorithm"]["nets"].values(), *optim[0].values()]
        assert all(torch.equal(old, new) for old, new in zip(before, after, strict=True))
        with pytest.raises(RuntimeError, match="restored before it joins"):
            one.parts()["agent"].load_state_dict(state)
        one.close()


def test_an_algorithm_that_learns_nothing_shares_nothing(tmp_path: Path) -> None:
    with team(spec_of(workers(2, algorithm_name="Random")), Paths(tmp_path, "tiny"), resume=False) as start:
        assert start is None


def test_an_algorithm_that_learns_by_other_means_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of(workers(2))
    algorithm = session(spec).agent.algorithm
    algorithm.optim = None
    monkeypatch.setattr("slm_lab.experiment.hogwild._template", lambda *_: algorithm)
    opened = team(spec, Paths(tmp_path, "tiny"), resume=False)
    with pytest.raises(SpecError, match=r"meta\.distributed: PPO has no optimiser .* allowed: false"), opened:
        pass


def test_rows_are_neither_read_nor_lost_by_who_needs_none() -> None:
    rows = NoRows().get("replay", {"start": 5, "stop": 9})
    assert list(rows.parts(0)) == []
    with pytest.raises(TypeError, match="'replay' would be lost"):
        NoRows().put(Rows("replay", 0, 1, lambda _: iter(())))


@pytest.mark.parametrize("folder", ["a3c", "dppo", "async_sac"])
def test_published_specs_of_distributed_runs_are_understood(folder: str) -> None:
    files = sorted((SPECS / folder).glob("*.json"))
    if not files:
        pytest.skip("the published specs are not on this machine")
    for file in files:
        for name in spec_names(file):
            spec = load(file, name, ["env.name=CartPole-v1"]).spec
            assert spec.workers == spec.meta.max_session > 1
            assert as_workers(spec, []).agent.net["gpu"] is False


# whole runs


def adam_steps(predir: Path, name: str = "tiny") -> tuple[int, int]:
    """Steps that the optimiser of two workers has taken, by their last checkpoint, and those they say they took."""
    states = [checkpoint.load_newest(Paths(predir, name).for_session(k).checkpoints()) for k in range(2)]
    steps = [state["agent"]["algorithm"]["optim"]["optimizers"]["actor"][0]["step"] for state in states if state]
    return int(max(steps)), sum(state["clock"]["opt_step"] for state in states if state)


@dataclass
class Learnt:
    """A finished run of two A3C workers and what it said."""

    result: RunResult
    log: str


@pytest.fixture(scope="module")
def a3c(tmp_path_factory: pytest.TempPathFactory) -> Learnt:
    sets = ["env.max_frame=50000", "meta.max_session=2", "meta.distributed=shared", "vectorization=sync"]
    sets += ["meta.log_frequency=2500"]
    options = RunOptions(tmp_path_factory.mktemp("a3c"), jobs=1)
    result = run("benchmark/a2c/a2c_gae_cartpole.json", mode="train", sets=sets, options=options)
    log = (result.predir / "log/a2c_gae_cartpole_t0.log").read_text()
    logger.remove()
    return Learnt(result, log)


def test_a3c_learns(a3c: Learnt) -> None:
    trial = a3c.result.trial
    assert trial is not None
    assert trial.complete
    trained = [table for name, table in tables(a3c.result.predir).items() if name.endswith("train.csv")]
    assert [int(table["frame"].iloc[-1]) for table in trained] == [25_000, 25_000]
    scores = [float(table["total_reward"].iloc[-1]) for table in trained]
    assert min(scores) >= 150, scores
    # one that learnt alone could score as much: that they trained one agent is seen by its steps
    shared, own = adam_steps(a3c.result.predir, "a2c_gae_cartpole")
    assert shared == own == 2 * 195  # 25 000 frames / (32 steps * 4 envs)


def test_all_workers_run_at_once_and_the_record_says_they_race(a3c: Learnt) -> None:
    started = [a3c.log.index(f"session {k} | frame") for k in (0, 1)]
    assert max(started) < a3c.log.index("done")  # with one job the second would wait for the first
    assert RACE in a3c.log
    saved = read_saved(a3c.result.predir / "a2c_gae_cartpole_t0_spec.json")
    assert saved.meta.record["repeatable"] is False
    assert saved.agent.net["gpu"] is False


def test_synced_workers_take_every_step_together_also_after_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slm_lab.experiment.metric_files.trial_graphs", lambda *_: [])
    spec = workers(2, "synced", env={"max_frame": 300})
    first = run_tiny(tmp_path, spec)
    assert first.trial is not None
    assert first.trial.complete
    shared, own = adam_steps(first.predir)
    assert shared == own > 0
    assert run_tiny(tmp_path, spec, "train@latest").trial is None  # finished
    longer = workers(2, "synced", env={"max_frame": 600})
    second = run_tiny(tmp_path, longer, "train@latest")
    assert second.trial is not None
    assert second.trial.complete
    assert second.trial.metrics["scalar"]["frame"] == 300
    again, more = adam_steps(first.predir)
    assert again == more > own


def test_a_worker_that_dies_is_reported_and_continued_while_the_others_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slm_lab.experiment.metric_files.trial_graphs", lambda *_: [])
    flag, data = tmp_path / "fail", tmp_path / "data"
    flag.touch()
    faults = {"name": "faulty_envs:Faulty", "faults": {seed_in(1): "exit 3"}, "at": 30, "once": str(flag)}
    spec = workers(2, "shared", env={**faults, "max_frame": 360})
    arguments = ["run", "--data-dir", str(data), str(write_spec(tmp_path, spec)), "tiny", "train"]
    program = start_program(arguments, tmp_path / "output.txt", Path(__file__).parent)
    assert program.wait() == 1, program.text()
    assert "Session 1 crashed: its process ended with exit code 3" in program.text()
    assert "Session 0 done" in program.text()
    assert "sessions:1/2" in program.text()
    predir = only_run(data)
    before = Paths(predir, "tiny").for_session(0).session_metrics("eval").stat().st_mtime_ns
    resumed = run_tiny(data, spec, "train@latest")
    assert resumed.trial is not None
    assert resumed.trial.complete
    assert [int(table["frame"].iloc[-1]) for table in tables(predir).values()] == [180] * 4
    assert Paths(predir, "tiny").for_session(0).session_metrics("eval").stat().st_mtime_ns == before
    # the second goes on with what the first left behind, which holds its own steps from before it died as well
    shared, own = adam_steps(predir)
    assert shared >= own > 0


def test_a_run_of_workers_cannot_become_one_of_sessions(tmp_path: Path) -> None:
    spec = workers(1, env={"max_frame": 60})
    run_tiny(tmp_path, spec)
    with pytest.raises(LabError, match=r"meta\.distributed: "):
        run_tiny(tmp_path, tiny(env={"max_frame": 60}), "train@latest")
