"""The command line: forms of a call, files of a run, exit codes, enjoy."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from run_helpers import (  # noqa: F401
    assert_same_results,
    contents,
    no_sinks,
    only_run,
    run_tiny,
    tiny,
    write_spec,
)
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

from slm_lab.cli.main import main, with_command
from slm_lab.experiment.analysis import TRIAL_SCALARS
from slm_lab.lib.rng import seed_of

FILE = "slm_lab/spec/benchmark/ppo/ppo_cartpole.json"
COLUMNS = "total_reward,total_reward_ma,loss,fps,frame,wall_t,t,epi,opt_step,lr,nan_skips,entropy,clip_eps"
NUMBER = r"(nan|-?[\d.]+(e[+-]\d+)?)"
LINE = r"trial_metrics: " + r" \| ".join(f"{key}:{NUMBER}" for key in TRIAL_SCALARS)


def call(arguments: Sequence[str]) -> int:
    """Exit code of the command line in this process."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def program(arguments: Sequence[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """The installed command in a process of its own."""
    script = shutil.which("slm-lab", path=str(Path(sys.executable).parent))
    assert script, "slm-lab is not installed beside this python"
    return subprocess.run([script, *arguments], cwd=cwd, capture_output=True, text=True, timeout=240)


@dataclass
class Run:
    """A packaged spec, trained from another directory by the installed command."""

    done: subprocess.CompletedProcess[str]
    cwd: Path
    folder: Path
    arguments: list[str]


@pytest.fixture(scope="module")
def packaged(tmp_path_factory: pytest.TempPathFactory) -> Run:
    cwd = tmp_path_factory.mktemp("elsewhere")
    sets = ["-s", "max_session=2", "-s", "max_frame=3000", "-s", "time_horizon=64"]
    arguments = ["--set", "log_frequency=600", FILE, "ppo_cartpole", "train", *sets, "--checkpoint-every", "0"]
    done = program(arguments, cwd)
    assert done.returncode == 0, done.stderr
    return Run(done, cwd, only_run(cwd / "data"), arguments)


# forms of a call


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], ["--help"]),
        (["--help"], ["--help"]),
        (["--version"], ["--version"]),
        (["run", "a"], ["run", "a"]),
        (["spec", "check", "a"], ["spec", "check", "a"]),
        (["a.json", "b", "train"], ["run", "a.json", "b", "train"]),
        (["--render", "a.json"], ["run", "--render", "a.json"]),
        (["-s", "x=1"], ["run", "-s", "x=1"]),
    ],
)
def test_a_first_word_that_is_no_command_means_run(words: list[str], expected: list[str]) -> None:
    assert with_command(words) == expected


def test_the_plain_command_shows_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert call([]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Usage: slm-lab")
    assert all(command in shown for command in ("run", "enjoy", "spec"))


@pytest.mark.parametrize(
    "command", [["run"], ["enjoy"], ["spec"], ["spec", "check"], ["spec", "show"], ["spec", "keys"]]
)
def test_every_command_has_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert call([*command, "--help"]) == 0
    assert f"Usage: slm-lab {' '.join(command)}" in capsys.readouterr().out


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["--version"]) == 0
    assert capsys.readouterr().out == version("slm-lab") + "\n"


@pytest.mark.parametrize("arguments", ["", "'--help'", "'run', '--help'", "'--version'"])
def test_light_commands_do_not_import_torch(arguments: str, tmp_path: Path) -> None:
    call_main = f"\ntry:\n    slm_lab.cli.main.main([{arguments}])\nexcept SystemExit: pass" if arguments else ""
    code = (
        f"import sys, slm_lab, slm_lab.cli.main{call_main}\nprint([m for m in ('torch', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout.endswith("[]\n"), done.stdout + done.stderr


def test_options_may_stand_before_and_after_the_spec_and_run_may_be_left_out(packaged: Run) -> None:
    assert packaged.arguments[0].startswith("--")
    assert packaged.arguments[-2].startswith("--")
    assert "run" not in packaged.arguments
    saved = json.loads((packaged.folder / "ppo_cartpole_t0_spec.json").read_text())
    assert saved["meta"]["overrides"] == [
        "log_frequency=600",
        "max_session=2",
        "max_frame=3000",
        "time_horizon=64",
    ]
    assert (saved["env"]["max_frame"], saved["meta"]["log_frequency"]) == (3000, 600)
    assert "env.max_frame: 200000 -> 3000 (-s max_frame=3000)" in packaged.done.stderr


# files of a run


def test_a_run_writes_its_files_under_their_published_names(packaged: Run) -> None:
    name, tags = "ppo_cartpole", ("train", "eval")
    expected = {f"{name}_spec.json", f"{name}_t0_spec.json", f"{name}_t0_trial_metrics_scalar.json"}
    expected |= {f"{name}_t0_trial_graph_mean_returns{ma}_vs_frames.png" for ma in ("", "_ma")}
    expected |= {f"graph/{name}_t0_trial_graph_mean_returns{ma}_vs_frames.png" for ma in ("", "_ma")}
    expected |= {f"info/{name}_t0_trial_metrics.json", f"info/{name}_t0_trial_metrics_scalar.json"}
    expected |= {f"log/{name}_t0.log"}
    for session in (f"{name}_t0_s0", f"{name}_t0_s1"):
        expected |= {f"{session}_spec.json", f"log/{session}.log"}
        expected |= {f"info/{session}_session_df_{tag}.csv" for tag in tags}
        expected |= {f"info/{session}_session_metrics_{tag}.json" for tag in tags}
        expected |= {f"info/{session}_session_metrics_scalar_{tag}.json" for tag in tags}
        expected |= {f"graph/{session}_session_graph_train_mean_returns{ma}_vs_frames.png" for ma in ("", "_ma")}
        expected |= {f"model/{session}_ckpt-{frame}.safetensors" for frame in (2400, 3000, "best")}
    missing = expected - contents(packaged.folder).keys()
    assert not missing
    models = sorted(path.name for path in (packaged.folder / "model").iterdir())
    assert models == sorted(file.removeprefix("model/") for file in expected if file.startswith("model/"))
    assert re.fullmatch(r"ppo_cartpole_\d{4}_\d\d_\d\d_\d{6}", packaged.folder.name)


def test_the_metrics_line_is_one_line_in_its_published_shape(packaged: Run) -> None:
    (line,) = [line for line in packaged.done.stderr.splitlines() if "trial_metrics" in line]
    assert re.fullmatch(r"[\d-]+ [\d:]+ \| INFO \| PID:\d+ \| \w+:\w+ \| " + LINE, line)
    assert "frame:3.00e+03 |" in line
    assert "Trial 0 done" in packaged.done.stderr
    assert "mean total_reward_ma:" in packaged.done.stdout


def test_tables_have_their_columns_in_order_and_a_row_at_each_log_frequency(packaged: Run) -> None:
    for session in (0, 1):
        path = packaged.folder / f"info/ppo_cartpole_t0_s{session}_session_df_train.csv"
        assert path.read_text().splitlines()[0] == COLUMNS
        assert pd.read_csv(path)["frame"].tolist() == [600, 1200, 1800, 2400, 3000]


def test_json_files_are_strict_json(packaged: Run) -> None:
    def refuse(literal: str) -> None:
        raise AssertionError(f"{literal} is no JSON")

    files = list(packaged.folder.rglob("*.json"))
    assert len(files) >= 13
    for path in files:
        json.loads(path.read_text(), parse_constant=refuse)


def test_metrics_files_hold_scalars_and_series(packaged: Run) -> None:
    session = json.loads((packaged.folder / "info/ppo_cartpole_t0_s1_session_metrics_eval.json").read_text())
    assert session["local"]["frames"] == [600, 1200, 1800, 2400, 3000]
    trial = json.loads((packaged.folder / "info/ppo_cartpole_t0_trial_metrics.json").read_text())
    assert list(trial["scalar"]) == list(TRIAL_SCALARS)
    assert [len(series) for series in trial["local"]["strengths"]] == [5, 5]
    assert len(trial["local"]["consistencies"]) == 5
    beside = json.loads((packaged.folder / "ppo_cartpole_t0_trial_metrics_scalar.json").read_text())
    assert beside == trial["scalar"]


def test_session_specs_carry_their_own_seed(packaged: Run) -> None:
    for session in (0, 1):
        meta = json.loads((packaged.folder / f"ppo_cartpole_t0_s{session}_spec.json").read_text())["meta"]
        assert (meta["session"], meta["session_seed"]) == (session, seed_of(0, 0, session))


def test_tensorboard_events_can_be_read(packaged: Run) -> None:
    for session in (0, 1):
        events = EventAccumulator(str(packaged.folder / f"log/ppo_cartpole_t0_s{session}_tb")).Reload()
        assert {"total_reward_ma", "loss", "lr", "entropy", "explained_variance"} <= set(events.Tags()["scalars"])
        table = pd.read_csv(packaged.folder / f"info/ppo_cartpole_t0_s{session}_session_df_train.csv")
        points = events.Scalars("total_reward_ma")
        assert [point.step for point in points] == table["frame"].tolist()
        assert [point.value for point in points] == pytest.approx(table["total_reward_ma"].tolist(), rel=1e-5)


def test_a_saved_spec_gives_the_same_results_in_another_process(packaged: Run, tmp_path: Path) -> None:
    saved = json.loads((packaged.folder / "ppo_cartpole_t0_spec.json").read_text())
    assert_same_results(run_tiny(tmp_path, saved, jobs=1).predir, packaged.folder)


def test_the_same_call_again_as_train_at_latest_has_nothing_to_do(
    packaged: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(packaged.cwd)
    before = contents(packaged.folder)
    again = [{"train": "train@latest"}.get(word, word) for word in packaged.arguments]
    assert call(again) == 0
    assert "this run is finished (3000 frames); nothing to do" in capsys.readouterr().err
    assert contents(packaged.folder) == before


@pytest.mark.parametrize("mode", ["dev", "train"])
def test_any_mode_can_be_profiled(mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(write_spec(tmp_path, tiny("Random")))
    assert call([file, "tiny", mode, "--profile", "--data-dir", str(tmp_path / "data")]) == 0
    assert "session 0: where the time of 100 vector steps went" in capsys.readouterr().err
    folder = only_run(tmp_path / "data")
    assert (folder / "info" / "tiny_t0_s0_profile.json").exists()
    assert (folder / "graph" / "tiny_t0_s0_profile.html").exists()


# exit codes


def test_a_run_that_crashed_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tiny(env={"name": "faulty_envs:Faulty", "faults": {"any": "raise"}, "at": 30})
    assert call([str(write_spec(tmp_path, spec)), "tiny", "train", "--data-dir", str(tmp_path / "data")]) == 1
    assert "broken at step 30" in capsys.readouterr().err


def test_ctrl_c_before_training_ends_with_130(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("slm_lab.experiment.control.preflight", interrupt)
    path = write_spec(tmp_path, tiny())
    assert call([str(path), "tiny", "train", "--data-dir", str(tmp_path / "data")]) == 130
    assert "Traceback" not in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_a_changed_spec_ends_with_2_and_shows_the_difference(
    packaged: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(packaged.cwd)
    again = [{"train": "train@latest"}.get(word, word) for word in packaged.arguments]
    assert call([*again, "-s", "gamma=0.5"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith(f"error: data/{packaged.folder.name}: the spec has changed")
    assert shown.endswith("\n  agent.algorithm.gamma: 0.9769 -> 0.5\n")


# enjoy


def test_enjoy_prints_returns_and_only_reads_the_run(packaged: Run, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(packaged.folder)
    spec = packaged.folder / "ppo_cartpole_t0_spec.json"
    printed = list[str]()
    for arguments in (
        ["enjoy", str(packaged.folder), "--episodes", "10"],
        ["run", FILE, "ppo_cartpole", f"enjoy@{spec}"],
    ):
        assert call(arguments) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    first, *episodes, mean = printed[0].splitlines()
    assert re.fullmatch(r"ppo_cartpole, session [01], CartPole-v1", first)
    returns = [float(re.fullmatch(rf"episode {i}: ([\d.]+)", line)[1]) for i, line in enumerate(episodes)]  # type: ignore[index]
    assert len(returns) == 10
    assert mean == f"mean return over 10 episodes: {sum(returns) / 10:.2f}"
    assert contents(packaged.folder) == before


def test_enjoy_films_what_it_plays_and_only_reads_the_run(
    packaged: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, video = contents(packaged.folder), tmp_path / "cartpole.mp4"
    assert call(["enjoy", str(packaged.folder), "--episodes", "2", "--video", str(video)]) == 0
    filmed = capsys.readouterr().out.splitlines()
    assert filmed[-1] == f"video: {video}"
    assert video.stat().st_size > 1000
    assert call(["enjoy", str(packaged.folder), "--episodes", "2"]) == 0
    assert filmed[:-1] == capsys.readouterr().out.splitlines()  # being watched changes nothing
    assert contents(packaged.folder) == before


def test_a_window_and_a_video_exclude_each_other(packaged: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["enjoy", str(packaged.folder), "--render", "--video", "v.mp4"]) == 2
    assert capsys.readouterr().err.startswith("error: --render and --video: one of them")


def test_enjoy_without_a_trained_run_says_what_it_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for target in (tmp_path, tmp_path / "nowhere"):
        assert call(["enjoy", str(target)]) == 2
        assert capsys.readouterr().err == (
            f"error: {target}: no trained run here: expected a run folder or the spec file in one.\n"
        )


def test_environment_variables_stand_for_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[Any]
) -> None:
    monkeypatch.setenv("LOG_LEVEL", "ERROR")
    spec = tiny("Random", env={"max_frame": 30})
    assert call([str(write_spec(tmp_path, spec)), "tiny", "train", "--data-dir", str(tmp_path / "data")]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "mean total_reward_ma" in shown.out
