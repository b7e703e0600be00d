"""Uploads while a run goes on: now and then, at its end, after a failure; never at the cost of the run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_hub import TOKEN, LocalHub, local_server  # noqa: F401
from loguru import logger
from result_folders import write_run, write_table
from run_helpers import wait_for

from slm_lab.experiment.hub import Hub
from slm_lab.experiment.hub_sync import Uploads
from slm_lab.experiment.paths import Paths

TABLE = "data/x_2026/info/x_t0_s0_session_df_train.csv"
CARD = "data/x_2026/README.md"
OFTEN, NEVER = 0.0005, 1e6  # minutes


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that has logged two rows of four."""
    return write_run(tmp_path / "x_2026", [(1.0, 2.0)])


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """Log lines with their level."""
    told = list[str]()
    sink = logger.add(lambda line: told.append(f"{line.record['level'].name} {line.record['message']}"), level="INFO")
    yield told
    logger.remove(sink)


def test_a_run_is_uploaded_when_it_ends(run: Path, server: LocalHub, lines: list[str]) -> None:
    with Uploads(server.client(), run, NEVER):
        write_table(Paths(run, "x"), 0, "train", (1.0, 2.0, 3.0, 6.0))
        assert server.count("commit") == 0
    assert server.count("commit") == 1
    assert b"Score: **3**, of its only session" in server.files[CARD]
    assert lines == [
        f"INFO uploaded {len(server.files) - 1} files to {server.url}/datasets/tester/runs/tree/main/data/x_2026"
    ]


def test_a_run_is_uploaded_while_it_goes_on(run: Path, server: LocalHub) -> None:
    with Uploads(server.client(), run, OFTEN):
        wait_for(lambda: CARD in server.files, "the first upload", 20)
        assert b"Incomplete" in server.files[CARD]
        two = server.files[TABLE]
        write_table(Paths(run, "x"), 0, "train", (1.0, 2.0, 3.0))
        wait_for(lambda: server.files[TABLE] != two, "the next upload", 20)


def test_a_run_that_fails_or_is_stopped_is_uploaded_and_fails_as_it_did(run: Path, server: LocalHub) -> None:
    for error in (RuntimeError("its own"), KeyboardInterrupt()):
        server.files.clear()
        with pytest.raises(type(error)), Uploads(server.client(), run, NEVER):
            raise error
        assert TABLE in server.files


def test_a_failed_upload_is_an_error_line_and_nothing_else(run: Path, server: LocalHub, lines: list[str]) -> None:
    server.echo = True
    with Uploads(server.client("hf_another_token"), run, NEVER):
        pass
    (line,) = lines
    assert line.startswith("ERROR upload failed: tester/runs: HTTP 401 from ")
    assert line.endswith(f" All files are here: `slm-lab push {run}` sends them.")
    assert "hf_another_token" not in line
    assert server.repos == {}


def test_what_nobody_thought_of_does_not_stop_a_run(
    run: Path, server: LocalHub, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object) -> str:
        raise ZeroDivisionError(f"with {TOKEN}")

    monkeypatch.setattr("slm_lab.experiment.hub_sync.card", broken)
    with Uploads(server.client(), run, NEVER):
        pass
    assert lines[0].startswith("ERROR upload failed: with ***")


def test_an_upload_that_failed_is_made_up_for_by_the_next(run: Path, server: LocalHub, lines: list[str]) -> None:
    server.faults["commit"] = [400]
    with Uploads(server.client(), run, OFTEN):
        wait_for(lambda: TABLE in server.files, "the second upload", 20)
    assert lines[0].startswith("ERROR upload failed: tester/runs: HTTP 400")
    assert lines[1].startswith("INFO uploaded")


def test_the_end_of_a_run_does_not_wait_for_another_try(run: Path, server: LocalHub) -> None:
    server.faults["commit"] = [500] * 5
    began = time.monotonic()
    with Uploads(Hub("tester/runs", TOKEN, server.url, server.waits.append), run, OFTEN):
        wait_for(lambda: server.count("commit") > 0, "the first try", 20)
    # its waits were 1, 2, 4 and 8 s; the last upload is another one
    assert time.monotonic() - began < 5
    assert server.waits == []
    assert TABLE in server.files
