"""`slm-lab run-remote`: what reaches dstack, what is refused before, and that the token is nowhere to be read."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from slm_lab.cli.main import guarded
from slm_lab.cli.remote import launch, run_remote
from slm_lab.experiment.remote import unpacked
from slm_lab.spec.load import find

FILE = "slm_lab/spec/benchmark/ppo/ppo_cartpole.json"
TOKEN = "hf_a_token_that_nobody_may_see"
HOSTILE = "a b'c\"d;$(touch pwned)`id`\n${{ secrets.x }}$$"
# stands for dstack: keeps what it was given beside itself
FAKE = f"""#!{sys.executable}
import json, os, sys, time
words = sys.argv[1:]
time.sleep(float(os.environ.get("FAKE_SECONDS", "0")))
kept = {{"words": words, "file": open(words[2]).read(), "env": dict(os.environ)}}
with open(os.path.join(os.path.dirname(__file__), words[-1] + ".json"), "w") as out:
    json.dump(kept, out)
if "FAKE_SIGNAL" in os.environ:
    os.kill(os.getpid(), int(os.environ["FAKE_SIGNAL"]))
sys.exit(int(os.environ.get("FAKE_CODE", "0")))
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a `dstack`, alone on PATH; the process is in a checkout and has an account."""
    folder, checkout = tmp_path / "bin", tmp_path / "checkout"
    folder.mkdir()
    (folder / "dstack").write_text(FAKE)
    (folder / "dstack").chmod(0o755)
    for part in (".git", "slm_lab"):
        (checkout / part).mkdir(parents=True)
    for part in ("constraints.txt", "pyproject.toml"):
        (checkout / part).touch()
    monkeypatch.chdir(checkout)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_REPO", "me/runs")
    monkeypatch.delenv("HF_DATASET_REPO", raising=False)
    return folder


def call(*words: str) -> int:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(run_remote)
    return guarded(lambda: app(words, prog_name="slm-lab run-remote"), debug=False)


def given_to(programs: Path, name: str) -> dict[str, Any]:
    """What dstack was given by the launch of that name."""
    kept: dict[str, Any] = json.loads((programs / f"{name}.json").read_text())
    return kept


def sent(kept: Mapping[str, Any]) -> list[str]:
    return unpacked(kept["env"]["SLM_ARGS"])


def test_dstack_gets_the_file_the_name_and_the_words_of_the_run(programs: Path) -> None:
    assert call(FILE, "ppo_cartpole", "train", "-s", "max_frame=1e4", "--memory", "8GB..") == 0
    kept = given_to(programs, "ppo-cartpole")
    assert kept["words"] == ["apply", "-f", ".dstack/run-cpu-train.yml", "-y", "--detach", "--name", "ppo-cartpole"]
    assert kept["file"] == Path(".dstack/run-cpu-train.yml").read_text()
    assert yaml.safe_load(kept["file"])["resources"] == {"cpu": "2..", "memory": "8GB..", "gpu": 0}
    assert sent(kept) == [
        *("run", "--upload-hf", "--upload-every", "5", "--set=max_frame=1e4", "--"),
        *(FILE, "ppo_cartpole", "train"),
    ]
    assert (kept["env"]["HF_TOKEN"], kept["env"]["HF_REPO"]) == (TOKEN, "me/runs")


def test_the_mode_and_the_gpu_choose_the_file(programs: Path) -> None:
    assert call(FILE, "ppo_cartpole", "search", "--gpu", "--gpu-spec", "A100:1", "--spot", "spot", "-n", "wide") == 0
    task = yaml.safe_load(Path(".dstack/run-gpu-search.yml").read_text())
    assert given_to(programs, "wide")["words"][2] == ".dstack/run-gpu-search.yml"
    assert (task["resources"]["gpu"], task["spot_policy"]) == ("A100:1", "spot")


def test_hostile_text_arrives_whole_and_runs_nowhere(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = json.loads(find(FILE).read_text())["ppo_cartpole"]
    Path("my specs.json").write_text(json.dumps({HOSTILE: entry}))
    code = call("my specs.json", HOSTILE, "train", "-n", HOSTILE, "-s", f"agent.name={HOSTILE}")
    assert code == 0, capsys.readouterr().err
    name = "a-b-c-d-touch-pwned-id-secrets-x"
    kept = given_to(programs, name)
    assert sent(kept)[4:] == [f"--set=agent.name={HOSTILE}", "--", "my specs.json", HOSTILE, "train"]
    assert HOSTILE[:3] not in kept["file"]
    assert "pwned" not in kept["file"]
    assert not list(Path.cwd().rglob("pwned"))
    assert f"becomes '{name}'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["it's", "ppo_cartpole"])
def test_a_name_that_dstack_would_refuse_is_changed_and_told(
    programs: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(FILE, "ppo_cartpole", "--name", name) == 0
    assert f"name: {name!r} becomes " in capsys.readouterr().err


def test_the_name_of_a_spec_is_changed_without_a_word_and_tells_the_env(
    programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(FILE, "ppo_cartpole", "-s", "env=Acrobot-v1") == 0
    assert given_to(programs, "ppo-cartpole-acrobot")
    assert "becomes" not in capsys.readouterr().err


@pytest.mark.parametrize(("variable", "value", "code"), [("FAKE_CODE", "7", 7), ("FAKE_SIGNAL", "15", 143)])
def test_the_exit_code_is_that_of_dstack(
    programs: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, code: int
) -> None:
    monkeypatch.setenv(variable, value)
    assert call(FILE, "ppo_cartpole") == code


def test_a_dry_run_prints_the_file_and_the_command_and_does_nothing(
    programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(FILE, "ppo_cartpole", "train", "-s", f"agent.name={HOSTILE}", "--dry-run") == 0
    out = capsys.readouterr().out
    head, _, last = out.rstrip("\n").rpartition("\n\n")
    assert head.startswith("# .dstack/run-cpu-train.yml\n")
    assert yaml.safe_load(head)["type"] == "task"
    words = shlex.split(last)
    assert words[2:] == shlex.split("dstack apply -f .dstack/run-cpu-train.yml -y --detach --name ppo-cartpole")
    assert f"--set=agent.name={HOSTILE}" in unpacked(words[0].removeprefix("SLM_ARGS="))
    assert words[1].startswith("SLM_RUN_ID=ppo-cartpole-")
    assert not Path(".dstack").exists()
    assert not list(programs.glob("*.json"))


def test_a_dry_run_only_notes_what_is_missing(
    programs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable in ("HF_TOKEN", "HF_REPO"):
        monkeypatch.delenv(variable)
    monkeypatch.chdir(tmp_path)
    assert call(FILE, "ppo_cartpole", "--dry-run") == 0
    err = capsys.readouterr().err
    assert "note: HF_TOKEN: not set" in err
    assert "note: HF_REPO: not set" in err
    assert f"note: {tmp_path}: no checkout of SLM-Lab" in err


@pytest.mark.parametrize("variable", ["HF_TOKEN", "HF_REPO"])
def test_without_an_account_nothing_is_launched(
    programs: Path, monkeypatch: pytest.MonkeyPatch, variable: str, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable, "")
    assert call(FILE, "ppo_cartpole") == 2
    assert f"error: {variable}: not set; results are kept" in capsys.readouterr().err
    assert not Path(".dstack").exists()
    assert not list(programs.glob("*.json"))


def test_the_old_name_of_the_repository_is_taken(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_REPO")
    monkeypatch.setenv("HF_DATASET_REPO", "me/old")
    assert call(FILE, "ppo_cartpole") == 0
    assert given_to(programs, "ppo-cartpole")["env"]["HF_REPO"] == "me/old"


def test_the_token_is_in_no_file_and_no_output(programs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for words in (["--dry-run"], [], ["--cpus", "none"]):
        call(FILE, "ppo_cartpole", *words)
    printed = capfd.readouterr()
    assert "run ppo-cartpole-" in printed.out
    assert TOKEN not in printed.out + printed.err
    written = [path for path in Path.cwd().rglob("*") if path.is_file()]
    assert Path.cwd() / ".dstack" / "run-cpu-train.yml" in written
    assert [path for path in written if TOKEN in path.read_text()] == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nowhere.json", "x"], "nowhere.json: no such spec file"),
        ([FILE, "ppo_cartpol"], "ppo_cartpol"),
        ([FILE, "ppo_cartpole", "train", "-s", "nothing_reads_this=1"], "nothing_reads_this"),
        ([FILE, "ppo_cartpole", "enjoy@x"], "mode: got 'enjoy@x'"),
        ([FILE, "ppo_cartpole", "--cpus", "lots"], "--cpus: got 'lots'; allowed: "),
        ([FILE, "ppo_cartpole", "--gpu-spec", "A100"], "only together with --gpu"),
    ],
)
def test_bad_input_is_refused_here_and_not_on_a_machine_that_costs(
    programs: Path, words: Sequence[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*words) == 2
    assert told in capsys.readouterr().err
    assert not list(programs.glob("*.json"))


def test_a_spec_file_that_is_not_sent_is_refused(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outside = Path.cwd().parent / "outside.json"
    outside.write_text(find(FILE).read_text())
    assert call("../outside.json", "ppo_cartpole") == 2
    assert "../outside.json: outside " in capsys.readouterr().err
    inside = Path.cwd() / "inside.json"
    inside.write_text(outside.read_text())
    assert call(str(inside), "ppo_cartpole") == 0
    assert sent(given_to(programs, "ppo-cartpole"))[-3] == "inside.json"


def test_a_folder_that_is_no_checkout_is_refused(
    programs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(FILE, "ppo_cartpole") == 2
    assert "no checkout of SLM-Lab, which is what is sent: there is no constraints.txt" in capsys.readouterr().err


def test_without_dstack_the_error_says_how_to_get_it(
    programs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (programs / "dstack").unlink()
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    assert call(FILE, "ppo_cartpole") == 2
    assert "pip install 'slm-lab[remote]'" in capsys.readouterr().err


def test_two_launches_at_once_do_not_read_each_others_file(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SECONDS", "0.3")
    file = Path(".dstack/run-cpu-train.yml")

    def start(name: str) -> threading.Thread:
        words = [str(programs / "dstack"), "apply", "-f", str(file), "--name", name]
        thread = threading.Thread(target=launch, args=(file, f"file of {name}", words, {}))
        thread.start()
        return thread

    first = start("first")
    time.sleep(0.1)
    for thread in (first, start("second")):
        thread.join()
    assert [given_to(programs, name)["file"] for name in ("first", "second")] == ["file of first", "file of second"]


def test_it_needs_neither_torch_nor_dstack_nor_the_hub(programs: Path) -> None:
    code = (
        "import sys, slm_lab.cli.remote as r\n"
        f"r.run_remote({FILE!r}, 'ppo_cartpole', dry_run=True)\n"
        "print([m for m in ('torch', 'pandas', 'dstack', 'huggingface_hub') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.endswith("\n[]\n"), done.stdout + done.stderr
