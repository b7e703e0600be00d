"""Where a session's time goes: seconds by part of the training loop, and a flame graph of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

from torch import Tensor

from slm_lab.agent import Seen
from slm_lab.agent.algorithm.self_imitation import Past, TwoMemories
from slm_lab.experiment.session import Session
from slm_lab.experiment.track import Tracker
from slm_lab.lib.io import write_json, write_text
from slm_lab.types import Act, Batch, Lessons, Metrics, Step

Part = Literal["env", "act", "memory", "update", "logging", "evaluation", "checkpoint", "rest"]
INTERVAL = 0.005  # seconds between two looks at what is being run
SAMPLED = 300.0  # seconds that a flame graph covers: each look is kept until the end


class Stopwatch:
    """Seconds by part; every moment since the start belongs to exactly one of them."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self.now = now
        self.start()

    def start(self) -> None:
        """From nothing."""
        self.seconds: dict[str, float] = dict.fromkeys(get_args(Part), 0.0)
        self.part: Part = "rest"
        self.since = self.now()

    def turn(self, part: Part) -> None:
        """What happens from here on is `part`."""
        now = self.now()
        self.seconds[self.part] += now - self.since
        self.part, self.since = part, now


@dataclass(frozen=True)
class Profile:
    """Seconds of a training loop by part, which add up to all of it, and the vector steps it made."""

    seconds: Mapping[str, float]
    steps: int

    def rows(self) -> dict[str, dict[str, float]]:
        """Seconds, share of the whole and microseconds per vector step, by part and in total."""
        total = sum(self.seconds.values())
        seconds = {**self.seconds, "total": total}
        return {
            part: {"seconds": spent, "share": spent / total, "us_per_step": 1e6 * spent / max(self.steps, 1)}
            for part, spent in seconds.items()
        }

    def table(self) -> str:
        """The rows as text."""
        lines = [f"where the time of {self.steps:,} vector steps went"]
        lines.append(f"{'part':<10} {'seconds':>10} {'share':>8} {'us per step':>12}")
        for part, row in self.rows().items():
            lines.append(f"{part:<10} {row['seconds']:>10.2f} {row['share']:>8.1%} {row['us_per_step']:>12,.1f}")
        return "\n".join(lines)


class TimedLessons:
    """Stands in for what an algorithm learns from: an update is what follows a batch."""

    def __init__(self, lessons: Lessons, watch: Stopwatch) -> None:
        self.lessons, self.watch = lessons, watch

    def sample(self) -> Batch:
        self.watch.turn("memory")
        batch = self.lessons.sample()
        self.watch.turn("update")
        return batch

    def feedback(self, batch: Batch, error: Tensor) -> None:
        self.watch.turn("memory")
        self.lessons.feedback(batch, error)
        self.watch.turn("update")


class TimedPast(TimedLessons):
    """Stands in for the finished episodes of self-imitation."""

    def __init__(self, past: Past, watch: Stopwatch) -> None:
        super().__init__(past, watch)
        self.past = past

    def extend(self, rows: Batch) -> None:
        self.watch.turn("memory")
        self.past.extend(rows)
        self.watch.turn("update")

    def __len__(self) -> int:
        return len(self.past)


class TimedTwoMemories(TimedLessons):
    """Stands in for the two memories of self-imitation."""

    def __init__(self, both: TwoMemories, watch: Stopwatch) -> None:
        super().__init__(both, watch)
        self.both, self.replay = both, TimedPast(both.replay, watch)

    def finished(self) -> Batch | None:
        self.watch.turn("memory")
        episodes = self.both.finished()
        self.watch.turn("update")
        return episodes


class Sampler:
    """Looks at which functions are at work, again and again, but not for ever."""

    def __init__(self, seconds: float = SAMPLED) -> None:
        from pyinstrument import Profiler  # late: few runs are profiled

        self.profiler = Profiler(INTERVAL, async_mode="disabled")
        self.profiler.start()
        self.ends = time.monotonic() + seconds

    def stop(self) -> None:
        if self.profiler.is_running:
            self.profiler.stop()

    def stop_in_time(self) -> None:
        if time.monotonic() >= self.ends:
            self.stop()

    def flame_graph(self) -> str:
        """A web page; its timeline is a flame graph."""
        seen = self.profiler.last_session
        assert seen is not None
        seen.frame_records = folded(seen.frame_records)
        return self.profiler.output_html()


def folded(records: Iterable[tuple[list[str], float]]) -> list[tuple[list[str], float]]:
    """Calls and their seconds by function instead of by time: one record for each way down to a function."""
    from pyinstrument.frame_info import frame_info_get_identifier

    found = dict[tuple[str, ...], tuple[list[str], float]]()
    for stack, seconds in records:
        way = tuple(frame_info_get_identifier(call) for call in stack)  # without the line it was at
        first, before = found.get(way, (stack, 0.0))
        found[way] = first, before + seconds
    return [found[way] for way in sorted(found)]


class ProfiledSession(Session):
    """A session that knows what it spends its time on; its numbers are those of any other."""

    profile: Profile  # of the last call of train
    sampler: Sampler | None = None

    @cached_property
    def watch(self) -> Stopwatch:
        return Stopwatch()

    def train(self, until: int | None = None) -> None:
        lessons, before = self.agent.lessons, self.clock.t
        self.agent.lessons = timed(lessons, self.watch)
        sampler = self.sampler = Sampler()
        self.watch.start()
        try:
            super().train(until)
        finally:
            self.watch.turn("rest")
            sampler.stop()
            self.agent.lessons = lessons
        self.profile = Profile(dict(self.watch.seconds), self.clock.t - before)
        if self.paths is not None:
            write_json(self.paths.session_profile, {"steps": self.profile.steps, "parts": self.profile.rows()})
            write_text(self.paths.flame_graph, sampler.flame_graph())

    def decide(self) -> tuple[Seen, Act]:
        self.watch.turn("act")
        decided = super().decide()
        self.watch.turn("rest")
        return decided

    def advance(self, act: Act) -> Step:
        self.watch.turn("env")
        step = super().advance(act)
        self.watch.turn("rest")
        return step

    def learn(self, seen: Seen, act: Act, step: Step) -> Metrics | None:
        self.watch.turn("memory")  # until there is a batch to learn from
        metrics = super().learn(seen, act, step)
        self.watch.turn("rest")
        return metrics

    def log(self) -> None:
        self.watch.turn("logging")
        super().log()
        if self.sampler is not None:
            self.sampler.stop_in_time()
        self.watch.turn("rest")

    def evaluate(self, tracker: Tracker) -> None:
        self.watch.turn("evaluation")
        super().evaluate(tracker)
        self.watch.turn("rest")

    def save(self) -> None:
        self.watch.turn("checkpoint")
        super().save()
        self.watch.turn("rest")


def timed(lessons: Lessons | None, watch: Stopwatch) -> Lessons | None:
    """A stand-in that tells the watch of every batch."""
    if isinstance(lessons, TwoMemories):
        return TimedTwoMemories(lessons, watch)
    return None if lessons is None else TimedLessons(lessons, watch)
