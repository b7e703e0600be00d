import json

import pytest
from result_folders import saved_spec, write_run, write_spec_only, write_table

from slm_lab.experiment.lock import alone
from slm_lab.experiment.retro import retro
from slm_lab.lib.errors import LabError

# the published example: random actions score 10, gradient steps are 0, 10, 20, 30
FIRST, SECOND = (20.0, 40.0, 30.0, 60.0), (14.0, 38.0, 44.0, 40.0)
KINDS = ("train", "eval")


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Random actions score 10, and graphs hold their title and axis instead of a picture, which takes longer."""
    monkeypatch.setattr("slm_lab.experiment.finished.baseline", lambda env, kwargs: 10.0)
    monkeypatch.setattr("slm_lab.experiment.plot.draw", lambda title, label, *_: f"{title} {label}".encode())


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def scalar(folder, name):
    return json.loads((folder / name).read_text())


def test_metrics_are_those_of_the_published_example(tmp_path):
    done = retro(write_run(tmp_path, [FIRST, SECOND]))
    trial = scalar(tmp_path, "x_t0_trial_metrics_scalar.json")
    assert (trial["frame"], trial["total_reward_ma"], trial["strength"]) == (400, 35.75, 25.75)
    assert trial["training_efficiency"] == pytest.approx(0.05440341, abs=5e-9)
    assert trial["consistency"] == pytest.approx(0.42333039, abs=5e-9)
    session = scalar(tmp_path, "info/x_t0_s1_session_metrics_scalar_eval.json")
    assert (session["total_reward_ma"], session["max_strength"]) == (34, 34)
    assert done.notes == []
    assert done.lines[0].startswith("trial_metrics: frame:4.00e+02 | total_reward_ma:35.75 | strength:25.75 |")


def test_everything_a_run_sums_up_is_written_and_told(tmp_path):
    before = contents(write_run(tmp_path, [FIRST, SECOND]))
    done = retro(tmp_path)
    after = contents(tmp_path)
    assert {str(path.relative_to(tmp_path)) for path in done.written} == after.keys() - before.keys()
    assert {key for key in after if key.startswith("info/") and "metrics" in key} == {
        *(f"info/x_t0_s{k}_session_metrics_{s}{kind}.json" for k in (0, 1) for s in ("", "scalar_") for kind in KINDS),
        "info/x_t0_trial_metrics.json",
        "info/x_t0_trial_metrics_scalar.json",
    }
    assert "x_t0_trial_graph_mean_returns_ma_vs_frames.png" in after
    assert "graph/x_t0_s1_session_graph_train_mean_returns_vs_frames.png" in after
    assert not any("graph_eval" in key for key in after)  # the second table is a copy of the first


def test_tables_models_and_specs_stay_as_they_are(tmp_path):
    write_run(tmp_path, [FIRST, SECOND])
    (tmp_path / "model/x_t0_s0_ckpt-400.safetensors").write_bytes(b"weights")
    before = contents(tmp_path)
    retro(tmp_path)
    after = contents(tmp_path)
    assert {key: after[key] for key in before} == before


def test_metrics_that_were_wrong_are_made_right_and_a_second_time_changes_nothing(tmp_path):
    write_run(tmp_path, [FIRST])
    (tmp_path / "info/x_t0_trial_metrics_scalar.json").write_text('{"total_reward_ma": 999}')
    retro(tmp_path)
    once = contents(tmp_path)
    assert scalar(tmp_path, "info/x_t0_trial_metrics_scalar.json")["total_reward_ma"] == 37.5
    retro(tmp_path)
    assert contents(tmp_path) == once


def test_a_session_that_stopped_early_gets_graphs_and_does_not_count(tmp_path):
    done = retro(write_run(tmp_path, [FIRST, (5.0, 5.0)]))
    trial = scalar(tmp_path, "x_t0_trial_metrics_scalar.json")
    assert (trial["total_reward_ma"], trial["sessions_done"], trial["sessions_planned"]) == (37.5, 1, 2)
    assert (tmp_path / "graph/x_t0_s1_session_graph_train_mean_returns_vs_frames.png").exists()
    assert not list(tmp_path.glob("info/x_t0_s1_session_metrics*"))
    assert done.notes == ["x_t0_s1: stopped at frame 200 of 400 frames; it gets no metrics and does not count."]
    assert done.lines[0].endswith("| sessions:1/2")


def test_a_run_without_a_complete_session_gets_no_trial_metrics(tmp_path):
    done = retro(write_run(tmp_path, [(5.0, 5.0)]))
    assert done.lines == []
    assert not list(tmp_path.rglob("*trial_metrics*"))


def test_evaluations_decide_the_trial_and_have_graphs(tmp_path):
    write_run(tmp_path, [FIRST], saved_spec(meta={"max_session": 1, "rigorous_eval": 4, "eval_frequency": 200}))
    (tmp_path / "info/x_t0_s0_session_df_eval.csv").write_text("total_reward,frame,opt_step\n50,200,1\n70,400,2\n")
    retro(tmp_path)
    assert scalar(tmp_path, "x_t0_trial_metrics_scalar.json")["total_reward_ma"] == 60
    assert scalar(tmp_path, "info/x_t0_s0_session_metrics_scalar_train.json")["total_reward_ma"] == 37.5
    assert (tmp_path / "graph/x_t0_s0_session_graph_eval_mean_returns_vs_frames.png").exists()


def test_every_trial_of_a_search_is_done(tmp_path):
    spec = saved_spec(meta={"max_session": 1})
    for trial, returns in enumerate((FIRST, SECOND)):
        write_table(write_spec_only(tmp_path, spec, trial), 0, "train", returns)
    assert len(retro(tmp_path).lines) == 2
    assert scalar(tmp_path, "x_t1_trial_metrics_scalar.json")["total_reward_ma"] == 34


def test_other_metrics_are_drawn_when_asked(tmp_path):
    retro(write_run(tmp_path, [FIRST]), extra_graphs=True)
    assert (tmp_path / "graph/x_t0_trial_graph_strengths_vs_frames.png").exists()


def test_a_folder_without_graphs_and_models_is_done_too(tmp_path):
    write_run(tmp_path, [FIRST])
    for folder in ("graph", "model", "log"):
        (tmp_path / folder).rmdir()
    retro(tmp_path)
    assert (tmp_path / "graph").is_dir()
    assert not (tmp_path / "model").exists()


def test_an_env_that_nobody_measured_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("slm_lab.experiment.finished.baseline", lambda env, kwargs: None)
    done = retro(write_run(tmp_path, [FIRST]))
    assert done.notes == ["CartPole-v1: nobody measured what random actions score; strengths are counted from 0."]
    assert scalar(tmp_path, "x_t0_trial_metrics_scalar.json")["strength"] == 37.5


def test_a_run_that_goes_on_is_left_alone(tmp_path):
    write_run(tmp_path, [FIRST])
    with alone(tmp_path, tmp_path / "model"), pytest.raises(LabError, match="another process is at work on this run"):
        retro(tmp_path)


def test_a_folder_without_anything_to_compute_is_refused(tmp_path):
    with pytest.raises(LabError, match="not a run folder"):
        retro(tmp_path)
    write_spec_only(tmp_path, saved_spec())
    with pytest.raises(LabError, match="nothing to compute: no session has a table with rows"):
        retro(tmp_path)
