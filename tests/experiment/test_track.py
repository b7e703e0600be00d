"""A session's running score and its table."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pandas as pd
import pytest

from slm_lab.experiment.track import COLUMNS, WINDOW, Tracker
from slm_lab.lib.errors import RunError
from slm_lab.types import Clock

PUBLISHED = "total_reward,total_reward_ma,loss,fps,frame,wall_t,t,epi,opt_step,lr,nan_skips"


def clock(frame: int) -> Clock:
    return Clock(1000, frame, t=frame // 4, epi=2, opt_step=5, wall_t=2.5)


def test_the_columns_are_the_published_ones_in_order(tmp_path: Path) -> None:
    tracker = Tracker(tmp_path / "a.csv", ("entropy", "clip_eps"))
    tracker.row(clock(40), {"loss": 0.5, "lr": 1e-3, "nan_skips": 3, "entropy": 0.1, "clip_eps": 0.2, "other": 9})
    header, row = (tmp_path / "a.csv").read_text().splitlines()
    assert header == PUBLISHED + ",entropy,clip_eps"
    assert ",".join(COLUMNS) == PUBLISHED
    # no episode has ended: no reward; 40 frames in 2.5 s; whole seconds
    assert row == ",,0.5,16.0,40,2,10,2,5,0.001,3,0.1,0.2"


def test_total_reward_is_the_mean_of_the_last_hundred_returns() -> None:
    tracker = Tracker(None)
    assert math.isnan(tracker.total_reward)
    tracker.add([10.0])
    assert tracker.total_reward == 10
    tracker.add([20.0, 60.0])
    assert tracker.total_reward == 30
    tracker.add([1.0] * WINDOW)
    assert tracker.total_reward == 1


def test_total_reward_ma_is_the_mean_of_the_last_hundred_rows_without_nan() -> None:
    tracker = Tracker(None)
    assert math.isnan(tracker.row(clock(0), {})["total_reward_ma"])
    tracker.add([10.0])
    assert tracker.row(clock(4), {})["total_reward_ma"] == 10
    tracker.add([30.0])
    assert tracker.row(clock(8), {})["total_reward_ma"] == 15  # (10 + 20) / 2
    for _ in range(WINDOW):
        last = tracker.row(clock(12), {})
    assert last["total_reward_ma"] == 20


def test_an_evaluation_gives_its_own_reward() -> None:
    tracker = Tracker(None)
    tracker.add([10.0])
    row = tracker.row(clock(4), {}, total_reward=-3.0)
    assert (row["total_reward"], row["total_reward_ma"]) == (-3, -3)


def test_the_best_is_the_newest_of_equals_and_never_nan() -> None:
    tracker = Tracker(None)
    assert not tracker.improved({"total_reward_ma": math.nan})
    assert tracker.improved({"total_reward_ma": -500.0})
    assert not tracker.improved({"total_reward_ma": math.nan})
    assert not tracker.improved({"total_reward_ma": -500.1})
    assert tracker.improved({"total_reward_ma": -500.0})
    assert tracker.best == -500


def test_a_nan_return_does_not_count_as_a_score() -> None:
    tracker = Tracker(None)
    tracker.add([5.0])
    tracker.row(clock(4), {})
    tracker.add([math.nan])
    row = tracker.row(clock(8), {})
    assert math.isnan(row["total_reward"])
    assert row["total_reward_ma"] == 5


def test_rows_after_the_checkpoint_are_cut_and_come_again(tmp_path: Path) -> None:
    table = tmp_path / "a.csv"
    tracker = Tracker(table)
    for frame in (10, 20):
        tracker.add([frame])
        tracker.row(clock(frame), {"loss": 0.1})
    state, kept = tracker.state_dict(), table.read_text()
    tracker.add([30])
    tracker.row(clock(30), {"loss": 0.1})
    longer = table.read_text()
    with open(table, "a") as file:
        file.write("1,2,thr")  # a kill in mid-row

    later = Tracker(table)
    later.load_state_dict(state)
    assert table.read_text() == kept
    later.add([30])
    later.row(clock(30), {"loss": 0.1})
    assert table.read_text() == longer
    assert later.state_dict() == tracker.state_dict()


def test_a_session_that_starts_anew_starts_its_table_anew(tmp_path: Path) -> None:
    table = tmp_path / "a.csv"
    table.write_text("rows\nof\nan earlier start\n")
    Tracker(table).row(clock(4), {})
    assert len(pd.read_csv(table)) == 1
    tracker = Tracker(table)
    tracker.load_state_dict(Tracker(None).state_dict())  # saved before the first row
    tracker.row(clock(8), {})
    assert pd.read_csv(table)["frame"].tolist() == [8]


@pytest.mark.parametrize("content", [None, "", "frame\n1\n"])
def test_a_table_that_lost_rows_is_not_continued(tmp_path: Path, content: str | None) -> None:
    table = tmp_path / "a.csv"
    tracker = Tracker(table)
    for frame in (10, 20):
        tracker.row(clock(frame), {})
    state = tracker.state_dict()
    table.unlink()
    if content is not None:
        table.write_text(content)
    with pytest.raises(RunError, match=r"a\.csv: holds [01] of the 2 rows its checkpoint counts on"):
        Tracker(table).load_state_dict(state)


def test_numbers_are_written_in_full(tmp_path: Path) -> None:
    tracker = Tracker(tmp_path / "a.csv")
    tracker.add([0.1, 0.2])
    row = tracker.row(clock(3), {"loss": 1 / 3})
    with open(tmp_path / "a.csv") as file:
        written = next(csv.DictReader(file))
    assert float(written["loss"]) == 1 / 3
    assert float(written["total_reward"]) == row["total_reward"] == 0.30000000000000004 / 2
