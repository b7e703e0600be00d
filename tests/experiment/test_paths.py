from datetime import datetime
from pathlib import Path

import pytest

from slm_lab.experiment.paths import Paths
from slm_lab.lib.errors import LabError

NOW = datetime(2026, 1, 2, 3, 4, 5)
TRIAL = Paths(Path("data/x_2026_01_02_030405"), "x")
SESSION = TRIAL.for_session(1)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (TRIAL.experiment_spec, "x_spec.json"),
        (TRIAL.trial_spec, "x_t0_spec.json"),
        (SESSION.session_spec, "x_t0_s1_spec.json"),
        (SESSION.session_table("train"), "info/x_t0_s1_session_df_train.csv"),
        (SESSION.session_table("eval"), "info/x_t0_s1_session_df_eval.csv"),
        (SESSION.session_metrics("eval"), "info/x_t0_s1_session_metrics_eval.json"),
        (SESSION.session_scalar("train"), "info/x_t0_s1_session_metrics_scalar_train.json"),
        (SESSION.session_evaluation, "info/x_t0_s1_session_evaluation.json"),
        (SESSION.session_profile, "info/x_t0_s1_profile.json"),
        (TRIAL.trial_metrics, "info/x_t0_trial_metrics.json"),
        (TRIAL.trial_scalar, "info/x_t0_trial_metrics_scalar.json"),
        (TRIAL.beside_spec(TRIAL.trial_scalar), "x_t0_trial_metrics_scalar.json"),
        (TRIAL.trial_data, "info/x_trial_data_dict.json"),
        (TRIAL.experiment_table, "info/x_experiment_df.csv"),
        (SESSION.session_graph("train", "loss_vs_frame"), "graph/x_t0_s1_session_graph_train_loss_vs_frame.png"),
        (SESSION.flame_graph, "graph/x_t0_s1_profile.html"),
        (TRIAL.trial_graph("mean_returns_vs_frames"), "graph/x_t0_trial_graph_mean_returns_vs_frames.png"),
        (TRIAL.experiment_graph, "graph/x_experiment_graph.png"),
        (TRIAL.multi_trial_graph("mean_returns_vs_frames"), "graph/x_multi_trial_graph_mean_returns_vs_frames.png"),
        (TRIAL.experiment_log, "log/x.log"),
        (TRIAL.trial_log, "log/x_t0.log"),
        (SESSION.session_log, "log/x_t0_s1.log"),
        (SESSION.tensorboard, "log/x_t0_s1_tb"),
        (SESSION.checkpoint(50_000), "model/x_t0_s1_ckpt-50000.safetensors"),
        (SESSION.best, "model/x_t0_s1_ckpt-best.safetensors"),
        (TRIAL.ray_tune, "ray_tune"),
    ],
)
def test_every_file_has_its_published_name(path, expected):
    assert path == TRIAL.predir / expected


def test_a_later_trial_has_its_own_names():
    assert Paths(Path("d"), "x", trial=12).for_session(0).session_log == Path("d/log/x_t12_s0.log")


def test_a_trials_paths_have_no_session_files():
    with pytest.raises(ValueError, match="for_session"):
        _ = TRIAL.session_log


def test_make_folders_creates_the_four_folders(tmp_path):
    Paths(tmp_path / "run", "x").make_folders()
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["graph", "info", "log", "model"]


def test_a_new_run_never_shares_a_folder(tmp_path):
    runs = [Paths.new(tmp_path / "data", "x", NOW) for _ in range(3)]
    names = ["x_2026_01_02_030405", "x_2026_01_02_030405_2", "x_2026_01_02_030405_3"]
    assert [run.predir for run in runs] == [tmp_path / "data" / name for name in names]
    assert all(run.predir.is_dir() and run.name == "x" for run in runs)


def test_a_new_run_where_nothing_can_be_written_is_a_one_line_error(tmp_path):
    (tmp_path / "data").write_text("a file")
    with pytest.raises(LabError, match="cannot create this folder"):
        Paths.new(tmp_path / "data", "x", NOW)


def test_latest_is_the_newest_folder_of_exactly_this_name(tmp_path):
    for name in (
        "ppo_2026_01_02_030405",
        "ppo_2026_01_02_030405_2",
        "ppo_2026_01_02_030405_10",
        "ppo_2025_12_31_235959_11",
        "ppo_arc_2027_01_01_000000",
        "ppo_2028_01_01_000000_notes",
        "ppo_latest",
    ):
        (tmp_path / name).mkdir()
    (tmp_path / "ppo_2029_01_01_000000").write_text("not a folder")
    assert Paths.latest(tmp_path, "ppo").name == "ppo_2026_01_02_030405_10"
    assert Paths.latest(tmp_path, "ppo_arc").name == "ppo_arc_2027_01_01_000000"


def test_latest_says_what_there_is_when_there_is_no_such_run(tmp_path):
    for name in ("ppo_cartpole_2026_01_02_030405", "sac_2026_01_03_000000", "notes"):
        (tmp_path / name).mkdir()
    with pytest.raises(LabError) as error:
        Paths.latest(tmp_path, "ppo_carpole")
    assert str(error.value) == (
        f"{tmp_path}: no run of spec 'ppo_carpole'. Did you mean 'ppo_cartpole'?"
        " There is: sac_2026_01_03_000000, ppo_cartpole_2026_01_02_030405."
    )


@pytest.mark.parametrize("folder", [".", "absent"])
def test_latest_says_when_there_are_no_runs_at_all(tmp_path, folder):
    with pytest.raises(LabError, match="no runs in this folder"):
        Paths.latest(tmp_path / folder, "ppo")


def test_checkpoints_come_newest_first_by_number_and_without_the_best(tmp_path):
    paths = Paths(tmp_path, "x").for_session(1)
    paths.make_folders()
    others = (paths.best, paths.for_session(10).checkpoint(7), paths.checkpoint(5).with_suffix(".safetensors.tmp1"))
    for path in (paths.checkpoint(9_000), paths.checkpoint(100_000), paths.checkpoint(20_000), *others):
        path.touch()
    assert paths.checkpoints() == [paths.checkpoint(frame) for frame in (100_000, 20_000, 9_000)]


def test_a_session_that_saved_nothing_has_no_checkpoints(tmp_path):
    assert Paths(tmp_path, "x", session=0).checkpoints() == []
