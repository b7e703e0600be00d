"""What a search leaves behind: tables, graphs, the best specs as files to run; models of the others go."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from result_folders import write_table
from rich.console import Console
from run_helpers import assert_equal, no_sinks  # noqa: F401
from search_helpers import GAMMA, LAYERS, drawn, searched_spec

import slm_lab
from slm_lab.experiment.analysis import session_metrics, trial_metrics
from slm_lab.experiment.control import RunOptions, read_saved
from slm_lab.experiment.finished import read_table
from slm_lab.experiment.paths import Paths
from slm_lab.experiment.scatter import scatter_grid
from slm_lab.experiment.search_end import best_specs, conclude, prune
from slm_lab.experiment.search_record import SearchRecord
from slm_lab.experiment.search_results import METRICS, experiment_table
from slm_lab.experiment.search_results import trial_metrics as metrics_of
from slm_lab.spec.load import load
from slm_lab.spec.random_baseline import baseline

ZERO = baseline("CartPole-v1", {}) or 0.0


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path / "tiny_2026", "tiny")
    paths.make_folders()
    return paths


def of_trial(paths: Paths, trial: int) -> Paths:
    return replace(paths, trial=trial)


def touch(*files: Path) -> None:
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


# metrics and the table


def test_metrics_of_a_trial_are_those_of_its_sessions(paths: Paths) -> None:
    for session, returns in enumerate([(20.0, 40.0), (30.0, 60.0)]):
        write_table(paths, session, "eval", returns)
    tables = [read_table(paths.for_session(k).session_table("eval")) for k in (0, 1)]
    expected = trial_metrics([session_metrics(table, ZERO) for table in tables], 2)
    assert_equal(metrics_of(paths, 2, ZERO), expected)
    assert metrics_of(paths, 2, ZERO)["scalar"]["total_reward_ma"] == (30 + 45) / 2


def test_a_trial_that_was_stopped_on_the_way_is_judged_by_its_training_rows(paths: Paths) -> None:
    write_table(paths, 0, "train", (20.0, 40.0))
    scalar = metrics_of(paths, 1, ZERO)["scalar"]
    assert (scalar["frame"], scalar["total_reward_ma"]) == (200, 30.0)
    write_table(paths, 0, "eval", (50.0, 70.0, 90.0))  # an evaluation counts for more
    assert metrics_of(paths, 1, ZERO)["scalar"]["total_reward_ma"] == 70.0


def test_the_table_has_a_row_for_each_trial_the_best_first(paths: Paths) -> None:
    ranked = [drawn(1, -10.0, gamma=0.9375, layers=1), drawn(0, -20.0), drawn(2, 99.0, "failed")]
    for trial, returns in ((1, (-12.0, -8.0)), (0, (-20.0, -20.0)), (2, (99.0, 99.0))):
        write_table(of_trial(paths, trial), 0, "eval", returns)
    found = {n: metrics_of(of_trial(paths, n), 1, ZERO) for n in (0, 1, 2)}
    table = experiment_table(ranked, found)
    assert list(table) == ["trial", GAMMA, LAYERS, *METRICS, "status"]
    assert METRICS[:3] == ("frame", "total_reward_ma", "strength")
    assert table["trial"].tolist() == [1, 0, 2]
    assert table[GAMMA].tolist() == [0.9375, 0.95, 0.95]
    assert table[LAYERS].tolist() == ["[4, 4]", "[8]", "[8]"]
    assert table["total_reward_ma"].tolist()[:2] == [-10.0, -20.0]
    assert table.loc[2, list(METRICS)].isna().all()  # a failed trial has no numbers, whatever its table says
    assert table["status"].tolist() == ["done", "done", "failed"]


def test_a_trial_without_any_table_is_a_row_without_numbers(paths: Paths) -> None:
    table = experiment_table([drawn(0, status="failed")], {0: metrics_of(paths, 1, ZERO)})
    assert math.isnan(table.loc[0, "total_reward_ma"])


# the best specs


def test_the_best_specs_are_files_that_load_and_run_on_other_seeds(paths: Paths) -> None:
    meta = {"max_session": 1, "max_trial": 9, "search_scheduler": {"grace_period": 60}}
    spec = searched_spec(meta=meta)
    ranked = [drawn(5, -10.0, gamma=0.9375, layers=1), drawn(2, -20.5), drawn(0, 7.0, "stopped"), drawn(1)]
    best_specs(spec, paths, ranked, 5)
    written = sorted(path.name for path in paths.best_spec(1).parent.iterdir())
    assert written == ["tiny_top1.json", "tiny_top2.json", "tiny_top3.json"]  # trial 1 has no score
    why = json.loads(paths.best_spec(1).read_text())["_why"]["tiny_top1"]["agent"]
    assert "trial 5 of the search in tiny_2026: rank 1, total_reward_ma -10.00" in why
    best = load(paths.best_spec(1), "tiny_top1")
    assert best.notes == []
    assert (best.spec.agent.algorithm["gamma"], best.spec.agent.net["hid_layers"]) == (0.9375, [4, 4])
    assert (best.spec.meta.random_seed, best.spec.meta.search_scheduler, best.spec.search) == (3 + 1, None, {})
    result = slm_lab.run(paths.best_spec(2), options=RunOptions(paths.predir / "runs", log_level="ERROR"))
    assert result.trial is not None
    assert result.trial.complete
    assert read_saved(Paths(result.predir, "tiny_top2").trial_spec).agent.algorithm["gamma"] == 0.95


def test_the_best_specs_have_the_sessions_that_were_asked_for(paths: Paths) -> None:
    best_specs(searched_spec(meta={"max_session": 4}), paths, [drawn(0, 1.0)], 3)
    assert load(paths.best_spec(1), "tiny_top1").spec.meta.max_session == 4


# models


def test_the_files_of_a_trial_are_not_those_of_one_whose_number_begins_alike(paths: Paths) -> None:
    first, tenth = (of_trial(paths, n).for_session(0) for n in (1, 10))
    ours = [first.trial_spec, first.session_table("train"), first.checkpoint(60), first.tensorboard / "events"]
    touch(*ours, tenth.trial_spec, tenth.session_table("train"), tenth.checkpoint(60), tenth.tensorboard / "events")
    touch(paths.experiment_spec, paths.trial_data, paths.best_spec(1), paths.validation / "tiny_top1_2026" / "x")
    assert sorted(of_trial(paths, 1).trial_files()) == sorted(ours)


def test_models_of_all_but_the_best_trials_go_and_nothing_else(paths: Paths) -> None:
    ranked = [drawn(10, 5.0), drawn(1, 4.0), drawn(2, 3.0, "stopped"), drawn(3, 2.0, "running"), drawn(4)]
    for trial in ranked:
        own = of_trial(paths, trial.trial).for_session(0)
        touch(own.checkpoint(60), own.best, own.chunk("memory", 0, 9), own.session_table("train"), own.trial_spec)
    prune(paths, ranked, keep=1)
    left = {path.name.split("_s0")[0] for path in paths.models.iterdir()}
    assert left == {"tiny_t10", "tiny_t3"}  # the best, and one that still runs
    for trial in ranked:
        own = of_trial(paths, trial.trial).for_session(0)
        assert own.session_table("train").exists()
        assert own.trial_spec.exists()


# all of it


def search_folder(paths: Paths) -> tuple[SearchRecord, str]:
    """A concluded search of a trial that ended, one that was stopped and one that failed, and what it printed."""
    record, trials = SearchRecord.at(paths), [drawn(0, 20.0), drawn(1, 10.0, "stopped"), drawn(2, status="failed")]
    for trial, returns in zip(trials, ((10.0, 30.0), (10.0,), (5.0,)), strict=True):
        record.put(trial)
        write_table(of_trial(paths, trial.trial), 0, "train", returns)
    touch(*(of_trial(paths, n).for_session(0).best for n in (0, 1, 2)))
    printed = io.StringIO()
    conclude(searched_spec(), paths, record, 1, 0, False, Console(file=printed, width=120))
    return record, printed.getvalue()


def test_a_search_concludes_with_all_its_files(paths: Paths) -> None:
    _, printed = search_folder(paths)
    pictures = [
        paths.experiment_graph,
        *(paths.multi_trial_graph(f"mean_returns{ma}_vs_frames") for ma in ("", "_ma")),
    ]
    for picture in (*pictures, *map(paths.beside_spec, pictures)):
        assert picture.read_bytes().startswith(b"\x89PNG")
    table = pd.read_csv(paths.experiment_table)
    assert table["trial"].tolist() == [0, 1, 2]
    assert paths.beside_spec(paths.experiment_table).read_text() == paths.experiment_table.read_text()
    assert [path.name for path in sorted(paths.best_spec(1).parent.iterdir())] == ["tiny_top1.json", "tiny_top2.json"]
    assert [path.name for path in paths.models.iterdir()] == ["tiny_t0_s0_ckpt-best.safetensors"]
    rows = [line.split() for line in printed.splitlines()]
    assert [row[:2] for row in rows if row and row[-1] == "[8]"] == [["1", "0"], ["2", "1"], ["-", "2"]]
    assert f"files: {paths.predir}" in printed.replace("\n", "")


def test_a_search_that_was_stopped_before_its_first_draw_leaves_nothing(paths: Paths) -> None:
    conclude(searched_spec(), paths, SearchRecord.at(paths), 1, 0, False, Console(file=io.StringIO()))
    assert not paths.experiment_table.exists()


# the scatter graph


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Figures in place of their bytes."""
    found = list[Any]()
    monkeypatch.setattr("slm_lab.experiment.scatter.png", lambda figure: found.append(figure) or b"")
    return found


def test_the_scatter_graph_has_a_panel_for_each_metric_and_drawn_value(figures: list[Any]) -> None:
    table = pd.DataFrame(
        {
            "agent.net.optim_spec.lr": [1e-4, 1e-2, 1e-3],
            "agent.algorithm.gamma": [0.9, 0.95, 0.99],
            "agent.net.hid_layers": ["[8]", "[4, 4]", "[8]"],
            "agent.net.shared": [True, False, True],
            "total_reward_ma": [1.0, math.nan, 3.0],
            "strength": [4.0, math.nan, 6.0],
        }
    )
    scatter_grid("x", table, list(table)[:4], ["total_reward_ma", "strength"])
    panels = figures[0].axes[:8]
    assert [panel.get_xlabel() for panel in panels] == ["", "", "", "", "lr", "gamma", "hid_layers", "shared"]
    assert [panel.get_ylabel() for panel in panels if panel.get_ylabel()] == ["total_reward_ma", "strength"]
    assert [panel.get_xscale() for panel in panels[4:]] == ["log", "linear", "linear", "linear"]
    ticks = [[tick.get_text() for tick in panel.get_xticklabels()] for panel in panels[6:]]
    assert ticks == [["[4, 4]", "[8]"], ["False", "True"]]
    assert panels[6].collections[0].get_offsets().tolist() == [[1, 4], [None, None], [1, 6]]


def test_one_drawn_value_and_trials_without_a_score_can_be_drawn(figures: list[Any]) -> None:
    table = pd.DataFrame({"env.num_envs": [4, 8], "total_reward_ma": [math.nan, math.nan]})
    scatter_grid("x", table, ["env.num_envs"], ["total_reward_ma"])
    assert len(figures[0].axes) == 1
