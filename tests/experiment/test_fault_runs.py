"""Runs whose envs fail: what was saved is kept, and the run goes on when the fault is gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_helpers import files_of, no_sinks, session, tables, tiny, tiny_spec  # noqa: F401

from slm_lab.env import async_engine
from slm_lab.experiment.control import RunOptions, RunResult
from slm_lab.experiment.paths import Paths
from slm_lab.experiment.run import run
from slm_lab.lib.errors import RunError

ENVS = Path(__file__).parents[1] / "env"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """fault_env can be imported here and in workers; all envs are in one of these."""
    monkeypatch.syspath_prepend(str(ENVS))
    monkeypatch.setattr(async_engine, "cores", lambda: 1)


def fault(kind: str, **keys: Any) -> dict[str, Any]:
    return {"name": "fault_env:Fault", "fault": kind, "at_step": 30, **keys}


def train(folder: Path, env: dict[str, Any], mode: str = "train") -> RunResult:
    return run(tiny(env=env), mode=mode, options=RunOptions(folder, checkpoint_every=0))


def frames(result: RunResult) -> list[int]:
    return tables(result.predir)["tiny_t0_s0_session_df_train.csv"]["frame"].tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("vectorization", "kind", "text"),
    [
        ("async", "exit", "RunError: after frame 177: The worker process of envs [0, 1, 2] ended with exit code 7"),
        ("sync", "raise", "ZeroDivisionError: the rod broke"),
        ("sync", "sys.exit", "RunError: after frame 87: the env called sys.exit(0)"),
    ],
)
def test_a_run_that_was_ended_by_its_env_goes_on_when_the_fault_is_gone(
    vectorization: str, kind: str, text: str, tmp_path: Path
) -> None:
    flag = tmp_path / "fault"
    flag.touch()
    env = fault(kind, flag=str(flag), vectorization=vectorization, worker_restarts=1)
    first = train(tmp_path / "data", env)
    assert first.trial is not None
    assert (first.trial.done, first.trial.stopped) == (0, "")
    assert first.trial.failures[0].startswith(text)
    # all envs fail in step 30, which is frame 90; a new worker in step 60
    kept = [60, 120] if vectorization == "async" else [60]
    assert frames(first) == kept
    assert Paths(first.predir, "tiny").for_session(0).newest_frame() == kept[-1]
    flag.unlink()
    second = train(tmp_path / "data", env, "train@latest")
    assert second.predir == first.predir
    assert second.trial is not None
    assert second.trial.complete
    assert frames(second) == [60, 120, 180, 240, 300]


def test_a_run_whose_worker_is_replaced_is_complete_and_its_log_says_why(tmp_path: Path) -> None:
    result = train(tmp_path / "data", fault("raise", vectorization="async", worker_restarts=3, length=20))
    assert result.trial is not None
    assert result.trial.complete
    log = (result.predir / "log/tiny_t0.log").read_text()
    assert log.count("The worker process of envs [0, 1, 2] failed:\nTraceback") == 3  # in steps 30, 60 and 90 of 100
    assert log.count("ZeroDivisionError: the rod broke") == 3
    # whole episodes only: each env ends one of 20 steps in the 30 that a worker lives for
    rows = tables(result.predir)["tiny_t0_s0_session_df_train.csv"]
    assert rows["total_reward"].dropna().unique().tolist() == [sum(range(1, 21))]


@pytest.mark.parametrize("kind", ["nan", "inf reward"])
def test_numbers_that_are_none_reach_neither_statistics_nor_nets(kind: str, tmp_path: Path) -> None:
    env = fault(kind, at_step=25, normalize_obs=True, normalize_reward=True)
    one = session(tiny_spec("PPO", env=env), folder=tmp_path, every=0)
    what = "reward" if "reward" in kind else r"observation\[0\]"
    with pytest.raises(RunError, match=rf"^after frame 72: env 0: {what} is {kind.split()[0]};"):
        one.run()
    assert one.agent.normalizer is not None
    moments = one.agent.normalizer.moments["obs"]
    assert np.isfinite(moments.mean).all()
    assert np.isfinite(moments.var).all()
    assert np.isfinite(one.env.state_dict()["moments"]["var"]).all()
    assert all(parameter.isfinite().all() for parameter in one.agent.algorithm.nets.parameters())
    assert [path.name for path in files_of(one).checkpoints()] != []
