import pytest
from result_folders import saved_spec, write_run

from slm_lab.experiment.compare import compare, differences
from slm_lab.experiment.finished import read


def run_of(folder, scores, algorithm="PPO", env=None, meta=None):
    spec = saved_spec("x", algorithm, env, {"max_session": len(scores), **(meta or {})})
    return read(write_run(folder, [(score,) * 4 for score in scores], spec))


def lines(report):
    """Lines with single spaces."""
    return [" ".join(line.split()) for line in report.splitlines()]


def test_runs_with_the_same_settings_are_said_to_have_them(tmp_path):
    report = lines(compare(run_of(tmp_path / "a", [1.0, 3.0]), run_of(tmp_path / "b", [5.0, 9.0])))
    assert report[:9] == [
        "A B",
        "run a b",
        "algorithm PPO PPO",
        "env CartPole-v1 CartPole-v1",
        "max_frame 400 400",
        "num_envs 4 4",
        "log_frequency 100 100",
        "sessions 2 2",
        "score from training training",
    ]
    assert "same settings" in report
    assert report[-1] == "the specs are the same"


def test_scores_come_with_those_of_each_session_and_their_difference_with_its_interval(tmp_path):
    report = lines(compare(run_of(tmp_path / "a", [1.0, 3.0]), run_of(tmp_path / "b", [5.0, 9.0])))
    assert "A 2.00 1.00 3.00" in report
    assert "B 7.00 5.00 9.00" in report
    # the ends are (5, 5) less (3, 3) and (9, 9) less (1, 1), a sixteenth of draws each
    assert "B - A 5.00 95 % interval 2.00 to 8.00" in report
    assert "probability that a session of B scores more 1 95 % interval 1 to 1" in report
    assert "intervals are percentile bootstraps, which are too narrow for 2 sessions" in report


def test_one_session_is_no_measure_of_spread(tmp_path):
    report = compare(run_of(tmp_path / "a", [1.0]), run_of(tmp_path / "b", [5.0, 9.0]))
    assert "one session says nothing of how scores vary" in report


def test_with_enough_sessions_no_excuse_is_made(tmp_path):
    scores = [float(i) for i in range(10)]
    report = compare(run_of(tmp_path / "a", scores), run_of(tmp_path / "b", scores))
    assert "too narrow" not in report
    assert "probability that a session of B scores more  0.5" in report


@pytest.mark.parametrize(
    ("env", "meta", "line"),
    [
        ({"max_frame": 450}, {}, "max_frame 400 450 differs"),
        ({"num_envs": 8}, {}, "num_envs 4 8 differs"),
        ({}, {"log_frequency": 90}, "log_frequency 100 90 differs"),
    ],
)
def test_settings_that_differ_are_named(tmp_path, env, meta, line):
    report = lines(compare(run_of(tmp_path / "a", [1.0]), run_of(tmp_path / "b", [2.0], env=env, meta=meta)))
    assert line in report
    assert f"settings differ: {line.split()[0]}" in report


def test_different_envs_have_no_difference(tmp_path):
    report = compare(run_of(tmp_path / "a", [1.0]), run_of(tmp_path / "b", [2.0], env={"name": "Acrobot-v1"}))
    assert "different envs: their scores are on different scales, so no difference is given" in report
    assert "B - A" not in report
    assert 'env.name: "CartPole-v1" -> "Acrobot-v1"' in report


def test_workers_of_one_agent_are_no_independent_sessions(tmp_path):
    workers = run_of(tmp_path / "a", [1.0, 2.0], env={"max_frame": 800}, meta={"distributed": "shared"})
    assert "workers of one agent are not independent" in compare(workers, run_of(tmp_path / "b", [1.0, 2.0]))


def test_spec_keys_that_differ_are_listed_without_names_and_what_runs_record():
    a, b = saved_spec("a"), saved_spec("b", meta={"random_seed": 7, "record": {"mode": "dev"}, "git_sha": "f00"})
    a["agent"]["algorithm"]["lam"] = 0.9
    assert differences(a, b) == ["agent.algorithm.lam: 0.9 -> unset", "meta.random_seed: 0 -> 7"]


def test_a_default_that_one_of_them_spells_out_is_no_difference():
    assert differences(saved_spec(env={"normalize_obs": False}), saved_spec()) == []


def test_specs_of_another_lab_are_compared_as_they_are():
    a = saved_spec(meta={"unheard_of": 1, "prepath": "data/a", "resume": False})  # no spec of ours
    b = saved_spec(env={"extra": {"deep": [1, 2], "same": 0}}, meta={"prepath": "data/b"})
    a["env"]["extra"] = {"deep": [1], "same": 0}
    a["agent"] = [a["agent"]]
    assert differences(a, b) == ["env.extra.deep: [1] -> [1, 2]", "meta.unheard_of: 1 -> unset"]
