"""Runs by mode: new ones, the rest of interrupted ones, and what is refused."""

from __future__ import annotations

import json
import signal
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
    tables,
    tiny,
)
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

from slm_lab.experiment import lock
from slm_lab.experiment.control import RunOptions, read_saved
from slm_lab.experiment.display import Display
from slm_lab.experiment.lock import alone, writing
from slm_lab.experiment.run import parse_mode, run
from slm_lab.lib.errors import LabError, SpecError


@pytest.fixture(autouse=True)
def _no_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slm_lab.experiment.session.session_graphs", lambda *_: None)
    monkeypatch.setattr("slm_lab.experiment.metric_files.trial_graphs", lambda *_: [])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def finished(data: Path) -> Path:
    """The folder of a finished run."""
    return run_tiny(data, tiny()).predir


def interrupted(data: Path, monkeypatch: pytest.MonkeyPatch, spec: dict[str, Any], mode: str = "train") -> Path:
    """The folder of a run that was asked to end after 120 frames."""
    row = Display.row

    def ask(self: Display, session: int, values: Any) -> None:
        row(self, session, values)
        if values["frame"] == 120:
            signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(Display, "row", ask)
        result = run_tiny(data, spec, mode)
    assert result.trial is not None
    assert (result.trial.stopped, result.trial.done, result.trial.complete) == ("SIGTERM", 0, False)
    return result.predir


# new runs


def test_a_new_run_records_what_it_is_and_what_it_runs_on(data: Path) -> None:
    result = run(tiny(), mode="train", sets=["gamma=0.5", "random_seed=11"], options=RunOptions(data, threads=2))
    saved = json.loads((result.predir / "tiny_t0_spec.json").read_text())
    assert saved["agent"]["algorithm"]["gamma"] == 0.5
    meta = saved["meta"]
    assert meta["overrides"] == ["gamma=0.5", "random_seed=11"]
    assert (meta["random_seed"], meta["trial"]) == (11, 0)
    assert result.predir.name == f"tiny_{meta['experiment_ts']}"
    record = meta["record"]
    assert (record["mode"], record["threads"], record["vectorization"]) == ("train", 2, "sync")
    assert record["env_exact"] == "exact"
    assert record["versions"].keys() >= {"python", "torch", "gymnasium"}
    assert meta["git_sha"]


def test_an_unverified_env_is_recorded_as_such(data: Path) -> None:
    spec = tiny("Random", env={"name": "faulty_envs:Faulty", "max_frame": 60})
    predir = run_tiny(data, spec).predir
    assert read_saved(predir / "tiny_t0_spec.json").meta.record["env_exact"] == "unverified"


def test_a_saved_spec_runs_again_with_the_same_results(tmp_path: Path) -> None:
    first = run_tiny(tmp_path / "a", tiny()).predir
    saved = json.loads((first / "tiny_t0_spec.json").read_text())
    assert_same_results(run_tiny(tmp_path / "b", saved).predir, first)


def test_two_runs_in_one_second_have_folders_of_their_own(data: Path) -> None:
    spec = tiny("Random", env={"max_frame": 30})
    folders = [run_tiny(data, spec).predir for _ in range(2)]
    assert folders[0] != folders[1]
    assert all((folder / "tiny_t0_trial_metrics_scalar.json").exists() for folder in folders)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"env": {"name": "LunarLander-v3", "gravity": 5.0}}, r"env: LunarLander-v3 cannot be made with .*gravity"),
        ({"env": {"name": "faulty_envs:Faulty", "faults": {"any": "raise in reset"}}}, "ValueError: no reset today"),
        ({"algorithm": {"action_pdtype": "Normal"}}, "unknown distribution for discrete actions 'Normal'"),
    ],
)
def test_what_only_building_can_show_is_refused_before_anything_is_written(
    data: Path, sections: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        run_tiny(data, tiny(**sections))
    assert not data.exists()


def test_a_wrong_log_level_is_refused_before_anything_is_written(data: Path) -> None:
    with pytest.raises(LabError, match="unknown level 'LOUD'"):
        run_tiny(data, tiny(), log_level="LOUD")
    assert not data.exists()


# the rest of interrupted runs


def test_the_rest_of_an_interrupted_run_gives_the_same_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished: Path
) -> None:
    spec = tiny()
    folder = interrupted(tmp_path / "parts", monkeypatch, spec)
    assert not (folder / "info/tiny_t0_s0_session_metrics_eval.json").exists()
    result = run_tiny(tmp_path / "parts", spec, "train@latest")
    assert result.predir == folder
    assert result.trial is not None
    assert result.trial.complete
    assert_same_results(folder, finished)


def test_a_finished_run_is_left_as_it_is(data: Path, finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(data)
    for mode in ("train@latest", f"train@{finished}"):
        capsys.readouterr()
        result = run_tiny(data, tiny(), mode)
        assert (result.predir, result.trial) == (finished, None)
        assert "this run is finished (300 frames); nothing to do" in capsys.readouterr().err
    assert contents(data) == before


def test_a_changed_spec_is_refused_with_every_difference(data: Path, finished: Path) -> None:
    before = contents(data)
    changed = tiny(
        algorithm={"gamma": 0.9}, net={"hid_layers": [8, 8]}, env={"max_frame": 200}, meta={"random_seed": 4}
    )
    with pytest.raises(SpecError) as error:
        run_tiny(data, changed, "train@latest")
    first, *lines = str(error.value).splitlines()
    assert first == f"{finished}: the spec has changed; only env.max_frame may grow. Saved -> now:"
    assert lines == [
        "  agent.algorithm.gamma: 0.97 -> 0.9",
        "  agent.net.hid_layers: [8] -> [8, 8]",
        "  env.max_frame: 300 -> 200",
        "  meta.random_seed: 3 -> 4",
    ]
    assert contents(data) == before


def test_more_frames_continue_a_run_as_if_it_had_been_longer(tmp_path: Path) -> None:
    for frames in (130, 400):
        result = run_tiny(
            tmp_path / "parts", tiny(env={"max_frame": frames}), "train@latest" if frames == 400 else "train"
        )
    assert result.trial is not None
    assert result.trial.metrics["scalar"]["frame"] == 402
    straight = run_tiny(tmp_path / "straight", tiny(env={"max_frame": 400}))
    ours, theirs = tables(result.predir), tables(straight.predir)
    for name in theirs:
        pd.testing.assert_frame_equal(ours[name], theirs[name], check_exact=True)
    assert read_saved(result.predir / "tiny_t0_spec.json").env.max_frame == 400


def test_latest_is_the_newest_run_of_exactly_this_name(data: Path, finished: Path) -> None:
    longer = dict(tiny("Random", env={"max_frame": 30}), name="tiny_long")
    run_tiny(data, longer)
    assert run_tiny(data, tiny(), "train@latest").predir == finished
    newest = run_tiny(data, tiny()).predir
    assert run_tiny(data, tiny(), "train@latest").predir == newest != finished


def test_a_run_that_is_not_there_is_named_with_what_is(data: Path, finished: Path) -> None:
    with pytest.raises(LabError, match=rf"no run of spec 'tinny'\. Did you mean 'tiny'\? There is: {finished.name}\."):
        run_tiny(data, dict(tiny(), name="tinny"), "train@latest")
    with pytest.raises(LabError, match="there are no runs in this folder"):
        run_tiny(data / "elsewhere", tiny(), "train@latest")
    with pytest.raises(LabError, match=r"nowhere: no such run folder\."):
        run_tiny(data, tiny(), f"train@{data / 'nowhere'}")
    with pytest.raises(LabError, match=r"not a run of spec 'other': there is no other_t0_spec\.json"):
        run_tiny(data, dict(tiny(), name="other"), f"train@{finished}")
    assert not (data / "elsewhere").exists()


def test_threads_are_recorded_and_kept(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = interrupted(data, monkeypatch, tiny())
    run_tiny(data, tiny(), "train@latest", threads=2)
    assert "--threads: this run keeps the 1 it was started with" in capsys.readouterr().err
    assert read_saved(folder / "tiny_t0_s0_spec.json").meta.record["threads"] == 1


def test_a_dev_run_is_continued_with_its_checks_whatever_the_word(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = tiny(meta={"max_trial": 2})  # so that dev changes nothing else
    folder = interrupted(data, monkeypatch, spec, "dev")
    run_tiny(data, spec, "train@latest")
    assert tables(folder)["tiny_t0_s0_session_df_train.csv"]["grad_norm"].notna().all()


def test_a_trial_that_was_not_summed_up_is_when_it_is_continued(data: Path, finished: Path) -> None:
    scalar = finished / "tiny_t0_trial_metrics_scalar.json"
    expected = scalar.read_text()
    scalar.unlink()  # killed before the last file
    assert run_tiny(data, tiny(), "train@latest").trial is not None
    assert scalar.read_text() == expected
    scalar.write_text(json.dumps(json.loads(expected) | {"sessions_done": 0, "sessions_planned": 1}))
    assert run_tiny(data, tiny(), "train@latest").trial is not None
    assert scalar.read_text() == expected


def test_a_session_whose_metrics_are_of_fewer_frames_is_not_taken_for_finished(tmp_path: Path) -> None:
    folder = run_tiny(tmp_path, tiny(env={"max_frame": 120})).predir
    stale = {path: path.read_bytes() for path in (folder / "info").glob("*eval*")}
    run_tiny(tmp_path, tiny(), "train@latest")
    expected = tables(folder)
    for path, content in stale.items():  # killed between the last checkpoint and the metrics
        path.write_bytes(content)
    result = run_tiny(tmp_path, tiny(), "train@latest").trial
    assert result is not None
    assert result.metrics["scalar"]["frame"] == 300
    pd.testing.assert_frame_equal(
        tables(folder)["tiny_t0_s0_session_df_eval.csv"], expected["tiny_t0_s0_session_df_eval.csv"]
    )


def test_what_a_kill_left_half_written_is_cleared_away(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = interrupted(data, monkeypatch, tiny())
    half = folder / "model" / "tiny_t0_s0_ckpt-180.safetensors.tmp123"
    half.write_bytes(b"half")
    keep = folder / "notes.tmpl"
    keep.write_text("mine")
    run_tiny(data, tiny(), "train@latest")
    assert not half.exists()
    assert keep.exists()


def test_tables_and_events_hold_every_row_once_after_a_kill(data: Path) -> None:
    folder = run(tiny(), mode="train", options=RunOptions(data, checkpoint_every=0)).predir
    expected = tables(folder)
    for path in (folder / "model/tiny_t0_s0_ckpt-300.safetensors", *(folder / "info").glob("*_metrics_*")):
        path.unlink()  # as if killed after the last row and before its checkpoint
    assert run_tiny(data, tiny(), "train@latest").trial is not None
    for name, table in tables(folder).items():
        pd.testing.assert_frame_equal(table, expected[name], check_exact=True)
    events = EventAccumulator(str(folder / "log/tiny_t0_s0_tb")).Reload()
    assert [event.step for event in events.Scalars("loss")] == [60, 120, 180, 240, 300]


def test_events_of_a_start_without_a_checkpoint_are_dropped_by_the_next_one(data: Path) -> None:
    folder = run_tiny(data, tiny()).predir
    for path in (*(folder / "model").iterdir(), *(folder / "info").glob("*_metrics_*")):
        path.unlink()
    assert run_tiny(data, tiny(), "train@latest").trial is not None
    events = EventAccumulator(str(folder / "log/tiny_t0_s0_tb")).Reload()
    assert [event.step for event in events.Scalars("loss")] == [60, 120, 180, 240, 300]


# one at a time


def test_a_run_that_is_going_on_is_not_continued_by_another(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = interrupted(data, monkeypatch, tiny())
    before = contents(data)
    with alone(folder, folder / "model"), pytest.raises(LabError, match="another process is at work on this run"):
        run_tiny(data, tiny(), "train@latest")
    assert contents(data) == before
    assert run_tiny(data, tiny(), "train@latest").trial is not None


def test_sessions_of_a_killed_run_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "PATIENCE", 0.1)
    models = tmp_path / "model"
    models.mkdir()
    with writing(models), writing(models), pytest.raises(LabError, match="model: another process"):  # noqa: SIM117
        with alone(tmp_path, models):
            pass
    with alone(tmp_path, models), writing(models):
        pass


# modes


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("dev", ("dev", None)),
        ("train", ("train", None)),
        ("train@latest", ("train", "latest")),
        ("train@a@b", ("train", "a@b")),
        ("enjoy@data/x", ("enjoy", "data/x")),
    ],
)
def test_modes_are_read(text: str, parsed: tuple[str, str | None]) -> None:
    assert parse_mode(text) == parsed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trian", "mode: unknown mode 'trian'. Did you mean 'train'? Known: dev, train, search, train@latest"),
        ("", "mode: unknown mode ''."),
        ("train@", "names nothing after `@`"),
        ("enjoy", "`enjoy` needs a trained run"),
        ("search@", "names nothing after `@`"),
        ("TRAIN", "unknown mode 'TRAIN'. Did you mean 'train'?"),
    ],
)
def test_other_modes_are_refused(text: str, message: str) -> None:
    with pytest.raises(LabError) as error:
        parse_mode(text)
    assert message in str(error.value)


def test_dev_is_one_session_of_full_length(data: Path) -> None:
    run_tiny(data, tiny("Random", env={"max_frame": 60}, meta={"max_session": 4}), "dev")
    folder = only_run(data)
    assert [path.name for path in folder.glob("*_s*_spec.json")] == ["tiny_t0_s0_spec.json"]
    saved = read_saved(folder / "tiny_t0_spec.json")
    assert (saved.meta.max_session, saved.env.max_frame) == (1, 60)
