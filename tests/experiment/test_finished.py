import json
import math

import pytest
from result_folders import saved_spec, write_run, write_spec_only, write_table

from slm_lab.experiment.analysis import session_metrics, trial_metrics
from slm_lab.experiment.finished import described, find_run, read, read_result, read_table, run_folders, trials
from slm_lab.lib.errors import LabError
from slm_lab.lib.io import write_json

FOUR = (1.0, 2.0, 3.0, 6.0)


def test_a_run_says_what_its_spec_and_tables_hold(tmp_path):
    run = read(write_run(tmp_path / "x_2026", [FOUR, (4.0, 4.0, 4.0, 8.0)]))
    assert (run.name, run.mode, run.env, run.algorithm) == ("x", "train", "CartPole-v1", "PPO")
    assert (run.max_frame, run.num_envs, run.log_frequency, run.planned, run.done) == (400, 4, 100, 2, 2)
    assert (run.search, run.notes, run.kwargs, run.kind) == (False, (), {}, "train")
    first = run.sessions[0]
    assert first.frames.tolist() == [100, 200, 300, 400]
    assert first.returns.tolist() == [1, 2, 3, 6]
    assert first.opt_steps.tolist() == [0, 10, 20, 30]
    assert first.wall_t == 3
    assert run.scores.tolist() == [(1 + 2 + 3 + 6) / 4, (4 + 4 + 4 + 8) / 4]


def test_the_score_is_that_of_the_metrics_when_rows_are_more_than_the_window(tmp_path):
    returns = [float(i) for i in range(150)]
    run = read(write_run(tmp_path / "x", [returns], saved_spec(env={"max_frame": 15000}, meta={"max_session": 1})))
    assert run.scores.tolist() == [sum(range(50, 150)) / 100]
    table = read_table(run.paths.for_session(0).session_table("train"))
    assert run.scores[0] == session_metrics(table, 0)["scalar"]["total_reward_ma"]


@pytest.mark.parametrize(
    ("algorithm", "memory", "label"),
    [
        ("VanillaDQN", "Replay", "DQN"),
        ("DQN", "PrioritizedReplay", "DQN"),
        ("DoubleDQN", "PrioritizedReplay", "DDQN+PER"),
        ("DoubleDQN", "Replay", "DDQN"),
        ("ActorCritic", "OnPolicyReplay", "A2C"),
        ("Reinforce", "OnPolicyReplay", "REINFORCE"),
        ("SoftActorCritic", "Replay", "SAC"),
        ("CrossQ", "Replay", "CrossQ"),
        ("my_module:Own", "Replay", "my_module:Own"),
    ],
)
def test_algorithms_have_the_names_of_legends(tmp_path, algorithm, memory, label):
    write_spec_only(tmp_path, saved_spec(algorithm=algorithm, memory={"name": memory}))
    assert described(tmp_path).algorithm == label


def test_a_folder_of_slm_lab_4_is_read_though_its_spec_would_not_run_here(tmp_path):
    spec = saved_spec(
        env={"frame_op": "concat", "frame_op_len": 4, "normalize_state": True, "max_frame": 4e2},
        meta={"max_session": 1, "prepath": "data/x/x", "resume": False, "unheard_of": 1},
    )
    del spec["meta"]["record"]
    spec |= {"agent": [spec["agent"]], "env": [spec["env"]], "body": {"product": "outer"}}
    run = read(write_run(tmp_path / "x", [FOUR], spec))
    assert (run.mode, run.algorithm, run.max_frame, run.env_key, run.done) == ("unknown", "PPO", 400, "CartPole-v1", 1)


def test_keys_for_the_env_itself_are_part_of_what_it_is(tmp_path):
    write_spec_only(tmp_path, saved_spec(env={"name": "LunarLander-v3", "continuous": True, "max_t": 9, "device": "x"}))
    assert described(tmp_path).env_key == 'LunarLander-v3{"continuous":true}'


def test_evaluations_are_scored_where_there_are_any(tmp_path):
    meta = {"max_session": 1, "rigorous_eval": 8, "eval_frequency": 200}
    write_run(tmp_path, [FOUR], saved_spec(meta=meta))
    (tmp_path / "info/x_t0_s0_session_df_eval.csv").write_text(
        "total_reward,frame,opt_step\n50,200,1\n70,400,2\n"  # no wall_t: an older table
    )
    run = read(tmp_path)
    assert (run.kind, run.spacing, run.scores.tolist(), run.done) == ("eval", 200, [60], 1)
    assert math.isnan(run.sessions[0].wall_t)


def test_without_tables_the_series_of_the_trial_metrics_are_taken(tmp_path):
    write_run(tmp_path, [FOUR, (0.0, 0.0, 4.0, 8.0)])
    tables = [read_table(path) for path in sorted((tmp_path / "info").glob("*_train.csv"))]
    write_json(tmp_path / "info/x_t0_trial_metrics.json", trial_metrics([session_metrics(t, 0) for t in tables], 2))
    with_tables = read(tmp_path)
    for path in (tmp_path / "info").glob("*.csv"):
        path.unlink()
    without = read(tmp_path)
    assert without.scores.tolist() == with_tables.scores.tolist() == [3, 3]
    assert without.sessions[1].opt_steps.tolist() == [0, 10, 20, 30]
    assert (without.done, without.notes) == (2, ())


def test_nan_of_either_spelling_is_read_as_nan(tmp_path):
    paths = write_spec_only(tmp_path, saved_spec(meta={"max_session": 1}))
    local = {"frames": [[200, 400]], "mean_returns": [[math.nan, 4]], "opt_steps": [[None, 1]]}
    paths.trial_metrics.write_text(json.dumps({"local": local}))
    run = read(tmp_path)
    assert run.scores.tolist() == [4]
    assert math.isnan(run.sessions[0].opt_steps[0])


def test_metrics_of_another_shape_are_told(tmp_path):
    paths = write_spec_only(tmp_path, saved_spec())
    paths.trial_metrics.write_text(json.dumps({"local": {"frames": [1, 2], "mean_returns": [1], "opt_steps": [1]}}))
    with pytest.raises(LabError, match=r"x_t0_trial_metrics.json: expected in `local` frames"):
        read(tmp_path)


def test_a_session_that_stopped_early_is_told_and_left_out(tmp_path):
    run = read(write_run(tmp_path / "x", [FOUR, (5.0, 5.0, 5.0)]))
    assert [session.session for session in run.sessions] == [0]
    assert (run.done, run.planned) == (1, 2)
    assert run.notes == ("x: session 1 stopped at frame 300 of 400.",)


def test_a_run_that_stopped_early_is_read_as_far_as_it_went(tmp_path):
    run = read(write_run(tmp_path / "x", [(1.0, 3.0)]))
    assert (run.scores.tolist(), run.done) == ([2], 0)
    assert run.notes[-1] == "x: no session is complete; the numbers are those of as far as they went."


def test_a_session_without_a_table_is_told(tmp_path):
    run = read(write_run(tmp_path / "x", [FOUR], saved_spec(meta={"max_session": 3})))
    assert run.notes == ("x: 1 of 3 sessions have tables.",)


def test_no_row_at_the_very_end_is_needed_where_none_was_due(tmp_path):
    spec = saved_spec(env={"max_frame": 450}, meta={"max_session": 1})  # rows at 400 and then at 500
    assert read(write_run(tmp_path, [FOUR], spec)).done == 1


def test_workers_share_the_frames(tmp_path):
    spec = saved_spec(env={"max_frame": 800}, meta={"max_session": 2, "distributed": "shared"})
    run = read(write_run(tmp_path, [FOUR, FOUR], spec))
    assert (run.workers, run.session_frames, run.done) == (2, 400, 2)


def test_a_row_that_a_kill_cut_off_is_left_out(tmp_path):
    paths = write_spec_only(tmp_path, saved_spec())
    path = write_table(paths, 0, "train", FOUR)
    path.write_text(path.read_text().rstrip("\n").removesuffix("00,3,30,0.001"))  # ends in 6.0,4
    assert read_table(path)["frame"].tolist() == [100, 200, 300]


def test_a_frame_that_was_written_twice_counts_once(tmp_path):
    paths = write_spec_only(tmp_path, saved_spec())
    path = write_table(paths, 0, "train", FOUR)
    path.write_text(path.read_text() + "7.0,400,3,30,0.001\n")
    assert read_table(path)["total_reward"].tolist() == [1, 2, 3, 7]


def test_a_table_without_the_columns_of_one_is_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,frame\n1,2\n")
    with pytest.raises(LabError, match=r"t.csv: not the table of a session: no column total_reward, opt_step"):
        read_table(path)


def test_a_table_with_nothing_in_it_is_no_table(tmp_path):
    paths = write_spec_only(tmp_path, saved_spec())
    paths.for_session(0).session_table("train").write_text("")
    with pytest.raises(LabError, match=r"no results in it: there is neither info/x_t0_s0_session_df_train.csv"):
        read(tmp_path)


def test_a_folder_that_is_none_names_what_is_near(tmp_path):
    for name in ("ppo_hopper_2026", "sac_hopper_2026"):
        write_run(tmp_path / name, [FOUR])
    with pytest.raises(LabError, match=r"ppo_hopper: no such run folder, .* Near: ppo_hopper_2026\.$"):
        find_run("ppo_hopper", tmp_path)
    with pytest.raises(LabError, match=r"Did you mean 'sac_hopper_2026'\? There is: ppo_hopper_2026, sac_hopper_2026"):
        find_run("sac_hoper_2026", tmp_path)
    with pytest.raises(LabError, match="There are no runs in it"):
        find_run("x", tmp_path / "none")


def test_a_run_is_found_by_name_or_by_path(tmp_path):
    folder = write_run(tmp_path / "data/x_2026", [FOUR])
    assert find_run("x_2026", tmp_path / "data") == find_run(str(folder), tmp_path / "elsewhere") == folder


def test_only_folders_with_the_spec_of_a_trial_are_runs(tmp_path):
    write_run(tmp_path / "b", [FOUR])
    write_run(tmp_path / "a", [FOUR])
    (tmp_path / "other").mkdir()
    (tmp_path / "other/x_spec.json").write_text("{}")
    assert [path.name for path in run_folders(tmp_path)] == ["a", "b"]
    with pytest.raises(LabError, match=r"not a run folder: there is no <name>_t0_spec\.json"):
        read(tmp_path / "other")


@pytest.mark.parametrize("sign", ["mode", "trials", "table"])
def test_a_search_is_no_result(tmp_path, sign):
    spec = saved_spec(meta={"max_session": 1, "record": {"mode": "search" if sign == "mode" else "train"}})
    write_run(tmp_path, [FOUR], spec)
    if sign == "trials":
        write_spec_only(tmp_path, spec, trial=1)
        assert trials(tmp_path) == [0, 1]
    if sign == "table":
        (tmp_path / "info/x_experiment_df.csv").write_text("")
    assert read(tmp_path).search
    with pytest.raises(LabError, match="a search, not a result: its trials differ in their settings"):
        read_result(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read as JSON"),
        ("[]", "x_t0_spec.json: not the spec of a run"),
        ('{"agent": {}}', "x_t0_spec.json: no section `env`"),
        ('{"agent": {}, "env": {"name": "E"}, "meta": {}}', "x_t0_spec.json: its env has no max_frame"),
        ('{"agent": {}, "env": {"name": "E", "max_frame": "many"}, "meta": {}}', "max_frame: expected a number"),
    ],
)
def test_a_spec_that_cannot_be_read_is_told(tmp_path, text, message):
    (tmp_path / "x_t0_spec.json").write_text(text)
    with pytest.raises(LabError, match=message):
        described(tmp_path)
