"""Runs on the hub: what is sent and fetched, what is tried again, what is refused, and what is never shown."""

from __future__ import annotations

import logging
from pathlib import Path

import httpx2
import pytest
from local_hub import REPO, TOKEN, LocalHub, below, local_server  # noqa: F401
from result_folders import write_run

from slm_lab.experiment.hub import WAITS, Hub, files_of, folders, push
from slm_lab.experiment.hub_pull import pull
from slm_lab.lib.errors import LabError, RunError

FOUR = (1.0, 2.0, 3.0, 6.0)
CHECKPOINT = bytes(range(256)) * 4000  # a megabyte: more than one read of a socket


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with a table and a checkpoint."""
    folder = write_run(tmp_path / "here/x_2026", [FOUR])
    (folder / "model/x_t0_s0_ckpt-400.safetensors").write_bytes(CHECKPOINT)
    return folder


@pytest.fixture
def pushed(run: Path, server: LocalHub) -> LocalHub:
    """A hub that holds this run."""
    push(server.client(), run, "a card")
    return server


# push


def test_a_push_sends_every_file_and_the_card_in_one_commit(run: Path, server: LocalHub) -> None:
    before = below(run)
    done = push(server.client(), run, "a card")
    expected = {f"data/x_2026/{path}": content for path, content in before.items()}
    assert server.files == {**expected, "data/x_2026/README.md": b"a card"}
    assert len(server.sent) == 1
    assert (done.files, done.size) == (len(before), sum(len(content) for content in before.values()))
    assert done.page == f"{server.url}/datasets/tester/runs/tree/main/data/x_2026"
    assert below(run) == before
    assert list(run.parent.iterdir()) == [run]


def test_a_repository_that_is_not_there_is_made_private(run: Path, server: LocalHub) -> None:
    push(server.client(), run, "")
    assert server.private == {REPO}
    push(server.client(), run, "")
    assert server.count("create") == 1


def test_files_that_are_there_already_are_not_sent_again(run: Path, pushed: LocalHub) -> None:
    (run / "info/x_t0_s0_session_df_train.csv").write_text("more rows")
    push(pushed.client(), run, "a new card")
    assert pushed.sent[1] == ["data/x_2026/README.md", "data/x_2026/info/x_t0_s0_session_df_train.csv"]


def test_what_is_temporary_hidden_linked_or_of_a_tuner_stays_here(
    run: Path,
    server: LocalHub,
    tmp_path: Path,
) -> None:
    before = below(run)
    (tmp_path / "secret").write_text("of another folder")
    (run / "info/linked.csv").symlink_to(tmp_path / "secret")
    (run / "linked").symlink_to(tmp_path)
    for name in ("model/x.safetensors.tmp123", "x.lock", ".cache/x", "ray_tune/x/result.json", "README.md"):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text("not for the hub")
    push(server.client(), run, "a card")
    assert server.files.keys() == {f"data/x_2026/{path}" for path in before} | {"data/x_2026/README.md"}
    assert server.files["data/x_2026/README.md"] == b"a card"


def test_files_may_change_and_go_while_they_are_sent(run: Path, server: LocalHub) -> None:
    table, checkpoint = run / "info/x_t0_s0_session_df_train.csv", run / "model/x_t0_s0_ckpt-400.safetensors"
    before = table.read_bytes()

    def meanwhile(seconds: float) -> None:
        table.write_text("another row")
        checkpoint.unlink()

    server.faults["commit"] = [500]
    push(Hub(REPO, TOKEN, server.url, meanwhile), run, "")
    assert server.files["data/x_2026/info/x_t0_s0_session_df_train.csv"] == before
    assert server.files["data/x_2026/model/x_t0_s0_ckpt-400.safetensors"] == CHECKPOINT


@pytest.mark.parametrize("fault", [412, 429, 500, 503, "cut"])
def test_a_push_that_failed_on_the_way_is_tried_again(run: Path, server: LocalHub, fault: int) -> None:
    server.faults["commit"] = [fault, fault]
    push(server.client(), run, "a card")
    assert (server.count("commit"), server.waits) == (3, [1.0, 2.0])
    assert server.files["data/x_2026/model/x_t0_s0_ckpt-400.safetensors"] == CHECKPOINT


def test_an_interrupted_push_leaves_nothing_half_done_on_the_hub(run: Path, server: LocalHub) -> None:
    before = below(run)
    server.faults["commit"] = ["cut"] * 5
    with pytest.raises(RunError, match=f"^{REPO}: {server.url} cannot be reached: "):
        push(server.client(), run, "")
    assert server.files == {}
    assert below(run) == before
    assert list(run.parent.iterdir()) == [run]


def test_a_hub_that_falls_silent_is_not_waited_for_long(
    run: Path, server: LocalHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slm_lab.experiment.hub.SILENCE", 1.0)
    server.faults["commit"] = ["silent"]
    push(server.client(), run, "")
    assert server.count("commit") == 2


def test_a_large_file_that_was_cut_on_its_way_is_tried_again(server: LocalHub) -> None:
    errors = [RuntimeError("Error while uploading"), RuntimeError("Error while uploading")]
    errors[0].__cause__ = httpx2.ReadError("cut")  # as the library wraps it

    def request(api: object) -> None:
        raise errors.pop(0)

    with pytest.raises(RunError, match=f"^{REPO}: RuntimeError: Error while uploading$"):
        server.client().ask(request)
    assert server.waits == [1.0]


def test_tries_are_few(run: Path, server: LocalHub) -> None:
    server.faults["info"] = [500] * 99
    with pytest.raises(RunError, match=f"{REPO}: HTTP 500 from {server.url}: a fault that was asked for"):
        push(server.client(), run, "")
    assert server.waits == list(WAITS) == [1.0, 2.0, 4.0, 8.0]
    assert server.count("info") == 5


def test_a_refusal_is_not_tried_again(run: Path, server: LocalHub) -> None:
    server.faults["commit"] = [403]
    with pytest.raises(RunError, match=r"HTTP 403 from .*: HF_TOKEN does not allow this"):
        push(server.client(), run, "")
    assert server.waits == []


def test_a_hub_that_is_not_there_is_told(run: Path, server: LocalHub) -> None:
    nowhere = Hub(REPO, TOKEN, "http://127.0.0.1:1", server.waits.append)
    with pytest.raises(RunError, match=r"http://127\.0\.0\.1:1 cannot be reached: ConnectError"):
        push(nowhere, run, "")
    assert len(server.waits) == 4


def test_a_wrong_token_is_told(run: Path, server: LocalHub) -> None:
    for ask in (lambda hub: push(hub, run, ""), folders):
        with pytest.raises(RunError, match=r"HTTP 401 from .*: HF_TOKEN was refused"):
            ask(server.client("hf_another_token"))
    assert server.repos == {}


def test_a_missing_repository_is_told(server: LocalHub, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=f"^{REPO}: no such dataset on {server.url}, or none that this HF_TOKEN may see"):
        folders(server.client())
    with pytest.raises(RunError, match="or none that somebody without HF_TOKEN may see"):
        pull(server.client(token=None), "x_2026", tmp_path)


@pytest.mark.parametrize("name", ["runs", "a/b/c", "../runs", "tester/", ""])
def test_a_repository_has_an_owner_and_a_name(name: str) -> None:
    with pytest.raises(LabError, match="expected OWNER/NAME"):
        Hub(name)


def test_offline_is_told_at_once(server: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(RunError, match="HF_HUB_OFFLINE is set"):
        folders(server.client())
    assert server.waits == []


@pytest.mark.parametrize("fault", [[], [400], [500] * 9])
def test_a_hub_that_repeats_the_token_does_not_get_it_shown(
    run: Path,
    server: LocalHub,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    fault: list[int],
) -> None:
    server.echo = True
    server.faults["commit"] = list(fault)
    hub = server.client()
    with caplog.at_level(logging.DEBUG):
        if fault:
            with pytest.raises(RunError) as failed:
                push(hub, run, "")
            assert "***" in str(failed.value)
            assert TOKEN not in str(failed.value)
            assert failed.value.__suppress_context__
        else:
            push(hub, run, "")
            pull(hub, "x_2026", tmp_path / "there")
    shown = capfd.readouterr()
    assert TOKEN not in shown.out + shown.err + repr(hub)
    assert not [path for path, content in below(tmp_path).items() if TOKEN.encode() in content]


def test_checkpoints_are_taken_before_the_tables_whose_rows_they_count(run: Path) -> None:
    assert files_of(run)[0].name == "x_t0_s0_ckpt-400.safetensors"


# list


def test_folders_are_listed_by_part_of_their_name(server: LocalHub) -> None:
    server.files.update({f"data/{name}/info/t.csv": b"" for name in ("b_2026", "a_2026", "a_2025")})
    server.files.update({"README.md": b"", "data/note.txt": b"", "other/a_2024/t.csv": b""})
    hub = server.client(token=None)
    assert folders(hub) == ["a_2025", "a_2026", "b_2026"]
    assert folders(hub, "2026") == ["a_2026", "b_2026"]
    assert folders(hub, "data/a_") == ["a_2025", "a_2026"]
    assert folders(hub, "data/b_2026/") == ["b_2026"]
    assert folders(hub, "c") == []


def test_a_new_repository_has_no_folders(server: LocalHub) -> None:
    server.files.clear()
    assert folders(server.client()) == []


# pull


def test_a_pull_gives_the_folder_that_was_pushed(run: Path, pushed: LocalHub, tmp_path: Path) -> None:
    done = pull(pushed.client(token=None), "x_2026", tmp_path / "there")
    assert (done.folder, done.fetched, done.kept) == (tmp_path / "there/x_2026", len(below(run)), 0)
    assert below(tmp_path / "there") == {f"x_2026/{path}": content for path, content in below(run).items()}


def test_what_is_there_with_the_right_content_is_kept(run: Path, pushed: LocalHub, tmp_path: Path) -> None:
    pull(pushed.client(), "x_2026", tmp_path / "there")
    kept = tmp_path / "there/x_2026/info/x_t0_s0_session_df_train.csv"
    gone = tmp_path / "there/x_2026/x_spec.json"
    before = kept.stat().st_mtime_ns
    gone.unlink()
    pushed.calls.clear()
    done = pull(pushed.client(), "x_2026", tmp_path / "there")
    assert (done.fetched, done.kept) == (1, len(below(run)) - 1)
    assert [path for call, path in pushed.calls if call == "resolve"] == ["data/x_2026/x_spec.json"]
    assert gone.exists()
    assert kept.stat().st_mtime_ns == before


def test_a_file_that_differs_is_named_and_left_alone(pushed: LocalHub, tmp_path: Path) -> None:
    mine = tmp_path / "there/x_2026/info/x_t0_s0_session_df_train.csv"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(LabError, match=r"x_2026: files there differ .*: info/x_t0_s0_session_df_train\.csv\. Move"):
        pull(pushed.client(), "x_2026", tmp_path / "there")
    assert below(tmp_path / "there") == {"x_2026/info/x_t0_s0_session_df_train.csv": b"mine"}
    assert pushed.count("resolve") == 0


def test_a_file_of_the_same_size_can_differ_too(run: Path, pushed: LocalHub, tmp_path: Path) -> None:
    pull(pushed.client(), "x_2026", tmp_path / "there")
    for name in ("x_spec.json", "model/x_t0_s0_ckpt-400.safetensors"):
        path = tmp_path / "there/x_2026" / name
        content = path.read_bytes()
        path.write_bytes(content[:-1] + b"?")
        with pytest.raises(LabError, match=f": {name}. Move"):
            pull(pushed.client(), "x_2026", tmp_path / "there")
        path.write_bytes(content)


def test_a_download_that_is_cut_goes_on_where_it_stopped(server: LocalHub, tmp_path: Path) -> None:
    server.files["data/x/model/a.safetensors"] = CHECKPOINT
    server.faults["resolve"] = ["cut"]
    pull(server.client(), "x", tmp_path)
    assert (server.count("resolve"), server.waits) == (2, [1.0])
    assert server.ranges == [f"bytes={len(CHECKPOINT) // 2}-"]
    assert below(tmp_path) == {"x/model/a.safetensors": CHECKPOINT}


def test_a_later_pull_goes_on_with_the_partial_files_of_an_earlier_one(
    server: LocalHub,
    tmp_path: Path,
) -> None:
    server.files["data/x/model/a.safetensors"] = CHECKPOINT
    server.faults["resolve"] = ["cut", 403]
    with pytest.raises(RunError, match="HTTP 403"):
        pull(server.client(), "x", tmp_path)
    assert not (tmp_path / "x").exists()
    pull(server.client(), "x", tmp_path)
    half = len(CHECKPOINT) // 2
    assert server.ranges == [f"bytes={half}-"] * 2
    assert below(tmp_path) == {"x/model/a.safetensors": CHECKPOINT}


def test_a_partial_file_of_an_older_version_is_not_continued(server: LocalHub, tmp_path: Path) -> None:
    server.files["data/x/a.csv"] = b"older " * 1000
    server.faults["resolve"] = ["cut", 403]
    with pytest.raises(RunError, match="HTTP 403"):
        pull(server.client(), "x", tmp_path)
    server.files["data/x/a.csv"] = b"newer " * 1000
    pull(server.client(), "x", tmp_path)
    assert len(server.ranges) == 1  # asked for by the pull that failed
    assert (tmp_path / "x/a.csv").read_bytes() == b"newer " * 1000


@pytest.mark.parametrize("name", ["a.csv", "a.safetensors"])
@pytest.mark.parametrize("content", [b"right, but", b"wrong", b"right, but longer than it is listed", b"RIGHT"])
def test_a_file_with_another_content_than_listed_is_not_kept(
    server: LocalHub,
    tmp_path: Path,
    name: str,
    content: bytes,
) -> None:
    server.files[f"data/x/{name}"] = b"right"
    server.served[f"data/x/{name}"] = content
    with pytest.raises(RunError, match=f"^{REPO}: data/x/{name} came with another content than the hub lists"):
        pull(server.client(), "x", tmp_path)
    assert below(tmp_path) == {}


def test_an_empty_file_is_a_file(server: LocalHub, tmp_path: Path) -> None:
    server.files["data/x/log/a.log"] = b""
    assert pull(server.client(), "x", tmp_path).fetched == 1
    assert below(tmp_path) == {"x/log/a.log": b""}


@pytest.mark.parametrize(
    "path",
    [
        "data/x/../y.csv",
        "data/x/../../y.csv",
        "data/x/info/../../y.csv",
        "data/x//etc/y.csv",
        "data/x/./y.csv",
        "data/x/a\\..\\y.csv",
    ],
)
def test_paths_that_leave_the_folder_are_refused(server: LocalHub, tmp_path: Path, path: str) -> None:
    server.files.update({"data/x/good.csv": b"good", path: b"bad"})
    with pytest.raises(RunError, match=r"would be written outside .*; refused"):
        pull(server.client(), "x", tmp_path / "there")
    assert below(tmp_path) == {}


def test_paths_of_another_folder_than_was_asked_for_are_refused(
    server: LocalHub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server.files["data/x/a.csv"] = b"good"
    elsewhere = [{"type": "file", "path": "/etc/a.csv", "size": 4, "oid": "0" * 40}]
    monkeypatch.setattr("local_hub.Handler.tree", lambda self, name, folder: self.answer(200, elsewhere))
    with pytest.raises(RunError, match=r"'/etc/a\.csv' would be written outside"):
        pull(server.client(), "x", tmp_path)


@pytest.mark.parametrize("name", ["..", ".pull", "a/b"])
def test_folders_with_odd_names_are_refused(server: LocalHub, tmp_path: Path, name: str) -> None:
    server.files[f"data/{name}/a.csv"] = b"bad"
    with pytest.raises(RunError, match="would be written outside"):
        pull(server.client(), name, tmp_path / "there")
    assert below(tmp_path) == {}


@pytest.mark.parametrize("link", ["x", "x/info", "x/info/a.csv"])
def test_links_that_lead_out_of_the_folder_are_not_followed(
    server: LocalHub,
    tmp_path: Path,
    link: str,
) -> None:
    server.files["data/x/info/a.csv"] = b"good"
    (tmp_path / "there" / link).parent.mkdir(parents=True)
    (tmp_path / "there" / link).symlink_to(tmp_path / "outside")
    with pytest.raises(RunError, match="would be written outside"):
        pull(server.client(), "x", tmp_path / "there")
    assert not (tmp_path / "outside").exists()


def test_a_data_folder_may_itself_be_a_link(server: LocalHub, tmp_path: Path) -> None:
    server.files["data/x/a.csv"] = b"good"
    (tmp_path / "disk").mkdir()
    (tmp_path / "data").symlink_to(tmp_path / "disk")
    pull(server.client(), "x", tmp_path / "data")
    assert below(tmp_path / "disk") == {"x/a.csv": b"good"}
