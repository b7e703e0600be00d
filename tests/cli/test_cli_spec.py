"""`slm-lab spec`: check, show and explain specs without running them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from run_helpers import assert_same_results, no_sinks, run_tiny, tiny, write_spec  # noqa: F401
from spec_files import BULLET, FILES, PACKAGED, sets_for

from slm_lab.cli.main import main
from slm_lab.experiment.check import check
from slm_lab.experiment.explain import components
from slm_lab.spec.load import load, spec_names


def call(arguments: Sequence[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_check_names_every_spec_of_every_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = write_spec(tmp_path, tiny(), "first"), write_spec(tmp_path, tiny("Random"), "second")
    assert call(["spec", "check", str(first), str(second)]) == 0
    assert capsys.readouterr().out == f"{first} first: ok\n{second} second: ok\n"


def test_check_goes_on_after_an_error_and_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mixed.json"
    specs = {"bad": tiny(algorithm={"gama": 1}), "good": tiny(), "worse": tiny(env={"num_envs": 0})}
    path.write_text(json.dumps(specs))
    assert call(["spec", "check", str(path)]) == 2
    shown = capsys.readouterr()
    assert shown.out == f"{path} good: ok\n"
    assert f"{path} bad: error\n  " in shown.err
    assert "agent.algorithm.gama: unknown key. Did you mean 'gamma'?" in shown.err
    assert "env.num_envs: got 0 (int); allowed: greater than or equal to 1" in shown.err
    assert shown.err.endswith("error: 2 specs with errors.\n")


def test_check_does_not_pass_over_files_that_hold_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, empty, broken = (tmp_path / f"{name}.json" for name in ("good", "empty", "broken"))
    write_spec(tmp_path, tiny(), "good")
    empty.write_text('{"_why": {}}')
    broken.write_text('{"a": \n}')
    assert call(["spec", "check", str(broken), str(empty), str(tmp_path / "none.json"), str(good)]) == 2
    shown = capsys.readouterr()
    assert shown.out == f"{good} good: ok\n"
    assert f"{empty}: error\n  it holds no spec: no entry with an `agent`.\n" in shown.err
    assert f"{broken}: error\n  {broken}: line 2, column 1" in shown.err
    assert shown.err.endswith("error: 3 specs with errors.\n")


def test_check_tells_what_is_odd_but_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tiny(net={"update_type": "polyak"}, meta={"log_frequency": 200, "num_gpus": 1})
    assert call(["spec", "check", str(write_spec(tmp_path, spec))]) == 0
    shown = capsys.readouterr().out
    assert "meta.log_frequency: 200 leaves 1 rows in the whole run." in shown
    assert "agent.net.update_type: there is no target net in PPO; ignored." in shown
    assert "meta.num_gpus: nothing reads it; ignored." in shown


def test_check_fills_placeholders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_spec(tmp_path, tiny(env={"name": "${env}"}))
    assert call(["spec", "check", str(path)]) == 2
    assert "env.name: ${env} is not filled; give -s env=..." in capsys.readouterr().err
    assert call(["spec", "check", str(path), "-s", "env=Acrobot-v1"]) == 0


@pytest.mark.parametrize("path", PACKAGED, ids=lambda path: path.stem)
def test_every_packaged_spec_passes(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sets = [part for text in sets_for(path, spec_names(path)[0]) for part in ("-s", text)]
    assert call(["spec", "check", str(path), *sets]) == 0, capsys.readouterr().err


@pytest.mark.skipif(not FILES, reason="the public specs are not here")
def test_public_specs_pass() -> None:
    for path in (path for path in FILES if path != BULLET):
        for name in spec_names(path):
            check(load(path, name, sets_for(path, name)).spec, [])


def test_show_prints_a_spec_file_that_runs_with_the_same_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slm_lab.experiment.session.session_graphs", lambda *_: None)
    monkeypatch.setattr("slm_lab.experiment.metric_files.trial_graphs", lambda *_: [])
    path = write_spec(tmp_path, tiny(), "tiny")
    assert call(["spec", "show", str(path), "tiny", "-s", "gamma=0.5"]) == 0
    shown = capsys.readouterr()
    (tmp_path / "shown.json").write_text(shown.out)
    full = json.loads(shown.out)["tiny"]
    assert full["agent"]["algorithm"]["gamma"] == 0.5
    assert full["agent"]["algorithm"]["clip_vloss"] is False  # a default
    assert "agent.algorithm.gamma: 0.97 -> 0.5 (-s gamma=0.5)" in shown.err
    for spec, sets, where in (
        (path, ["-s", "gamma=0.5"], "a"),
        (tmp_path / "shown.json", [], "b"),
    ):
        assert call(["run", str(spec), "tiny", "train", *sets, "--data-dir", str(tmp_path / where)]) == 0
    (ours,), (theirs,) = (tmp_path / "a").iterdir(), (tmp_path / "b").iterdir()
    assert_same_results(ours, theirs)


def test_show_of_an_unknown_name_lists_the_known_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_spec(tmp_path, tiny(), "tiny")
    assert call(["spec", "show", str(path), "tinny"]) == 2
    assert capsys.readouterr().err == (f"error: {path}: no spec 'tinny' to run. Did you mean 'tiny'? Known: tiny.\n")


def test_keys_of_a_component_are_listed_with_type_default_and_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["spec", "keys", "PPO"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("PPO: ")
    keys = [line.split()[0] for line in lines[1:] if line.strip()]
    assert {"gamma", "lam", "time_horizon", "minibatch_size"} <= set(keys)
    (gamma,) = [line for line in lines if line.split()[:1] == ["gamma"]]
    assert all(word in gamma for word in ("float", "required", "discount"))


def test_keys_without_a_name_lists_every_component(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["spec", "keys"]) == 0
    shown = capsys.readouterr().out
    for name in components():
        assert f"\n{name}: " in f"\n{shown}"


def test_keys_of_an_unknown_component_name_the_near_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["spec", "keys", "ppo"]) == 2
    assert capsys.readouterr().err.startswith("error: spec keys: unknown component 'ppo'. Did you mean 'PPO'? Known: ")
