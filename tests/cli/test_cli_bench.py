"""`slm-lab bench`: what it prints, and its exit codes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bench_helpers import cell_of, keep, record_of, tiny_suite
from run_helpers import no_sinks  # noqa: F401

from slm_lab.cli.main import main
from slm_lab.experiment.bench_record import Row, read_record, record_path
from slm_lab.experiment.record import versions

CELLS = {algorithm: cell_of(algorithm) for algorithm in ("A2C", "Random", "PPO")}  # there is no spec of PPO
HEAD: list[Row] = [{"frame": 50.0, "total_reward": 9.0}]


@pytest.fixture(autouse=True)
def _suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A suite of tiny cells, whose first rows are always HEAD."""
    tiny_suite(tmp_path, monkeypatch)
    monkeypatch.setattr("slm_lab.spec.suite.read_suite", lambda: list(CELLS.values()))
    monkeypatch.setattr("slm_lab.experiment.bench_verify.first_rows", lambda *_: HEAD)


def call(folder: Path, command: str, *words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["bench", command, "--results", str(folder / "results"), *words])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def keep_record(folder: Path, algorithm: str, head: list[Row], **changes: Any) -> Path:
    return keep(folder, CELLS[algorithm], record_of(CELLS[algorithm], [30.0, 40.0], head, **changes))


def test_a_run_with_nothing_to_do_says_so_and_ends_with_the_matrix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep_record(tmp_path, "A2C", HEAD)
    assert call(tmp_path, "run", "--algo", "a2c", "--data-dir", str(tmp_path / "data")) == 0
    said = capsys.readouterr()
    assert said.err.endswith("| nothing to do: all sessions of 1 cell are recorded\n")
    assert said.out.splitlines()[-1] == "1 cell: 1 beaten"
    assert not (tmp_path / "data").exists()


def test_a_run_that_fails_ends_with_the_matrix_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(tmp_path, "run", "--algo", "ppo", "--data-dir", str(tmp_path / "data")) == 1
    said = capsys.readouterr()
    assert said.err.startswith("error: classic/CartPole-v1/PPO: ")
    assert "nothing to do" not in said.err
    assert said.out.splitlines()[-1] == "1 cell: 1 not run"


def test_verify_says_when_there_is_no_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(tmp_path, "verify", "--env", "CartPole-v1") == 2
    assert f"error: {tmp_path / 'results'}: no record of what was asked for, 3 cells" in capsys.readouterr().err


def test_verify_goes_on_after_a_refused_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep_record(tmp_path, "A2C", HEAD).write_text("{}")
    path = keep_record(tmp_path, "Random", HEAD)
    assert call(tmp_path, "verify") == 2
    said = capsys.readouterr()
    refused = record_path(tmp_path / "results", CELLS["A2C"])
    assert said.err == f"classic/CartPole-v1/A2C: cannot be verified: {refused}: not a result: it has no seal.\n"
    assert said.out == "classic/CartPole-v1/Random: identical: 1 row, 300 frames\n"
    verified = read_record(path).verified
    assert verified is not None
    assert verified["same"] is True


def test_verify_tells_what_differs_in_rows_and_surroundings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep_record(tmp_path, "A2C", HEAD).write_text("{}")
    other: list[Row] = [{"frame": 50.0, "total_reward": 8.0}]
    keep_record(tmp_path, "Random", other, versions={**versions(), "torch": "0.1"})
    assert call(tmp_path, "verify") == 1  # weighs more than the refused record
    assert capsys.readouterr().out.splitlines() == [
        "classic/CartPole-v1/Random: differs in 1 of 1 row",
        "  row 0 (frame 50): total_reward 8.0 -> 9.0",
        "  what differs in the surroundings:",
        f"    torch: 0.1 -> {versions()['torch']}",
        "  these can be the reason as well as the code: the record is left as it is",
    ]


def test_verify_tells_when_the_surroundings_are_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep_record(tmp_path, "Random", [{"frame": 50.0, "total_reward": 8.0}], versions=versions())
    assert call(tmp_path, "verify") == 1
    assert capsys.readouterr().out.splitlines()[-1] == "  the surroundings are the same"


def test_the_help_of_status_names_every_way_a_cell_can_stand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(tmp_path, "status", "--help") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "beaten, met, below, recorded, drifted, incomplete, refused or not run" in text
