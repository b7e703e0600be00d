"""`slm-lab push`, `pull` and `list`: what they print, what they refuse, and that a pulled run is a run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from local_hub import REPO, TOKEN, LocalHub, below, local_server  # noqa: F401
from result_folders import write_run
from run_helpers import assert_same_results, contents, no_sinks, run_tiny, tiny  # noqa: F401

import slm_lab
from slm_lab.cli.hub import hub_to_write, list_runs, pull, push
from slm_lab.cli.main import guarded
from slm_lab.experiment.finished import find_run, read_result
from slm_lab.experiment.multi_plot import multi_graph
from slm_lab.lib.errors import LabError

FOUR = (1.0, 2.0, 3.0, 6.0)


@pytest.fixture(autouse=True)
def environment(server: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables that a user sets."""
    monkeypatch.delenv("HF_DATASET_REPO", raising=False)
    for key, value in {"HF_TOKEN": TOKEN, "HF_REPO": REPO, "HF_ENDPOINT": server.url}.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setattr("slm_lab.experiment.hub.WAITS", ())  # no other try


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "here/x_2026", [FOUR])


def call(*words: str | Path) -> int:
    """The exit code of a command."""
    app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)
    for name, command in (("push", push), ("pull", pull), ("list", list_runs)):
        app.command(name)(command)
    return guarded(lambda: app([str(word) for word in words], prog_name="slm-lab"), debug="--debug" in words)


def test_push_list_and_pull(run: Path, server: LocalHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    count = len(below(run))
    assert call("push", run) == 0
    assert capsys.readouterr().out == f"{count} files, 0.0 MB: {server.url}/datasets/{REPO}/tree/main/data/x_2026\n"
    assert call("list", "x_") == 0
    listed = capsys.readouterr()
    assert (listed.out, listed.err) == ("x_2026\n", f"1 run in {REPO}\n")
    assert call("pull", "data/x_2026", "-d", tmp_path / "there") == 0
    assert capsys.readouterr().out == f"{tmp_path / 'there/x_2026'}: {count} files fetched, 0 were there\n"
    assert below(tmp_path / "there/x_2026") == below(run)


def test_pull_l_only_lists(run: Path, server: LocalHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("push", run) == 0
    capsys.readouterr()
    assert call("pull", "-l", "2026", "-d", tmp_path / "there") == 0
    assert capsys.readouterr().out == "x_2026\n"
    assert not (tmp_path / "there").exists()


def test_pull_fetches_every_folder_that_matches(server: LocalHub, tmp_path: Path) -> None:
    server.files.update({f"data/{name}/a.csv": b"1" for name in ("a_2025", "a_2026", "b_2026")})
    assert call("pull", "2026", "-d", tmp_path) == 0
    assert below(tmp_path) == {"a_2026/a.csv": b"1", "b_2026/a.csv": b"1"}


def test_a_pattern_without_a_match_is_bad_input(server: LocalHub, capsys: pytest.CaptureFixture[str]) -> None:
    server.files.update({"data/a_2025/a.csv": b"1", "data/b_2026/a.csv": b"1"})
    assert call("pull", "a_2024") == 2
    said = f"error: {REPO}: no run folder with 'a_2024' in its name. Did you mean 'a_2025'? `slm-lab list` shows the 2 "
    assert capsys.readouterr().err.startswith(said)


def test_push_needs_a_repository_of_ones_own(
    run: Path, server: LocalHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HF_REPO")
    assert call("push", run) == 2
    said = "error: no repository to push to: set HF_REPO=OWNER/NAME, or use --repo; there is no default.\n"
    assert capsys.readouterr().err == said
    assert server.calls == []
    assert call("push", run, "--repo", "tester/others") == 0
    assert "data/x_2026/README.md" in server.repos["tester/others"]


def test_push_needs_a_token(run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("HF_TOKEN", " ")
    assert call("push", run) == 2
    assert capsys.readouterr().err.startswith("error: HF_TOKEN is not set")
    with pytest.raises(LabError, match="HF_TOKEN is not set"):
        hub_to_write()


def test_list_and_pull_read_the_public_repository_unless_told_otherwise(
    server: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HF_REPO")
    monkeypatch.delenv("HF_TOKEN")
    server.repos["SLM-Lab/benchmark"] = {"data/ppo_2026/a.csv": b"1"}
    assert call("list") == 0
    assert capsys.readouterr().out == "ppo_2026\n"
    assert call("pull", "ppo", "-d", tmp_path) == 0
    assert below(tmp_path) == {"ppo_2026/a.csv": b"1"}
    for command in ("list", "pull"):
        assert call(command, "--help") == 0
        assert "SLM-Lab/benchmark" in "".join(capsys.readouterr().out.split())  # lines break at hyphens


def test_the_older_name_of_the_repository_is_taken_with_a_hint(
    run: Path, server: LocalHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HF_REPO")
    monkeypatch.setenv("HF_DATASET_REPO", "tester/older")
    assert call("push", run) == 0
    hint = "note: HF_DATASET_REPO is the older name of HF_REPO; tester/older is taken.\n"
    assert capsys.readouterr().err == hint
    monkeypatch.setenv("HF_REPO", REPO)
    assert call("push", run) == 0
    assert capsys.readouterr().err == ""
    assert server.repos.keys() == {"tester/older", REPO}


def test_a_push_that_fails_leaves_with_1(run: Path, server: LocalHub, capsys: pytest.CaptureFixture[str]) -> None:
    server.faults["commit"] = [500]
    assert call("push", run) == 1
    assert capsys.readouterr().err.startswith(f"error: {REPO}: HTTP 500 from ")


def test_a_folder_that_is_no_run_is_not_pushed(
    server: LocalHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("push", tmp_path / "none") == 2
    assert "no such run folder" in capsys.readouterr().err
    assert call("push", tmp_path) == 2
    assert "not a run folder" in capsys.readouterr().err
    assert server.calls == []


@pytest.mark.parametrize("debug", [(), ("--debug",)])
def test_no_error_shows_the_token(
    run: Path, server: LocalHub, capfd: pytest.CaptureFixture[str], debug: tuple[str, ...]
) -> None:
    server.echo = True
    for fault, words in (("commit", ("push", run)), ("info", ("list",)), ("info", ("pull", "x"))):
        server.faults[fault] = [400]
        assert call(*words, *debug) == 1
        shown = capfd.readouterr()
        assert "HTTP 400" in shown.err
        assert TOKEN not in shown.out + shown.err


def test_a_pulled_run_is_drawn_played_and_continued(
    server: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # drawing takes longer than all the rest
    monkeypatch.setattr("slm_lab.experiment.plot.draw", lambda *arguments, **options: b"a graph")
    here, there, spec = tmp_path / "here", tmp_path / "there", tiny()
    done = run_tiny(here, spec)
    name = done.predir.name
    assert call("push", done.predir) == 0
    assert b"Score: **" in server.files[f"data/{name}/README.md"]
    assert call("pull", name, "-d", there) == 0
    pulled = find_run(name, there)
    assert below(pulled) == below(done.predir)
    assert multi_graph([read_result(pulled)], tmp_path / "plots", "", [], False, True).is_file()
    assert slm_lab.load(pulled).act(np.zeros(4, np.float32)) in (0, 1)
    before = contents(done.predir)
    longer = tiny(env={"max_frame": 600})
    result = run_tiny(there, longer, f"train@{pulled}")
    assert result.trial is not None
    assert result.trial.complete
    assert contents(done.predir) == before
    assert_same_results(pulled, run_tiny(tmp_path / "whole", longer).predir)


def in_a_process(code: str, folder: Path) -> str:
    """What a program prints that runs in a process of its own."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "0"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_list_and_pull_import_nothing_heavy(server: LocalHub, tmp_path: Path) -> None:
    server.files["data/x/a.csv"] = b"1"
    code = """
import sys
from pathlib import Path
import slm_lab.cli.main
from slm_lab.cli.hub import list_runs, pull
list_runs()
pull("x", Path("there"))
print([name for name in ("torch", "pandas", "matplotlib", "gymnasium", "scipy") if name in sys.modules])
"""
    assert in_a_process(code, tmp_path).splitlines() == ["x", "there/x: 1 files fetched, 0 were there", "[]"]


def test_push_does_not_import_torch(run: Path) -> None:
    code = """
import sys
from pathlib import Path
from slm_lab.cli.hub import push
push(Path("x_2026"))
print("torch" in sys.modules)
"""
    assert in_a_process(code, run.parent).endswith("\nFalse\n")
