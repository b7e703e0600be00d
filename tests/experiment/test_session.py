"""The training loop: rows, checkpoints, the best policy, requests to stop, and numbers that are not finite."""

from __future__ import annotations

import errno
import math
import os
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest
from loguru import logger
from run_helpers import assert_equal, files_of, no_sinks, read_table, session, state_of, tiny_spec  # noqa: F401

from slm_lab.agent.net.optim import STREAK
from slm_lab.experiment import checkpoint
from slm_lab.experiment.paths import Kind
from slm_lab.experiment.session import Session
from slm_lab.lib.errors import RunError
from slm_lab.spec.schema import Spec
from slm_lab.types import Step


@pytest.fixture(autouse=True)
def _no_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slm_lab.experiment.session.session_graphs", lambda *_: None)


@pytest.fixture
def warnings() -> Any:
    lines = list[str]()
    sink = logger.add(lambda line: lines.append(line.record["message"]), level="WARNING")
    yield lines
    logger.remove(sink)


def table(one: Session, kind: Kind = "train") -> pd.DataFrame:
    return pd.read_csv(files_of(one).session_table(kind))


def checkpoints(one: Session) -> list[str]:
    return [path.stem.rsplit("-", 1)[1] for path in files_of(one).checkpoints()]


@pytest.mark.parametrize(
    ("num_envs", "max_frame", "log_frequency", "frames"),
    [
        (3, 60, 20, [21, 42, 60]),  # the first frame at or after each multiple
        (3, 64, 20, [21, 42, 60, 66]),  # and the end, which is no multiple
        (3, 12, 2, [3, 6, 9, 12]),  # a row at every step where rows are asked for more often than that
        (3, 30, 1000, [30]),  # at least one row
        (1, 10, 4, [4, 8, 10]),
    ],
)
def test_there_is_a_row_at_each_multiple_of_log_frequency_and_one_at_the_end(
    tmp_path: Path, num_envs: int, max_frame: int, log_frequency: int, frames: list[int]
) -> None:
    spec = tiny_spec(
        "Random", env={"num_envs": num_envs, "max_frame": max_frame}, meta={"log_frequency": log_frequency}
    )
    one = session(spec, folder=tmp_path)
    result = one.run()
    assert table(one)["frame"].tolist() == frames
    assert table(one)["t"].tolist() == [frame // num_envs for frame in frames]
    assert (result.finished, result.frame) == (True, frames[-1])


def test_a_finished_session_has_a_checkpoint_metrics_and_a_copy_of_its_table(tmp_path: Path) -> None:
    one = session(tiny_spec(), folder=tmp_path)
    result = one.run()
    assert checkpoints(one) == ["300"]
    assert table(one).equals(table(one, "eval"))
    assert result.metrics is not None
    assert (
        result.metrics["scalar"]["total_reward_ma"]
        == table(one)["total_reward_ma"].iloc[-1]
        == pytest.approx(table(one)["total_reward"].mean())
    )
    assert result.best == table(one)["total_reward_ma"].max()


def test_a_session_with_one_row_is_summed_up_too(tmp_path: Path) -> None:
    one = session(tiny_spec("Random", env={"max_frame": 30}, meta={"log_frequency": 1000}), folder=tmp_path)
    assert one.run().metrics is not None
    assert len(table(one)) == 1


def test_time_is_counted_over_all_sittings(tmp_path: Path) -> None:
    spec = tiny_spec()
    first = session(spec, folder=tmp_path)
    first.run(until=150)
    first.clock.wall_t = 1000.0
    first.save()
    second = session(spec, folder=tmp_path)
    assert second.resume()
    second.run()
    assert 1000 <= table(second)["wall_t"].iloc[-1] < 1100
    assert table(second)["fps"].iloc[-1] == pytest.approx(0.3, rel=0.1)  # 300 frames in 1000 s


# checkpoints


def test_checkpoints_come_at_rows_when_it_is_time_and_the_last_two_are_kept(tmp_path: Path) -> None:
    often, never = session(tiny_spec(), folder=tmp_path / "a", every=0), session(tiny_spec(), folder=tmp_path / "b")
    seen = list[list[str]]()
    often.report = lambda row: seen.append(checkpoints(often))
    often.run()
    never.run()
    assert seen == [[], ["60"], ["120", "60"], ["180", "120"], ["240", "180"]]  # each row comes before its checkpoint
    assert checkpoints(often) == ["300", "240"]
    assert checkpoints(never) == ["300"]


def test_a_checkpoint_that_cannot_be_written_costs_no_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = session(tiny_spec(), folder=tmp_path)
    for frame in (60, 120):
        one.run(until=frame)
    replace = os.replace

    def full(source: Any, target: Any) -> None:
        if "ckpt-1" in str(target):
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(OSError, match="No space left"):
            one.run(until=180)
    assert checkpoints(one) == ["120", "60"]
    assert all(not path.name.endswith(str(os.getpid())) for path in (tmp_path / "model").iterdir())
    again = session(tiny_spec(), folder=tmp_path)
    assert again.resume()
    again.run()
    straight = session(tiny_spec())
    straight.run()
    assert_equal(state_of(again), state_of(straight))


def test_after_a_damaged_checkpoint_its_predecessor_leads_to_the_same_end(tmp_path: Path, warnings: list[str]) -> None:
    spec = tiny_spec()
    straight = session(spec)
    straight.run()
    first = session(spec, folder=tmp_path)
    for frame in (75, 201):
        first.run(until=frame)
    newest = files_of(first).checkpoint(201)
    content = bytearray(newest.read_bytes())
    content[-5] ^= 16
    newest.write_bytes(content)

    second = session(spec, (9, 9, 9), tmp_path)
    assert second.resume()
    assert second.clock.frame == 75
    assert len(warnings) == 1
    assert "ckpt-201.safetensors: damaged" in warnings[0]
    second.run(until=150)
    assert checkpoints(second) == ["150", "75"]  # the damaged one does not take the place of a good one
    second.run()
    assert_equal(state_of(second), state_of(straight))
    rows, expected = table(second), session(spec, folder=tmp_path / "straight")
    expected.run()
    assert rows["frame"].tolist() == table(expected)["frame"].tolist()


def test_without_a_checkpoint_a_session_starts_at_its_beginning(tmp_path: Path) -> None:
    one = session(tiny_spec(), folder=tmp_path)
    assert not one.resume()
    assert one.clock.frame == 0
    assert not session(tiny_spec()).resume()


def test_a_longer_run_continues_as_if_it_had_been_longer_from_the_start(tmp_path: Path) -> None:
    # 100 and 301 are no multiples of 60: the short runs end with rows that a longer one does not have
    specs = [tiny_spec("PPO", "Pendulum-v1", env={"max_frame": n}) for n in (100, 301, 500)]
    for spec in specs:
        part = session(spec, folder=tmp_path / "parts")
        part.resume()
        part.run()
        assert table(part)["frame"].iloc[-1] >= spec.env.max_frame
        part.close()
    straight = session(specs[-1], folder=tmp_path / "straight")
    straight.run()
    kinds: tuple[Kind, Kind] = ("train", "eval")
    for kind in kinds:
        ours, theirs = (read_table(files_of(one).session_table(kind)) for one in (part, straight))
        pd.testing.assert_frame_equal(ours, theirs, check_exact=True)
    assert ours["frame"].tolist() == [60, 120, 180, 240, 300, 360, 420, 480, 501]
    assert_equal(state_of(part), state_of(straight))


# the best policy


def test_the_best_policy_is_that_of_the_best_row(tmp_path: Path) -> None:
    one = session(tiny_spec("PPO", "Pendulum-v1"), folder=tmp_path, every=0)
    policies = dict[float, Any]()
    one.report = lambda row: policies.update({float(row["total_reward_ma"]): one.agent.policy_state()})
    one.run()
    best = max(score for score in policies if not math.isnan(score))
    assert_equal(checkpoint.load(files_of(one).best), policies[best], "best")
    assert any(score < best for score in policies)


def test_a_stop_is_obeyed_between_two_steps_and_leaves_a_checkpoint(tmp_path: Path) -> None:
    one = session(tiny_spec(), folder=tmp_path)
    one.report = lambda row: one.stop("SIGTERM") if row["frame"] == 120 else None
    result = one.run()
    assert (result.finished, result.frame, result.metrics) == (False, 120, None)
    assert checkpoints(one) == ["120"]
    one.stop("SIGINT")
    assert one.stop.reason == "SIGTERM"  # the first reason counts


# numbers that are not finite


def faulty(fault: str, at: int = 40, **sections: Any) -> Spec:
    env = {"name": "faulty_envs:Faulty", "faults": {"any": fault}, "at": at, "max_frame": 3000, "max_t": 20}
    return tiny_spec("PPO", env=env, **sections)


def spoiled(one: Session, field: Literal["reward", "next_obs"], at: int = 40) -> Session:
    """A session whose agent is given NaN from vector step `at` on."""
    step = one.env.step

    def with_nan(action: Any) -> Step:
        given = step(action)
        return given if one.clock.t + 1 < at else given._replace(**{field: given._asdict()[field] * np.float32(np.nan)})

    one.env.step = with_nan  # type: ignore[method-assign]
    return one


@pytest.mark.parametrize(("field", "named"), [("reward", "reward"), ("next_obs", "observation")])
def test_nan_is_skipped_counted_named_and_ends_the_session(
    tmp_path: Path, warnings: list[str], field: Literal["reward", "next_obs"], named: str
) -> None:
    one = spoiled(session(tiny_spec("PPO", env={"max_frame": 3000, "max_t": 20}), folder=tmp_path), field)
    with pytest.raises(RunError) as error:
        one.run()
    assert f"{STREAK} gradient steps in a row were skipped because loss" in str(error.value)
    assert str(error.value).startswith(f"frame {one.clock.frame}: ")
    assert named in str(error.value).split("not finite: ")[1]
    # 48 rows a batch are 3 minibatches, twice: the first NaN comes in step 40, in the third batch of 16 steps
    skips = table(one)["nan_skips"].tolist()
    assert skips[:2] == [0, 0]
    assert skips == sorted(skips)
    assert skips[-1] > 0
    assert f"not finite: {named}" in warnings[0]
    assert all(parameter.isfinite().all() for parameter in one.agent.algorithm.nets.parameters())


def test_an_error_of_learning_that_is_not_of_numbers_names_none(monkeypatch: pytest.MonkeyPatch) -> None:
    one = spoiled(session(tiny_spec("PPO")), "reward", 1)

    def no_compiler(*_: Any) -> None:
        raise RunError("no compiler")

    monkeypatch.setattr(one.agent, "learn", no_compiler)
    with pytest.raises(RunError, match=r"^frame 3: no compiler$"):
        one.run()


def test_nan_in_the_first_update_is_named_too() -> None:
    one = spoiled(
        session(tiny_spec("PPO", algorithm={"training_epoch": 50, "normalize_advantages": "none"})), "reward", 1
    )
    with pytest.raises(RunError, match=r"^frame 48: 100 gradient steps .*; not finite: reward$"):
        one.run()


@pytest.mark.parametrize(("fault", "named"), [("nan reward", "reward"), ("nan obs", r"observation\[0\]")])
def test_nan_from_an_env_ends_the_session_at_once_and_never_becomes_the_best(
    tmp_path: Path, fault: str, named: str
) -> None:
    one = session(faulty(fault), folder=tmp_path, every=0)
    with pytest.raises(RunError, match=rf"^after frame 117: env 0: {named} is nan;"):  # 39 steps of 3 envs
        one.run()
    assert math.isfinite(one.tracker.best)
    assert one.tracker.best == table(one)["total_reward_ma"].max()


def test_an_env_that_fails_is_not_blamed_on_numbers() -> None:
    one = session(faulty("raise"))
    with pytest.raises(ValueError, match=r"^broken at step 40$"):
        one.run()


# evaluation and extra checks


def test_evaluation_rows_stand_in_their_own_table_with_the_state_of_training(tmp_path: Path) -> None:
    spec = tiny_spec("PPO", meta={"rigorous_eval": 2, "eval_frequency": 100})
    one = session(spec, folder=tmp_path)
    result = one.run()
    rows = table(one, "eval")
    assert rows["frame"].tolist() == [102, 201, 300]
    assert rows["lr"].notna().all()
    assert rows["total_reward"].tolist() == pytest.approx(
        [one.eval_tracker.rewards[i] for i in range(3)] if one.eval_tracker else []
    )
    assert result.best == rows["total_reward_ma"].max()
    assert result.metrics is not None
    assert result.metrics["local"]["frames"] == [102, 201, 300]


def test_checks_add_a_column_and_change_no_number(tmp_path: Path) -> None:
    plain, checked = (
        session(tiny_spec(), folder=tmp_path / "a"),
        session(tiny_spec(), folder=tmp_path / "b", checks=True),
    )
    plain.run()
    checked.run()
    assert_equal(state_of(checked), state_of(plain))
    ours, theirs = (read_table(files_of(one).session_table("train")) for one in (checked, plain))
    assert ours.columns.tolist() == [*theirs.columns, "grad_norm"]
    assert (ours["grad_norm"] > 0).all()
