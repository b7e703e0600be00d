"""`slm-lab plot`, `plot-list`, `retro` and `compare`: what they print, what they refuse, and that torch stays away."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from result_folders import saved_spec, write_run

from slm_lab.cli.main import main

FOUR = (31.0, 32.0, 33.0, 36.0)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two runs of CartPole-v1, by PPO and by SARSA."""
    for name, algorithm in (("ppo", "PPO"), ("sarsa", "SARSA")):
        write_run(tmp_path / f"data/{name}_2026", [FOUR, FOUR], saved_spec(name, algorithm))
    return tmp_path / "data"


def call(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_plot_draws_runs_by_name_and_by_path(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = f"sarsa_2026, {data / 'ppo_2026'}"
    assert call("plot", "-f", folders, "--data-dir", data, "-o", tmp_path / "out", "-t", "Both (of them)") == 0
    path = tmp_path / "out/Both_of_them_multi_trial_graph_mean_returns_ma_vs_frames.png"
    assert capsys.readouterr().out == f"{path}\n"
    assert path.read_bytes()[:4] == b"\x89PNG"


def test_plot_takes_the_options_of_public_slm_lab(data: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    options = ("--folders", "ppo_2026", "--legends", "mine", "--data-folder", data, "--output", output, "--no-legend")
    assert call("plot", *options) == 0
    assert len(list(output.iterdir())) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-f", "pppo_2026"), "error: pppo_2026: no such run folder"),
        (("-f", " , "), "error: --folders: name at least one run"),
        (("-f", "ppo_2026,sarsa_2026", "-l", "x"), "error: labels: got 1 for 2 runs"),
    ],
)
def test_plot_leaves_with_2_on_bad_input(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    assert call("plot", *arguments, "-d", data, "-o", tmp_path / "out") == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_plot_tells_what_is_missing_and_mixes_budgets_only_when_told(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = saved_spec("long", env={"max_frame": 500})
    write_run(data / "long_2026", [(*FOUR, 37.0), FOUR], spec)
    arguments = ("plot", "-f", "long_2026,ppo_2026", "-d", data, "-o", tmp_path / "out")
    assert call(*arguments) == 2
    assert "runs with different max_frame: long_2026 500, ppo_2026 400" in capsys.readouterr().err
    assert call(*arguments, "--mix-frames") == 0
    assert "note: long_2026: session 1 stopped at frame 400 of 500." in capsys.readouterr().err


def test_plot_aggregate_prints_averages_and_draws_two_graphs(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("plot", "--aggregate", "-f", "ppo_2026,sarsa_2026", "-d", data, "-o", tmp_path / "out") == 0
    out = capsys.readouterr().out
    # both score the best there is: 1, in every resample
    assert [" ".join(line.split()) for line in out.splitlines()[:3]] == [
        "normalised score interquartile mean median over envs optimality gap",
        "SARSA 1.000 (1.000 to 1.000) 1.000 (1.000 to 1.000) 0.000 (0.000 to 0.000)",
        "PPO 1.000 (1.000 to 1.000) 1.000 (1.000 to 1.000) 0.000 (0.000 to 0.000)",
    ]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "1_env_aggregate_scores.png",
        "1_env_performance_profile.png",
    }


def test_a_search_is_refused_where_results_count(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = saved_spec("s", meta={"record": {"mode": "search"}})
    write_run(data / "s_2026", [FOUR, FOUR], spec)
    for arguments in (("plot", "-f", "s_2026"), ("compare", "ppo_2026", "s_2026")):
        assert call(*arguments, "-d", data) == 2
        assert "a search, not a result" in capsys.readouterr().err


def test_plot_list_shows_every_run_with_what_it_came_to(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("retro", data / "ppo_2026") == 0
    (data / "broken").mkdir()
    (data / "broken/x_t0_spec.json").write_text("{")
    (data / "not_a_run").mkdir()
    capsys.readouterr()
    assert call("plot-list", "-d", data) == 0
    head, broken, ppo, sarsa = (" ".join(line.split()) for line in capsys.readouterr().out.splitlines())
    assert head == "run env algorithm frames sessions total_reward_ma"
    assert broken.startswith("broken cannot be read:")
    assert ppo == "ppo_2026 CartPole-v1 PPO 400 2/2 33.00"  # (31 + 32 + 33 + 36) / 4
    assert sarsa == "sarsa_2026 CartPole-v1 SARSA 400 0/2 -"  # never summed up


def test_plot_list_counts_complete_sessions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "x", [FOUR, FOUR[:2]])
    assert call("retro", tmp_path / "x") == 0
    capsys.readouterr()
    assert call("plot-list", "-d", tmp_path) == 0
    assert " 1/2 " in capsys.readouterr().out


def test_plot_list_of_nothing_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("plot-list", "-d", tmp_path) == 2
    assert f"{tmp_path}: no runs in this folder" in capsys.readouterr().err
    assert call("plot-list", "-d", tmp_path / "none") == 2
    assert "no such folder; --data-dir names the one that runs are in" in capsys.readouterr().err


def test_plot_list_of_nothing_points_to_the_runs_of_the_suite(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data.rename(tmp_path / "bench")
    assert call("plot-list", "-d", tmp_path) == 2
    said = f"{tmp_path}: no runs in this folder. Those of the benchmark suite: -d {tmp_path / 'bench'}.\n"
    assert capsys.readouterr().err == f"error: {said}"


def test_retro_prints_what_it_wrote_and_the_line_scripts_look_for(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("retro", data / "ppo_2026") == 0
    out = capsys.readouterr().out.splitlines()
    assert out[-1].startswith("trial_metrics: frame:4.00e+02 | total_reward_ma:33.00 | ")
    assert len(out) > 1
    assert all(Path(line).is_file() for line in out[:-1])


def test_compare_reports_on_two_runs(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("compare", "ppo_2026", "sarsa_2026", "-d", data) == 0
    out = capsys.readouterr().out
    assert "same settings" in out
    assert 'agent.algorithm.name: "PPO" -> "SARSA"' in out


def test_none_of_them_imports_torch(data: Path, tmp_path: Path) -> None:
    code = f"""
import sys
from slm_lab.cli.main import app
data = {str(data)!r}
for words in (["plot-list"], ["compare", "ppo_2026", "sarsa_2026"], ["plot", "-f", "ppo_2026", "-o", data + "/out"]):
    app([*words, "-d", data], standalone_mode=False)
app(["plot", "--aggregate", "-f", "ppo_2026", "-d", data, "-o", data + "/out"], standalone_mode=False)
app(["retro", data + "/ppo_2026"], standalone_mode=False)
sys.exit("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
