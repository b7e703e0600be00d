"""What a rented machine calls: a new run, one that goes on from the hub, a hub that is down."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from local_hub import REPO, LocalHub
from result_folders import write_run

from slm_lab.cli import remote_entry
from slm_lab.cli.main import guarded
from slm_lab.cli.remote_entry import MARK, WAITS, Dataset, enter, marked, on_hub, patiently
from slm_lab.experiment.hub import push
from slm_lab.experiment.remote import arguments, packed
from slm_lab.lib.errors import LabError, RunError

pytest_plugins = ("local_hub",)

TOKEN = "hf_a_token_that_nobody_may_see"
RUN_ID = "tiny-2026_11_16_120000"
FOLDER = "tiny_2026_11_16_120130"  # what the first attempt made


@dataclass
class FakeHub:
    """Folders with the id that is in them, and a number of times that nothing answers."""

    marks: dict[str, str | None] = field(default_factory=dict)
    failures: int = 0
    pulled: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)

    def connect(self, repo: str, token: str) -> FakeHub:
        assert (repo, token) == ("me/runs", TOKEN)
        return self

    def folders(self, pattern: str = "") -> list[str]:
        if self.failures:
            self.failures -= 1
            raise ConnectionError(f"no answer to Bearer {TOKEN}")
        return sorted(folder for folder in self.marks if pattern in folder)

    def pull(self, folder: str, data_dir: Path) -> Path:
        self.pulled.append(folder)
        (data_dir / folder).mkdir(parents=True)
        return data_dir / folder

    def read(self, path_in_repo: str) -> bytes | None:
        root, folder, name = path_in_repo.split("/")
        assert (root, name) == ("data", MARK)
        self.reads.append(folder)
        mark = self.marks[folder]
        return None if mark is None else mark.encode()


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What the command line is called with, in an empty folder; it makes a run folder where it starts a run."""
    made = list[list[str]]()

    def command_line(words: list[str]) -> None:
        made.append(words)
        if "@" not in words[-1]:
            Path("data", FOLDER).mkdir(parents=True)
        sys.exit(3)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(remote_entry, "command_line", command_line)
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail(f"waited {seconds} s"))
    return made


def entered(hub: FakeHub, mode: str = "train") -> int:
    """Exit code of the entry."""
    words = packed(arguments("f.json", "tiny", mode, ["a=x y"], profile=False))
    environment = {"SLM_ARGS": words, "SLM_RUN_ID": RUN_ID, "HF_TOKEN": TOKEN, "HF_REPO": "me/runs"}
    return guarded(lambda: enter(environment, hub.connect), debug=False)


def words_of(mode: str) -> list[str]:
    return ["run", "--upload-hf", "--upload-every", "5", "--set=a=x y", "--", "f.json", "tiny", mode]


def test_with_nothing_on_the_hub_a_new_run_starts_that_uploads(calls: list[list[str]]) -> None:
    assert entered(FakeHub()) == 3
    assert calls == [words_of("train")]


def test_a_new_run_carries_its_id(calls: list[list[str]]) -> None:
    entered(FakeHub())
    assert Path("data", FOLDER, MARK).read_text() == RUN_ID


@pytest.mark.parametrize("mode", ["train", "search"])
def test_what_an_earlier_attempt_left_on_the_hub_is_pulled_and_goes_on(calls: list[list[str]], mode: str) -> None:
    hub = FakeHub({FOLDER: RUN_ID})
    assert entered(hub, mode) == 3
    assert hub.pulled == [FOLDER]
    assert calls == [words_of(f"{mode}@data/{FOLDER}")]
    assert not Path("data", FOLDER, MARK).exists()  # it came from the hub, where it has one


def test_of_several_the_newest_with_the_very_id_goes_on(calls: list[list[str]]) -> None:
    newest = "tiny_acrobot_2026_11_16_140000"
    marks = {
        "tiny_2026_11_16_130000": RUN_ID,
        newest: RUN_ID,
        "tiny_2026_11_16_150000": "tiny-2026_11_16_145959",
        "tiny_2026_11_16_160000": None,
        "other_2026_11_16_170000": RUN_ID,
    }
    hub = FakeHub(dict(marks))
    entered(hub)
    assert calls == [words_of(f"train@data/{newest}")]
    assert hub.reads == ["tiny_2026_11_16_160000", "tiny_2026_11_16_150000", newest]


def test_runs_from_long_before_the_launch_are_not_asked_for(calls: list[list[str]]) -> None:
    hub = FakeHub({"tiny_2026_11_15_115959": RUN_ID, "tiny_2026_11_15_120000": None, "tiny_no_stamp": RUN_ID})
    entered(hub)
    assert hub.reads == ["tiny_2026_11_15_120000"]  # a day before: clocks may be in other time zones
    assert calls == [words_of("train")]


def test_a_folder_that_the_mode_names_is_pulled_and_goes_on(calls: list[list[str]]) -> None:
    hub = FakeHub({FOLDER: "tiny-2026_11_01_000000"})
    assert entered(hub, f"train@{FOLDER}") == 3
    assert hub.pulled == [FOLDER]
    assert calls == [words_of(f"train@data/{FOLDER}")]


def test_a_folder_that_is_not_there_is_an_error(calls: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert entered(FakeHub({f"{FOLDER}_2": None}), f"train@{FOLDER}") == 2
    assert (
        f"error: mode: train@{FOLDER}: no such folder on the hub; `slm-lab push data/{FOLDER}`"
        in capsys.readouterr().err
    )
    assert calls == []


def test_a_hub_that_comes_back_is_asked_again(
    calls: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waited = waits_of(monkeypatch)
    assert entered(FakeHub({FOLDER: RUN_ID}, failures=2)) == 3
    assert waited == [5.0, 20.0]
    assert calls == [words_of(f"train@data/{FOLDER}")]
    assert TOKEN not in capsys.readouterr().err


def test_a_hub_that_stays_down_fails_loudly_and_starts_nothing(
    calls: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waited = waits_of(monkeypatch)
    assert entered(FakeHub({FOLDER: RUN_ID}, failures=99)) == 1
    assert waited == list(WAITS)
    assert calls == []
    err = capsys.readouterr().err
    assert "error: me/runs: the hub was not reached in 5 attempts: ConnectionError: no answer to Bearer ***" in err
    assert TOKEN not in err


def waits_of(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds the entry asks to wait, without waiting."""
    waited = list[float]()

    def at_once(ask: Callable[[], object], repo: str, token: str) -> object:
        return patiently(ask, repo, token, waited.append)

    monkeypatch.setattr(remote_entry, "patiently", at_once)
    return waited


def test_bad_input_is_not_tried_again() -> None:
    def refuse() -> None:
        raise LabError("not the name of a repository")

    with pytest.raises(LabError, match="not the name"):
        patiently(refuse, "me/runs", TOKEN, lambda seconds: pytest.fail("waited"))


@pytest.mark.parametrize("missing", ["SLM_ARGS", "SLM_RUN_ID", "HF_TOKEN", "HF_REPO"])
def test_what_is_not_set_is_named(missing: str) -> None:
    words = packed(arguments("f.json", "tiny", "train", [], profile=False))
    environment = {"SLM_ARGS": words, "SLM_RUN_ID": RUN_ID, "HF_TOKEN": TOKEN, "HF_REPO": "me/runs", missing: ""}
    with pytest.raises(LabError, match=f"^{missing}: not set"):
        enter(environment, FakeHub().connect)


def test_only_the_first_folder_of_a_run_is_marked_and_while_it_goes_on(tmp_path: Path) -> None:
    (tmp_path / "tiny_2026_11_15_000000").mkdir()
    with marked(tmp_path, RUN_ID):
        (tmp_path / ".upload_x").mkdir()
        (tmp_path / FOLDER).mkdir()
        end = time.monotonic() + 10
        while not (tmp_path / FOLDER / MARK).exists() and time.monotonic() < end:
            time.sleep(0.02)
        assert (tmp_path / FOLDER / MARK).read_text() == RUN_ID
        (tmp_path / "tiny_2026_11_16_130000").mkdir()
    assert [path.parent.name for path in tmp_path.rglob(MARK)] == [FOLDER]


def test_a_run_that_fails_before_it_has_a_folder_is_not_marked(tmp_path: Path) -> None:
    def fail() -> None:
        raise RunError("no folder")

    with pytest.raises(RunError, match="no folder"), marked(tmp_path / "data", RUN_ID):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_the_module_is_a_program_that_says_what_it_needs(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "slm_lab.cli.remote_entry"]
    done = subprocess.run(program, cwd=tmp_path, env={}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("error: SLM_ARGS: not set")


# the hub's own protocol


@pytest.fixture
def hub_library() -> None:
    pytest.importorskip("huggingface_hub")


@pytest.mark.usefixtures("hub_library")
def test_a_repository_is_made_before_the_run_and_is_empty(server: LocalHub) -> None:
    found = Dataset(server.client())
    assert server.private == {REPO}
    assert found.folders() == []
    assert on_hub(found, words_of("train"), RUN_ID) is None


@pytest.mark.usefixtures("hub_library")
def test_a_run_is_found_on_a_hub_by_its_id_and_pulled(
    tmp_path: Path, server: LocalHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder, mark in ((FOLDER, RUN_ID), ("tiny_2026_11_16_130000", None)):
        run = write_run(tmp_path / "there" / folder, [(1.0, 2.0)])
        if mark is not None:
            (run / MARK).write_text(mark)
        push(server.client(), run, "a card")
    assert on_hub(Dataset(server.client()), words_of("train"), RUN_ID) == Path("data", FOLDER)
    assert Path("data", FOLDER, MARK).read_text() == RUN_ID


@pytest.mark.usefixtures("hub_library")
def test_a_token_that_is_refused_is_told_before_the_run(server: LocalHub) -> None:
    with pytest.raises(RunError, match="HF_TOKEN was refused"):
        Dataset(server.client(token="hf_wrong"))
