"""How a session computes: rules that look at spec and cores alone, and real compiled runs that repeat and resume."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from run_helpers import EPISODES, assert_equal, run_tiny, session, state_of, tiny, tiny_spec

from slm_lab.experiment import computing, control
from slm_lab.experiment.check import preflight
from slm_lab.experiment.computing import WORTH, Computing, choose_computing, compiler_for, why_not
from slm_lab.experiment.control import RunOptions, prepare, read_saved
from slm_lab.experiment.paths import Paths
from slm_lab.experiment.session import Session
from slm_lab.lib.errors import SpecError
from slm_lab.spec.load import Loaded
from slm_lab.spec.schema import Spec

ADAM = {"optim_spec": {"name": "Adam", "lr": 1e-3}}


def chosen(spec: Spec, wanted: Any = "auto", threads: int | None = None, jobs: int = 1) -> Computing:
    flight = preflight(spec, [], [])
    return choose_computing(spec, flight.plan, flight.agent, wanted, threads, jobs)


def reason(spec: Spec) -> str | None:
    flight = preflight(spec, [], [])
    return why_not(spec, flight.plan, flight.agent)


def frames_for(steps: int) -> int:
    """Frames in which four envs of `tiny` PPO take so many gradient steps: 2 epochs of 4 minibatches each 64 frames."""
    return steps // 8 * 64


def test_auto_compiles_from_so_many_planned_steps_of_all_sessions_on() -> None:
    one = {"num_envs": 4, "max_frame": frames_for(WORTH)}
    assert chosen(tiny_spec("PPO", env=one, meta={"max_session": 1})).compiled
    less = {**one, "max_frame": frames_for(WORTH) - 64}
    found = chosen(tiny_spec("PPO", env=less, meta={"max_session": 1}))
    assert not found.compiled
    assert "39,992 gradient steps" in found.said
    assert chosen(tiny_spec("PPO", env=less, meta={"max_session": 2})).compiled


@pytest.mark.parametrize(
    ("name", "sections", "words"),
    [
        ("Random", {}, "nothing to compile"),
        ("Reinforce", {}, "whole episodes"),
        ("ActorCritic", {"memory": EPISODES}, "whole episodes"),
        ("DQN", {"net": {"type": "RecurrentNet", "rnn_hidden_size": 8, "seq_len": 4}}, "recurrent"),
        ("PPO", {"meta": {"distributed": "shared", "max_session": 2}}, "workers"),
        ("PPO", {"net": {"optim_spec": {"name": "RAdam", "lr": 1e-3}}}, "RAdam"),
        ("PPO", {"net": {"optim_spec": {"name": "Adam", "amsgrad": True}}}, "Adam"),
    ],
)
def test_what_cannot_be_compiled_says_why(name: str, sections: Mapping[str, Any], words: str) -> None:
    spec = tiny_spec(name, **sections)
    said = reason(spec)
    assert said is not None
    assert words in said
    found = chosen(spec)
    assert not found.compiled
    assert words in found.said
    with pytest.raises(SpecError, match=r"meta\.compile: true cannot be: .*"):
        chosen(spec, wanted=True)


def test_without_a_compiler_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = tiny_spec("PPO")
    assert reason(spec) is None
    monkeypatch.setattr(computing, "compiler_exists", lambda: False)
    assert reason(spec) == "there is no C++ compiler"


def test_conv_nets_are_compiled_only_where_that_is_asked_for() -> None:
    images = {"type": "ConvNet", "conv_hid_layers": [[4, 8, 4]], "fc_hid_layers": [8]}
    spec = tiny_spec("PPO", env={"name": "ALE/Pong-v5", "max_frame": 10**7}, net=images)
    assert not chosen(spec).compiled
    assert "convolutions" in chosen(spec).said
    assert chosen(spec, wanted=True).compiled


def test_small_nets_take_one_thread_and_wide_ones_the_cores_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(computing, "cores", lambda: 6)
    small, wide = tiny_spec("PPO"), tiny_spec("PPO", net={"type": "MLPNet", "hid_layers": [512, 512]})
    assert [chosen(spec, jobs=2).threads for spec in (small, wide)] == [1, 3]
    assert [chosen(spec, threads=4, jobs=2).threads for spec in (small, wide)] == [4, 4]


def test_how_many_sessions_run_at_once_changes_no_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (computing, control):
        monkeypatch.setattr(module, "cores", lambda: 6)
    wide = tiny_spec("PPO", meta={"max_session": 2}, net={"type": "MLPNet", "hid_layers": [512, 512]})
    prepared = [prepare(Loaded(wide, [], []), "train", RunOptions(tmp_path, jobs)) for jobs in (None, 1, 2)]
    assert [run.spec.meta.record["threads"] for run in prepared] == [3, 3, 3]  # 6 cores for 2 sessions


def test_the_choice_is_recorded_and_kept(tmp_path: Path) -> None:
    folder = run_tiny(tmp_path, tiny(), compile=False).predir
    assert read_saved(Paths(folder, "tiny").trial_spec).meta.record["compiled"] is False


def test_another_agent_env_or_code_has_other_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, other = tiny_spec("PPO"), tiny_spec("PPO", net=ADAM)
    spaces = session(spec).env.spaces
    key = compiler_for(spec, spaces, tmp_path).key
    assert compiler_for(spec, spaces, tmp_path).key == key
    assert compiler_for(other, spaces, tmp_path).key != key
    assert compiler_for(spec, replace(spaces, num_envs=9), tmp_path).key != key
    monkeypatch.setattr(computing, "code_hash", lambda: "other")
    assert compiler_for(spec, spaces, tmp_path).key != key


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("libraries")


def compiled_session(folder: Path, libraries: Path) -> Session:
    """DQN: two functions, one for acting and one for learning."""
    return session(tiny_spec("DQN", meta={"record": {"compiled": True}}), folder=folder, libraries=libraries)


def test_a_compiled_session_repeats_and_resumes_bit_for_bit(tmp_path: Path, libraries: Path) -> None:
    whole, again, halves = (compiled_session(tmp_path / name, libraries) for name in ("whole", "again", "halves"))
    whole.run()
    made = {path.name: path.stat().st_ctime for path in libraries.glob("*.pt2")}
    assert len(made) == 2
    again.run()
    assert {path.name: path.stat().st_ctime for path in libraries.glob("*.pt2")}.keys() == made.keys()
    assert_equal(state_of(whole), state_of(again))
    halves.run(until=whole.clock.frame // 2)
    rest = compiled_session(tmp_path / "halves", libraries)
    assert rest.resume()
    rest.run()
    assert_equal(state_of(whole), state_of(rest))
