"""Where a session's time goes: parts that add up, a flame graph of the loop, and the same numbers as without."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, get_args

import pytest
from run_helpers import (  # noqa: F401
    NEVER,
    assert_equal,
    assert_same_results,
    files_of,
    no_sinks,
    read_table,
    run_tiny,
    session,
    state_of,
    tiny,
    tiny_spec,
)

from slm_lab.agent.plan import plan_agent
from slm_lab.experiment import profile
from slm_lab.experiment.paths import Paths
from slm_lab.experiment.profile import Part, Profile, ProfiledSession, Sampler, Stopwatch, folded
from slm_lab.experiment.session import Options, Stop
from slm_lab.experiment.worker import DoneMessage, LogMessage, Message, Task, run_session
from slm_lab.spec.schema import Spec


@pytest.fixture(autouse=True)
def _no_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slm_lab.experiment.session.session_graphs", lambda *_: None)
    monkeypatch.setattr("slm_lab.experiment.metric_files.trial_graphs", lambda *_: [])


def profiled(spec: Spec, folder: Path | None = None, every: float = NEVER) -> ProfiledSession:
    """The profiled twin of what `session` gives."""
    paths = None
    if folder is not None:
        paths = Paths(folder, spec.name).for_session(0)
        paths.make_folders()
    return ProfiledSession(spec, plan_agent(spec.agent, spec.env.num_envs, []), (3, 0, 0), paths, Options(every))


def told_by_ticks(one: ProfiledSession) -> ProfiledSession:
    """A session whose watch moves on by one second each time it is looked at."""
    ticks = count()
    one.watch.now = lambda: float(next(ticks))
    return one


def functions(frame: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(function, file) of every frame below one."""
    for child in frame["children"]:
        name, _, rest = child["identifier"].partition("\0")
        yield name, Path(rest.partition("\0")[0]).name
        yield from functions(child)


def frames_of(page: Path) -> dict[str, Any]:
    """The frame at the root of a flame graph."""
    (data,) = re.findall(r"const sessionData = (.*);\n", page.read_text())
    root: dict[str, Any] = json.loads(data)["frame_tree"]
    return root


def test_a_watch_gives_every_moment_to_one_part() -> None:
    times = iter([10.0, 11.0, 13.5, 14.0, 20.0])
    watch = Stopwatch(lambda: next(times))
    watch.turn("env")  # 10 to 11: rest
    watch.turn("act")  # 11 to 13.5: env
    watch.turn("env")  # 13.5 to 14: act
    watch.turn("rest")  # 14 to 20: env
    spent = {part: seconds for part, seconds in watch.seconds.items() if seconds}
    assert spent == {"rest": 1.0, "env": 2.5 + 6.0, "act": 0.5}
    assert sum(watch.seconds.values()) == 20.0 - 10.0


def test_a_watch_that_starts_again_has_forgotten_what_was_before() -> None:
    times = iter([0.0, 5.0, 7.0, 8.0])
    watch = Stopwatch(lambda: next(times))
    watch.turn("update")
    watch.start()
    watch.turn("env")
    assert {part: seconds for part, seconds in watch.seconds.items() if seconds} == {"rest": 1.0}


def test_a_table_tells_seconds_shares_and_microseconds_per_vector_step() -> None:
    lines = Profile({"env": 3.0, "update": 1.0}, 2000).table().splitlines()
    assert [line.split() for line in lines[2:]] == [
        ["env", "3.00", "75.0%", "1,500.0"],  # 3 s over 2000 steps
        ["update", "1.00", "25.0%", "500.0"],
        ["total", "4.00", "100.0%", "2,000.0"],
    ]
    assert "2,000 vector steps" in lines[0]


def test_seconds_go_to_the_part_that_is_at_work() -> None:
    spec = tiny_spec("DoubleDQN", env={"max_frame": 30}, meta={"log_frequency": 30})
    one = told_by_ticks(profiled(spec))
    one.train()
    assert (one.profile.steps, one.clock.opt_step) == (10, 2)  # three envs; updates each 6 frames from frame 20 on
    # between two looks at the watch lies a second
    assert one.profile.seconds == {
        "env": 10,
        "act": 10,
        "memory": 10 + 2 * 2,  # storing each step; drawing the batch of each update and setting its priorities
        "update": 2 * 2,  # before and after the priorities are set
        "logging": 1,
        "evaluation": 0,
        "checkpoint": 0,
        "rest": 3 * 10 + 2,  # between act, env and learning; before the row and after it
    }


def test_evaluations_and_checkpoints_are_parts_of_their_own(tmp_path: Path) -> None:
    spec = tiny_spec(
        "Random",
        env={"max_frame": 60, "max_t": 5},
        meta={"log_frequency": 30, "eval_frequency": 20, "rigorous_eval": 2},
    )
    one = told_by_ticks(profiled(spec, tmp_path, every=0))
    one.train()
    seconds = one.profile.seconds
    assert (seconds["logging"], seconds["checkpoint"], seconds["evaluation"]) == (2, 2, 3)  # 30, 60; 21, 42, 60
    assert seconds["update"] == 0


@pytest.mark.parametrize("algorithm", ["PPO", "DoubleDQN", "SIL"])
def test_a_profiled_session_is_the_same_session(algorithm: str, tmp_path: Path) -> None:
    spec = tiny_spec(algorithm, meta={"rigorous_eval": 2})
    plain, watched = session(spec, folder=tmp_path / "plain"), profiled(spec, tmp_path / "watched")
    for one in (plain, watched):
        one.run()
    assert_equal(state_of(watched), state_of(plain))
    tables = [read_table(files_of(one).session_table("train")) for one in (watched, plain)]
    assert tables[0].equals(tables[1])
    assert watched.profile.seconds["update"] > 0
    assert watched.profile.seconds["memory"] > 0


def test_parts_add_up_to_the_time_the_loop_took() -> None:
    one = profiled(tiny_spec())
    one.train()
    assert one.profile.rows()["total"]["seconds"] == pytest.approx(one.clock.wall_t, abs=0.05)


def test_a_second_sitting_is_profiled_by_itself() -> None:
    one = profiled(tiny_spec())
    one.train(until=120)
    assert one.profile.steps == 40
    one.train()
    assert one.profile.steps == 60  # of 100


def test_the_flame_graph_shows_the_training_loop_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile, "INTERVAL", 0.0001)
    one = profiled(tiny_spec(), tmp_path)
    one.run()
    root = frames_of(tmp_path / "graph" / "tiny_t0_s0_profile.html")
    assert root["identifier"].startswith("train\0")
    seen = set(functions(root))
    assert {("decide", "session.py"), ("advance", "session.py"), ("update", "ppo.py")} <= seen
    assert not {("result", "session.py"), ("_sum_up", "session.py"), ("make_env", "__init__.py")} & seen


def test_a_flame_graph_has_one_frame_for_each_way_down_to_a_function() -> None:
    at = "\0file.py\x001"
    records = [
        ([f"run{at}", f"b{at}\x01l7"], 1.0),
        ([f"run{at}", f"a{at}"], 2.0),
        ([f"run{at}", f"b{at}\x01l9"], 4.0),  # another line of the same function
    ]
    assert folded(records) == [([f"run{at}", f"a{at}"], 2.0), ([f"run{at}", f"b{at}\x01l7"], 5.0)]


def test_looks_end_after_a_while_and_the_parts_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "Sampler", lambda: Sampler(seconds=0.0))
    one = profiled(tiny_spec())
    one.train(until=60)  # the first row
    assert one.sampler is not None
    assert not one.sampler.profiler.is_running
    assert one.profile.steps == 20


def test_a_loop_that_fails_leaves_no_sampler_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    one = profiled(tiny_spec())
    lessons = one.agent.lessons

    def fail() -> None:
        raise OSError("disk full")

    monkeypatch.setattr(one.tracker, "row", lambda *_: fail())
    with pytest.raises(OSError, match="disk full"):
        one.train()
    assert one.sampler is not None
    assert not one.sampler.profiler.is_running
    assert one.agent.lessons is lessons


def test_a_profiled_run_scores_the_same_and_only_it_writes_a_profile(tmp_path: Path) -> None:
    plain = run_tiny(tmp_path / "plain", tiny()).predir
    watched = run_tiny(tmp_path / "watched", tiny(), mode="train", profile=True).predir
    assert_same_results(plain, watched)
    assert not list(plain.rglob("*profile*"))
    written = json.loads((watched / "info" / "tiny_t0_s0_profile.json").read_text())
    assert written["steps"] == 100
    assert list(written["parts"]) == [*get_args(Part), "total"]
    shares = [row["share"] for row in written["parts"].values()]
    assert sum(shares[:-1]) == pytest.approx(1)


def test_a_session_tells_whoever_started_it_where_its_time_went(tmp_path: Path) -> None:
    paths = Paths(tmp_path, "tiny").for_session(0)
    paths.make_folders()
    told = list[Message]()
    run_session(Task(tiny_spec(), paths, Options(NEVER, profile=True), 1, "INFO", False), told.append, Stop())
    *_, said, done = told
    assert isinstance(done, DoneMessage)
    assert isinstance(said, LogMessage)
    assert said.level == "INFO"
    assert said.text.startswith("where the time of 100 vector steps went\npart ")
    assert (tmp_path / "graph" / "tiny_t0_s0_profile.html").exists()
