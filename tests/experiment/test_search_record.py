"""What a search knows of its trials: on disk, ranked, counted."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from search_helpers import GAMMA, LAYERS, drawn

from slm_lab.experiment.paths import Paths
from slm_lab.experiment.search_record import Drawn, SearchRecord, SearchResult
from slm_lab.lib.errors import LabError


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path / "x_2026", "x")
    paths.predir.mkdir()
    paths.make_folders()
    return paths


def record_of(paths: Paths, *trials: Drawn) -> SearchRecord:
    record = SearchRecord.at(paths)
    for trial in trials:
        record.put(trial)
    return record


def test_a_folder_without_a_record_has_no_trials(paths: Paths) -> None:
    assert SearchRecord.at(paths).trials == {}
    assert not paths.trial_data.exists()


def test_a_record_comes_back_as_it_was_written(paths: Paths) -> None:
    record = record_of(paths, drawn(2, 17.25, gamma=0.9375, layers=1), drawn(0, status="running", frame=0))
    again = SearchRecord.at(paths)
    assert list(again.trials) == [0, 2]  # by number, whatever the order they came in
    assert again.trials[2] == record.trials[2]
    assert again.trials[2].values == {GAMMA: 0.9375, LAYERS: [4, 4]}
    assert math.isnan(again.trials[0].score)
    assert again.trials[0].status == "running"


def test_nan_is_written_as_null(paths: Paths) -> None:
    record_of(paths, drawn(0))
    assert json.loads(paths.trial_data.read_text())["0"]["score"] is None


def test_where_a_trial_stands_is_kept_in_memory_and_how_it_ended_on_disk(paths: Paths) -> None:
    record = record_of(paths, drawn(0, status="running", frame=0))
    record.saw(0, 120, 9.5)
    assert (record.trials[0].frame, record.trials[0].score) == (120, 9.5)
    assert SearchRecord.at(paths).trials[0].frame == 0
    record.failed_once(0)
    record.failed_once(0)
    record.ended(0, "failed", "broken")
    last = SearchRecord.at(paths).trials[0]
    assert (last.status, last.reason, last.failures, last.frame, last.score) == ("failed", "broken", 2, 120, 9.5)


def test_neither_nan_nor_a_failed_trial_ranks_above_a_negative_score(paths: Paths) -> None:
    record = record_of(
        paths,
        drawn(0, -200.0),
        drawn(1, -150.0),
        drawn(2, math.nan),
        drawn(3, 500.0, "failed"),
        drawn(4, math.inf),
        drawn(5, -math.inf, "failed"),
    )
    assert [trial.trial for trial in record.ranked()] == [1, 0, 2, 4, 3, 5]
    assert [trial.rank[0] for trial in record.ranked()] == [False, False, True, True, True, True]


def test_whole_trials_rank_above_those_that_were_stopped_on_the_way(paths: Paths) -> None:
    record = record_of(
        paths,
        drawn(0, 90.0, "stopped", frame=120),
        drawn(1, 10.0),
        drawn(2, 95.0, "running", frame=60),
        drawn(3, 20.0),
        drawn(4, 20.0),
    )
    assert [trial.trial for trial in record.ranked()] == [3, 4, 1, 2, 0]  # 3 and 4 are equal: the earlier one first


def test_trials_by_their_ending(paths: Paths) -> None:
    record = record_of(paths, drawn(3, 1.0, "failed"), drawn(1, 2.0), drawn(0, 3.0, "stopped"), drawn(2, 4.0))
    assert [trial.trial for trial in record.of("done")] == [1, 2]
    assert [trial.trial for trial in record.of("done", "stopped", "failed")] == [0, 1, 2, 3]
    assert record.of("running") == []


@pytest.mark.parametrize(
    ("trials", "planned", "stopped", "complete"),
    [
        ([drawn(0, 1.0), drawn(1, 2.0, "stopped")], 2, "", True),
        ([drawn(0, 1.0), drawn(1, status="failed")], 2, "", True),
        ([drawn(0, status="failed"), drawn(1, 3.0, "failed")], 2, "", False),  # nothing has a score
        ([drawn(0, 1.0), drawn(1, 2.0, "running")], 2, "", False),
        ([drawn(0, 1.0)], 2, "", False),
        ([drawn(0, 1.0), drawn(1, 2.0)], 2, "SIGTERM", False),
        ([], 0, "", False),
    ],
)
def test_a_search_is_complete_when_all_trials_have_ended_and_one_has_a_score(
    paths: Paths, trials: list[Drawn], planned: int, stopped: str, complete: bool
) -> None:
    assert SearchResult(record_of(paths, *trials), planned, stopped).complete is complete


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"trial": 7}, "trial 7 cannot be read; this is not a file of this version's search"),
        ([1, 2], "trial 7 cannot be read"),
        ({"trial": 7, "drawn": {}, "values": {}, "score": 1.0, "speed": 3}, "trial 7 cannot be read"),
        ({"trial": 7, "drawn": {}, "values": {}, "score": "high"}, "trial 7 cannot be read"),
        (
            {"trial": 7, "drawn": {}, "values": {}, "score": 1.0, "status": "lost"},
            "unknown status 'lost'; known: running, done, stopped, failed",
        ),
    ],
)
def test_a_record_that_is_not_ours_is_refused_with_its_path(paths: Paths, entry: object, said: str) -> None:
    paths.trial_data.write_text(json.dumps({"7": entry}))
    with pytest.raises(LabError, match=said) as error:
        SearchRecord.at(paths)
    assert str(paths.trial_data) in str(error.value)
