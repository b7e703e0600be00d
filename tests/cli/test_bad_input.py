"""Bad input: one message with the place, what came, what is allowed and what is near; exit code 2; nothing written."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from run_helpers import no_sinks, tiny, write_spec  # noqa: F401

from slm_lab.cli.main import guarded, main
from slm_lab.lib.errors import LabError, RunError


def call(arguments: Sequence[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def without(data: dict[str, Any], path: str) -> dict[str, Any]:
    """A spec without one of its keys."""
    *parents, last = path.split(".")
    section = data
    for parent in parents:
        section = section[parent]
    del section[last]
    return data


SPECS: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown key": (
        tiny(algorithm={"gama": 0.9}),
        "agent.algorithm.gama: unknown key. Did you mean 'gamma'? Known: ",
    ),
    "an unknown key of a net": (
        tiny(net={"hidlayers": [4]}),
        "agent.net.hidlayers: unknown key. Did you mean 'hid_layers'?",
    ),
    "an unknown key of meta": (
        tiny(meta={"max_sesion": 2}),
        "meta.max_sesion: unknown key. Did you mean 'max_session'?",
    ),
    "an unknown key of env": (tiny(env={"num_env": 2}), "env.num_env: unknown key. Did you mean 'num_envs'?"),
    "an unknown section": ({**tiny(), "agnet": {}}, "agnet: unknown key. Did you mean 'agent'?"),
    "a wrong type": (
        tiny(algorithm={"gamma": "high"}),
        "agent.algorithm.gamma: got 'high' (str); allowed: a valid number",
    ),
    "a number out of range": (
        tiny(algorithm={"lam": 1.5}),
        "agent.algorithm.lam: got 1.5 (float); allowed: less than or equal to 1",
    ),
    "a boolean for a number": (
        tiny(env={"num_envs": True}),
        "env.num_envs: got True (bool); allowed: a number, not a boolean",
    ),
    "a list for a mapping": (tiny(net={"optim_spec": []}), "agent.net.optim_spec: got [] (list); allowed: "),
    "a missing key": (without(tiny(), "agent.algorithm.gamma"), "agent.algorithm.gamma: missing key (required)."),
    "a missing section": (without(tiny(), "env"), "env: missing key (required)."),
    "no algorithm": (without(tiny(), "agent.algorithm.name"), "agent.algorithm.name: unknown algorithm None. Known: "),
    "no memory": (without(tiny(), "agent.memory.name"), "agent.memory.name: unknown memory None. Known: "),
    "an unknown algorithm": (
        tiny(algorithm={"name": "PPOO"}),
        "agent.algorithm.name: unknown algorithm 'PPOO'. Did you mean 'PPO'? Known: ",
    ),
    "an unknown net": (
        tiny(net={"type": "MLPNett"}),
        "agent.net.type: unknown net 'MLPNett'. Did you mean 'MLPNet'? Known: ",
    ),
    "an unknown memory": (
        tiny(memory={"name": "OnPolicyRepla"}),
        "agent.memory.name: unknown memory 'OnPolicyRepla'. Did you mean 'OnPolicyReplay'? Known: ",
    ),
    "an unknown env": (
        tiny(env={"name": "CartPol-v1"}),
        "env.name: unknown env 'CartPol-v1'. Did you mean 'CartPole-v1'? Allowed: ",
    ),
    "an unknown module": (
        tiny(env={"name": "nowhere:Env"}),
        "env.name: cannot import 'nowhere': ModuleNotFoundError: No module named 'nowhere'.",
    ),
    "an unknown optimiser": (
        tiny(net={"optim_spec": {"name": "Adm"}}),
        "agent.net.optim_spec.name: unknown optimiser 'Adm'. Did you mean 'Adam'?",
    ),
    "an unknown activation": (tiny(net={"hid_layers_activation": "rellu"}), "Did you mean 'relu'?"),
    "an unknown argument of an env": (
        tiny("PPO", "LunarLander-v3", env={"gravty": -9.0}),
        "env.gravty: unknown key. Did you mean 'gravity'?",
    ),
    "a minibatch larger than the batch": (
        tiny(algorithm={"minibatch_size": 999}),
        "agent.algorithm.minibatch_size: 999 is larger than the batch: time_horizon * num_unrolls * num_envs = 48.",
    ),
    "a key of another algorithm": (
        tiny(algorithm={"training_start_step": 9}),
        "agent.algorithm.training_start_step: unknown key.",
    ),
    "an unfilled placeholder": (
        tiny(env={"max_frame": "${max_frame}"}),
        "env.max_frame: ${max_frame} is not filled; give -s max_frame=...",
    ),
    "several agents": (
        {**tiny(), "agent": [{}, {}]},
        "agent: multi-agent not supported: expected one mapping, got a list of 2.",
    ),
    "a spec that is a list": ([], "expected a mapping with agent, env and meta, got a list"),  # type: ignore[dict-item]
}


@pytest.mark.parametrize("case", SPECS)
def test_a_spec_that_cannot_run_is_refused_with_one_message(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, message = SPECS[case]
    (tmp_path / "bad.json").write_text(json.dumps({"tiny": spec}))
    monkeypatch.chdir(tmp_path)
    assert call(["bad.json", "tiny", "train"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert message in shown.err
    assert "Traceback" not in shown.err
    assert [path.name for path in tmp_path.iterdir()] == ["bad.json"]


def test_a_replay_memory_for_an_on_policy_algorithm_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By name where there is no such memory yet, else because it does not fit."""
    path = write_spec(tmp_path, tiny(memory={"name": "Replay"}))
    monkeypatch.chdir(tmp_path)
    assert call([str(path), "tiny"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: ")
    assert "agent.memory.name: " in shown
    assert "'Replay'" in shown
    assert "OnPolicyBatchReplay" in shown
    assert not Path("data").exists()


def test_all_mistakes_of_a_section_are_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_spec(tmp_path, tiny(algorithm={"gama": 0.9, "lam": 2, "training_epoch": "few"}))
    assert call([str(path), "tiny", "train", "--data-dir", str(tmp_path / "data")]) == 2
    shown = capsys.readouterr().err
    assert all(f"agent.algorithm.{key}: " in shown for key in ("gama", "lam", "training_epoch"))


CALLS: dict[str, tuple[list[str], str]] = {
    "an unknown mode": (
        ["good.json", "tiny", "trian"],
        "mode: unknown mode 'trian'. Did you mean 'train'? Known: dev, train",
    ),
    "a search of nothing": (["good.json", "tiny", "search"], "search: this spec has no search space"),
    "enjoy of nothing": (["good.json", "tiny", "enjoy"], "mode: `enjoy` needs a trained run"),
    "an unknown spec name": (
        ["good.json", "tinny", "train"],
        "no spec 'tinny' to run. Did you mean 'tiny'? Known: tiny.",
    ),
    "a helper's name": (["good.json", "_why", "train"], "no spec '_why' to run. Known: tiny."),
    "an unknown file": (
        ["god.json", "tiny", "train"],
        "god.json: no such spec file, here or among the packaged specs. Near: good.json",
    ),
    "a folder for a file": (["folder", "tiny", "train"], "folder: a folder; give one spec file. In it: none."),
    "malformed JSON": (["broken.json", "tiny", "train"], "broken.json: line 3, column 3: "),
    "malformed YAML": (["broken.yaml", "tiny", "train"], "broken.yaml: line 3, column "),
    "JSON with a key twice": (["twice.json", "tiny", "train"], "twice.json: duplicate key 'tiny'"),
    "a file that is no text": (["bytes.json", "tiny", "train"], "bytes.json: not UTF-8 text"),
    "an unused setting": (
        ["good.json", "tiny", "train", "-s", "gama=1"],
        "-s gama=1: no placeholder and no key 'gama' in this spec. Did you mean 'gamma'?",
    ),
    "an ambiguous setting": (
        ["good.json", "tiny", "train", "-s", "name=x"],
        "-s name=x: 'name' occurs more than once; give the path: ",
    ),
    "a setting without a value": (["good.json", "tiny", "train", "-s", "gamma"], "-s gamma: expected key=value"),
    "a setting twice": (
        ["good.json", "tiny", "train", "-s", "gamma=1", "-s", "gamma=0.5"],
        "gamma is already set by -s gamma=1",
    ),
    "a setting of a wrong type": (
        ["good.json", "tiny", "train", "-s", "num_envs=many"],
        "env.num_envs: got 'many' (str)",
    ),
    "a setting on a path that is not there": (
        ["good.json", "tiny", "train", "-s", "agent.nett.x=1"],
        "agent: no key 'nett'. Did you mean 'net'?",
    ),
    "a data folder below a file": (
        ["good.json", "tiny", "train", "--data-dir", "good.json/data"],
        "good.json/data: cannot create this folder: Not a directory",
    ),
    "a data folder that is a file": (
        ["good.json", "tiny", "train", "--data-dir", "good.json"],
        "good.json: cannot create this folder: File exists",
    ),
    "a wrong log level": (
        ["good.json", "tiny", "train", "--log-level", "LOUD"],
        "log level: unknown level 'LOUD'. Known: TRACE, DEBUG, INFO",
    ),
    "no run to continue": (
        ["good.json", "tiny", "train@latest"],
        "data: no run of spec 'tiny'; there are no runs in this folder.",
    ),
    "no such run": (["good.json", "tiny", "train@data/x"], "data/x: no such run folder."),
    "no trained run": (
        ["enjoy", "folder"],
        "folder: no trained run here: expected a run folder or the spec file in one.",
    ),
    "a spec file that is no run": (["enjoy", "good.json"], "good.json: not the spec of a run."),
    "nothing after @": (["good.json", "tiny", "train@"], "mode: 'train@' names nothing after `@`"),
    "an unknown component": (["spec", "keys", "PPPO"], "spec keys: unknown component 'PPPO'. Did you mean 'PPO'?"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with good and bad files."""
    (tmp_path / "good.json").write_text(json.dumps({"_why": {}, "tiny": tiny()}))
    (tmp_path / "broken.json").write_text('{\n  "tiny": {"a": 1\n  "b": 2}\n}')
    (tmp_path / "broken.yaml").write_text("tiny:\n  agent: [1,\n  env: }\n")
    (tmp_path / "twice.json").write_text('{"tiny": {}, "tiny": {}}')
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("case", CALLS)
def test_a_call_that_cannot_be_obeyed_is_refused_with_one_message(
    case: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, message = CALLS[case]
    before = sorted(folder.rglob("*"))
    assert call(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert message in shown.err
    assert "Traceback" not in shown.err
    assert sorted(folder.rglob("*")) == before


USAGE: dict[str, tuple[list[str], str]] = {
    "an unknown option": (["run", "--jbs", "2"], "No such option: --jbs"),
    "too many words": (["a.json", "tiny", "train", "more"], "unexpected extra argument"),
    "no number": (["a.json", "tiny", "train", "--jobs", "two"], "--jobs"),
    "a number too small": (["a.json", "tiny", "train", "--jobs", "0"], "greater than or equal to 1"),
    "a missing argument": (["enjoy"], "Missing argument"),
    "an unknown command of spec": (["spec", "chek"], "No such command 'chek'"),
}


@pytest.mark.parametrize("case", USAGE)
def test_wrong_usage_is_told_without_a_traceback(case: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, message = USAGE[case]
    assert call(arguments) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert "Usage: slm-lab" in shown.err
    assert "Traceback" not in shown.err
    assert not (folder / "data").exists()


@pytest.mark.parametrize("place", ["before", "after"])
def test_debug_adds_the_traceback(place: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["good.json", "tinny", "train"]
    assert call(["--debug", *words] if place == "before" else [*words, "--debug"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("Traceback (most recent call last):")
    assert "error: " in shown.splitlines()[-1]


def test_exit_codes_tell_bad_input_from_a_failed_run(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(error: BaseException) -> Any:
        def command() -> None:
            raise error

        return command

    assert guarded(lambda: None, debug=False) == 0
    assert guarded(fail(LabError("bad")), debug=False) == 2
    assert guarded(fail(RunError("failed")), debug=False) == 1
    assert guarded(fail(KeyboardInterrupt()), debug=False) == 130
    assert guarded(fail(SystemExit(143)), debug=False) == 143
    assert guarded(fail(SystemExit()), debug=False) == 0
    assert capsys.readouterr().err == "error: bad\nerror: failed\n"
    with pytest.raises(ZeroDivisionError):  # a mistake of ours keeps its traceback
        guarded(fail(ZeroDivisionError()), debug=False)


def test_the_installed_command_does_the_same(folder: Path) -> None:
    script = shutil.which("slm-lab", path=str(Path(sys.executable).parent))
    assert script
    done = subprocess.run([script, "good.json", "tinny", "train"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stderr == "error: good.json: no spec 'tinny' to run. Did you mean 'tiny'? Known: tiny.\n"
    assert done.stdout == ""
    assert not (folder / "data").exists()
