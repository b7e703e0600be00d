"""Searches on Ray: start to end with trials that crash, and through a kill and a signal without losing a trial."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest
from run_helpers import (  # noqa: F401
    Program,
    contents,
    no_sinks,
    only_run,
    read_table,
    start_program,
    wait_for,
    write_spec,
)
from search_helpers import GAMMA, LAYERS, job, searched, space_of
from staged_envs import seed_of_trial

from slm_lab.experiment.control import RunOptions, read_saved
from slm_lab.experiment.finished import read_result
from slm_lab.experiment.paths import Paths
from slm_lab.experiment.retro import retro
from slm_lab.experiment.run import run
from slm_lab.experiment.sampler import TRIAL, NumberedSearch, StatelessSampler
from slm_lab.experiment.search import RETRIES
from slm_lab.experiment.search_record import SearchRecord
from slm_lab.experiment.search_trial import run_drawn
from slm_lab.lib.errors import LabError
from slm_lab.spec.load import from_mapping

TESTS = Path(__file__).parents[1]
ASHA = {"grace_period": 100, "reduction_factor": 2}
ENDED = ("done", "stopped")


def staged(name: str, **env: Any) -> dict[str, Any]:
    """A search of four trials that one can follow from outside."""
    meta = {"max_trial": 4, "search_scheduler": ASHA}
    return searched(name, env_name="staged_envs:Staged", env=env, meta=meta)


def alive(processes: set[psutil.Process]) -> list[psutil.Process]:
    return [one for one in processes if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


def test_a_search_ends_with_a_table_though_trials_crash_and_is_then_only_summed_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    once = tmp_path / "once"
    once.touch()
    faults = {seed_of_trial(0): "exit 3", seed_of_trial(1): "raise"}
    spec = staged("whole", faults=faults, at=30, once=str(once))  # before the first rung
    mine = psutil.Process()
    before = set(mine.children(recursive=True))
    options = RunOptions(tmp_path / "data", log_level="ERROR", keep=1)
    result = run(spec, mode="search", options=options)
    assert result.search is not None
    assert result.search.complete
    wait_for(lambda: not alive(set(mine.children(recursive=True)) - before), "Ray's processes are gone", 30)

    trials = SearchRecord.at(Paths(result.predir, "whole")).trials
    assert list(trials) == [0, 1, 2, 3]
    assert not once.exists()
    assert (trials[0].failures, trials[0].reason) == (1, "")  # its process ended, and the next one went on
    assert (trials[1].status, trials[1].failures) == ("failed", RETRIES)
    assert "broken at step 30" in trials[1].reason
    assert all(trials[n].status in ENDED for n in (0, 2, 3))
    ranked = result.search.record.ranked()
    assert ranked[-1].trial == 1
    best = ranked[0].trial
    assert trials[best].status == "done"
    assert trials[best].frame == 300

    paths = Paths(result.predir, "whole")
    table = pd.read_csv(paths.experiment_table)
    assert table["trial"].tolist() == [trial.trial for trial in ranked]
    assert table["total_reward_ma"].tolist()[0] == pytest.approx(trials[best].score)
    assert table["frame"].tolist()[0] == 300
    for n, trial in trials.items():
        saved = read_saved(replace(paths, trial=n).trial_spec)
        assert saved.agent.algorithm["gamma"] == trial.values[GAMMA]
        assert saved.agent.net["hid_layers"] == trial.values[LAYERS]
        assert (saved.meta.trial, saved.meta.record["mode"], saved.meta.record["threads"]) == (n, "search", 1)
    assert {path.name.split("_s0")[0] for path in paths.models.iterdir()} == {f"whole_t{best}"}
    assert paths.experiment_graph.exists()
    assert paths.multi_trial_graph("mean_returns_ma_vs_frames").exists()
    assert paths.best_spec(3).exists()
    with pytest.raises(LabError, match="a search, not a result"):
        read_result(result.predir)
    assert "rank" in capsys.readouterr().out

    monkeypatch.setattr("slm_lab.experiment.search.cluster", lambda address: pytest.fail("nothing is left to run"))
    own = re.compile(r"(^|/)whole_t\d")
    of_trials = {name: found for name, found in contents(result.predir).items() if own.search(name)}
    assert of_trials
    again = run(spec, mode=f"search@{result.predir}", options=options)
    assert again.search is not None
    assert again.search.complete
    assert SearchRecord.at(paths).trials == trials
    assert {name: found for name, found in contents(result.predir).items() if own.search(name)} == of_trials

    paths.experiment_table.unlink()
    assert paths.experiment_table in retro(result.predir).written
    pd.testing.assert_frame_equal(pd.read_csv(paths.experiment_table), table)


class Killed:
    """A search that is killed, stopped and continued, in a folder of its own."""

    def __init__(self, tmp_path: Path) -> None:
        self.data, self.output = tmp_path / "data", tmp_path / "output"
        self.gates = {1: tmp_path / "gate_1", 2: tmp_path / "gate_2"}  # what trials 1 and 2 wait for
        self.spec = staged("killed", gates={seed_of_trial(n): str(gate) for n, gate in self.gates.items()}, at=30)
        self.file = write_spec(tmp_path, self.spec, "killed")

    def start(self, mode: str) -> Program:
        words = [str(self.file), "killed", mode, "--data-dir", str(self.data), "--jobs", "1"]
        return start_program([*words, "--checkpoint-every", "0"], self.output, TESTS)

    @property
    def paths(self) -> Paths:
        return Paths(only_run(self.data), "killed")

    def trials(self) -> Mapping[int, Any]:
        return SearchRecord.at(self.paths).trials

    def until_it_waits(self, program: Program, trial: int) -> None:
        """Until a trial has its first checkpoint and waits at its gate."""

        def waits() -> bool:
            assert program.process.is_alive(), program.text()
            begun = self.data.exists() and any(self.data.iterdir())
            return begun and replace(self.paths, trial=trial).for_session(0).newest_frame() == 60

        wait_for(waits, f"trial {trial} is at its gate", 120)
        program.sessions()  # notes all processes it has

    def expected(self, trial: int, folder: Path) -> pd.DataFrame:
        """The rows of a trial that nobody disturbs."""
        spec = from_mapping(self.spec, "killed").spec
        one = job(folder, spec)
        run_drawn(one, trial, self.trials()[trial].drawn, lambda frame, score: None)
        return read_table(replace(one.paths, trial=trial).for_session(0).session_table("train"))


def test_a_search_that_is_killed_and_stopped_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    search = Killed(tmp_path)
    first = search.start("search")
    search.until_it_waits(first, 1)
    workers = {process for process in first.seen if process.cmdline()[0].startswith("ray::ImplicitFunc")}
    assert workers
    os.kill(first.pid, signal.SIGKILL)
    wait_for(lambda: not alive(workers), "no trial outlives a driver that was killed", 30)
    assert {n: trial.status in ENDED for n, trial in search.trials().items()} == {0: True, 1: False}
    kept = search.trials()[0]

    search.gates[1].touch()
    second = search.start("search@latest")
    search.until_it_waits(second, 2)
    os.kill(second.pid, signal.SIGTERM)
    assert second.wait() == 143, second.text()
    wait_for(lambda: not second.left(), "nothing outlives a search that was stopped", 30)
    assert {n: trial.status in ENDED for n, trial in search.trials().items()} == {0: True, 1: True, 2: False}

    search.gates[2].touch()
    third = search.start("search@latest")
    assert third.wait() == 0, third.text()
    trials = search.trials()
    assert list(trials) == [0, 1, 2, 3]
    assert all(trial.status in ENDED for trial in trials.values())
    assert trials[0] == kept
    assert "2 trials to run, 1 at once" in third.text()
    for n in (1, 2):
        assert "continues from frame 60" in replace(search.paths, trial=n).trial_log.read_text()

    space = space_of(from_mapping(search.spec, "killed").spec)
    for n, trial in trials.items():
        past = [trials[k] for k in range(n)]
        drawn = NumberedSearch(space, StatelessSampler(3, 3), past, lambda number, found: None).suggest("next")
        assert drawn == {TRIAL: n, "drawn": trial.drawn}
        rows = read_table(replace(search.paths, trial=n).for_session(0).session_table("train"))
        whole = search.expected(n, tmp_path / f"expected_{n}")
        assert len(rows) == len(whole) if trial.status == "done" else 2 <= len(rows) < len(whole)
        pd.testing.assert_frame_equal(rows, whole.iloc[: len(rows)], check_exact=True)
    wait_for(lambda: not first.left(), "Ray's own agents give up a minute after the kill", 120)
