"""A session: one agent, one vector env, one seed; the one training loop."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from loguru import logger

from slm_lab.agent import Seen, make_agent
from slm_lab.agent.algorithm.base import Key
from slm_lab.agent.plan import AgentPlan
from slm_lab.env import make_env
from slm_lab.env.window import Window
from slm_lab.experiment import analysis, checkpoint
from slm_lab.experiment.chunks import ChunkStore
from slm_lab.experiment.computing import LIBRARIES, compiler_for
from slm_lab.experiment.evaluate import evaluate
from slm_lab.experiment.health import Health, what_is_not_finite
from slm_lab.experiment.hogwild import Member, Team
from slm_lab.experiment.metric_files import write_session
from slm_lab.experiment.paths import Kind, Paths
from slm_lab.experiment.plot import session_graphs
from slm_lab.experiment.tensorboard import Events
from slm_lab.experiment.track import Row, Tracker
from slm_lab.lib.errors import NotFiniteError, RunError
from slm_lab.spec.random_baseline import baseline
from slm_lab.spec.schema import Spec
from slm_lab.types import Act, Clock, Metrics, State, Stateful, Step


@dataclass(frozen=True)
class Options:
    """How a session is run; none of it changes its numbers."""

    checkpoint_every: float = 30.0  # seconds between checkpoints, at log rows
    checks: bool = False  # watch gradients and parameters after each update
    render: bool = False
    env_threads: int = 1  # that step the envs, where these can use more than one
    libraries: Path = LIBRARIES  # where compiled functions are kept
    last_episodes: int = 0  # of the policy it ends with, by its most likely actions
    profile: bool = False  # say where the time goes


@dataclass(frozen=True)
class SessionResult:
    """What a session came to: its place, and its metrics where it is finished."""

    index: int
    frame: int
    finished: bool
    wall_t: float
    best: float
    metrics: analysis.SessionMetrics | None


class Stop:
    """A request to end between two steps: made by a signal, or when the parent process is gone."""

    reason = ""

    def __call__(self, reason: str) -> None:
        self.reason = self.reason or reason


def _silent(row: Row) -> None:
    """Report to nobody."""


class Session:
    """Steps env and agent until the frames are spent, logs rows, writes checkpoints."""

    def __init__(
        self,
        spec: Spec,
        plan: AgentPlan,
        key: Key,
        paths: Paths | None = None,  # None writes nothing
        options: Options | None = None,
        report: Callable[[Row], None] = _silent,
        stop: Stop | None = None,
    ) -> None:
        self.spec, self.plan, self.key, self.paths = spec, plan, key, paths
        self.options, self.report, self.stop = options or Options(), report, stop or Stop()
        window = Window(spec.name, paced=False) if self.options.render else None
        self.env = make_env(spec.env, plan.gamma, key, watch=window, threads=self.options.env_threads)
        self.agent = make_agent(plan, spec.env, self.env.spaces, key)
        if spec.meta.record.get("compiled"):
            self.agent.algorithm.compile(compiler_for(spec, self.env.spaces, self.options.libraries))
        self.member: Member | None = None  # the agent, where it trains with those of other sessions
        self.clock = Clock(spec.session_frames)
        columns = (*plan.algorithm.logs, *(("grad_norm",) if self.options.checks else ()))
        self.tracker = Tracker(paths.session_table("train") if paths else None, columns)
        self.eval_tracker = Tracker(paths.session_table("eval") if paths else None) if spec.meta.rigorous_eval else None
        self.health = Health(self.agent) if self.options.checks else None
        self.store = ChunkStore(paths) if paths else None  # of what a memory holds
        self.best_state: State | None = None  # the best policy, until it is on disk
        self.saved_at = time.monotonic()
        self.events: Events | None = None

    def join(self, team: Team, fresh: bool) -> None:
        """Train with other sessions from here on; `fresh` where this one has not trained before."""
        self.member = Member(self.agent, team, fresh)

    def parts(self) -> dict[str, Stateful]:
        """Everything that changes while training."""
        parts: dict[str, Stateful] = {
            "clock": self.clock,
            "env": self.env,
            "agent": self.member or self.agent,
            "tracker": self.tracker,
        }
        return parts if self.eval_tracker is None else {**parts, "eval_tracker": self.eval_tracker}

    def step(self) -> None:
        """One vector step, and the update it may complete."""
        seen, act = self.decide()
        step = self.advance(act)
        self.clock.tick(self.env.spaces.num_envs)
        if step.returns:
            self.clock.epi += len(step.returns)
            self.tracker.add(step.returns)
        metrics = self.learn(seen, act, step)
        if metrics is not None:
            self.tracker.latest = metrics
            self.clock.opt_step += int(metrics["opt_steps"])
            self._watch(metrics, step)

    def decide(self) -> tuple[Seen, Act]:
        """What the agent sees now, and what it does about it."""
        seen = self.agent.see(self.env.obs, self.env.action_mask)
        return seen, self.agent.act(seen, self._schedule_frame)

    def advance(self, act: Act) -> Step:
        """Let the envs take the actions."""
        try:
            return self.env.step(act.env_action)
        except RunError as error:
            raise RunError(f"after frame {self.clock.frame}: {error}") from error

    def learn(self, seen: Seen, act: Act, step: Step) -> Metrics | None:
        """Give a step to the agent; what the update it may complete reports."""
        try:
            return self.agent.learn(seen, act, step, self._schedule_frame)
        except NotFiniteError as error:
            bad = what_is_not_finite(self.agent, step)
            raise RunError(f"frame {self.clock.frame}: {error}; not finite: {bad}") from error
        except RunError as error:
            raise RunError(f"frame {self.clock.frame}: {error}") from error

    @property
    def _schedule_frame(self) -> int:
        """Schedules run over the frames of all workers."""
        return self.clock.frame * self.spec.workers

    def _watch(self, metrics: Metrics, step: Step) -> None:
        if self.health is not None:
            self.health.check()
        if math.isnan(metrics["loss"]) and metrics["opt_steps"]:
            bad = what_is_not_finite(self.agent, step)
            logger.warning(f"frame {self.clock.frame}: an update was skipped; not finite: {bad}")

    def run(self, until: int | None = None) -> SessionResult:
        """Train to `until`, to the end of the budget, or to a request to stop; then save and sum up."""
        self.train(until)
        return self.result()

    def train(self, until: int | None = None) -> None:
        """The training loop."""
        last = min(until or self.clock.max_frame, self.clock.max_frame)
        began = time.monotonic() - self.clock.wall_t
        while self.clock.frame < last and not self.stop.reason:
            self.step()
            due = self._due(self.spec.meta.log_frequency)
            if due or (self.eval_tracker and self._due(self.spec.meta.eval_frequency)):
                self.clock.wall_t = time.monotonic() - began
                self._checkpoint(due)
        self.clock.wall_t = time.monotonic() - began

    def _due(self, every: int) -> bool:
        """Whether this step crossed a multiple of `every` frames."""
        return self.clock.frame % every < self.env.spaces.num_envs

    def _checkpoint(self, log: bool) -> None:
        """A row, an evaluation where due, now and then a file: in this order, so that a resumed run repeats none."""
        if log:
            self.log()
        if self.eval_tracker and self._due(self.spec.meta.eval_frequency):
            self.evaluate(self.eval_tracker)
        if log and time.monotonic() - self.saved_at >= self.options.checkpoint_every:
            self.save()

    def log(self) -> None:
        """One row: to the table, to TensorBoard, to whoever listens."""
        facts = self._facts()
        row = self.tracker.row(self.clock, facts)
        if self.eval_tracker is None and self.tracker.improved(row):
            self.best_state = self.agent.policy_state()
        if self.events is not None:
            self.events.write(facts | row, self.clock.frame)
        name = self.paths.session_name if self.paths else self.spec.name
        logger.opt(lazy=True).debug("{}", lambda: analysis.log_block(f"{name} [train]", row))
        self.report(row)

    def _facts(self) -> Metrics:
        """What the last update reported, and how the optimiser stands."""
        optim = self.agent.algorithm.optim
        if optim is None:
            return dict(self.tracker.latest)
        norm = float(np.linalg.norm(list(optim.norms.values())))
        return {**self.tracker.latest, "lr": optim.lr, "nan_skips": optim.nan_skips, "grad_norm": norm}

    def evaluate(self, tracker: Tracker) -> None:
        """A row of the evaluation table; the best policy is then the one that evaluates best."""
        meta = self.spec.meta
        returns = evaluate(
            self.agent, self.spec.env, self.key, self.clock.frame, meta.rigorous_eval, meta.eval_deterministic
        )
        row = tracker.row(self.clock, self._facts(), float(np.mean(returns)))
        if tracker.improved(row):
            self.best_state = self.agent.policy_state()
        if self.events is not None:
            self.events.write({"eval_return": row["total_reward"]}, self.clock.frame)

    def save(self) -> None:
        """Write the best policy, then the whole state, then drop what is no longer needed."""
        if self.paths is None or self.store is None:
            return
        self._save_best(self.paths)
        self.tracker.sync()
        if self.eval_tracker is not None:
            self.eval_tracker.sync()
        path = self.paths.checkpoint(self.clock.frame)
        checkpoint.save(path, checkpoint.gather(self.parts()), self.store)
        self.store.prune(checkpoint.prune(self.paths.checkpoints(), path))
        self.saved_at = time.monotonic()

    def _save_best(self, paths: Paths) -> None:
        if self.best_state is not None:
            checkpoint.save(paths.best, self.best_state)
            self.best_state = None

    def resume(self) -> bool:
        """Continue from the newest checkpoint that can be read; False where there is none."""
        state = checkpoint.load_newest(self.paths.checkpoints(), self.store) if self.paths else None
        if state is None:
            return False
        checkpoint.scatter(state, self.parts())
        return True

    def result(self) -> SessionResult:
        """Save, and sum up where the session is finished."""
        self.save()
        if self.clock.done:
            self._last_rows()
        metrics = self._sum_up() if self.paths and self.clock.done else None
        best = (self.eval_tracker or self.tracker).best
        return SessionResult(self.key[2], self.clock.frame, self.clock.done, self.clock.wall_t, best, metrics)

    def _last_rows(self) -> None:
        """Rows of the end, where it is no multiple: not in the checkpoint, since a run with more frames has none."""
        meta = self.spec.meta
        if not self._due(meta.log_frequency):
            self.log()
        if self.eval_tracker and not self._due(meta.eval_frequency):
            self.evaluate(self.eval_tracker)
        if self.paths:
            self._save_best(self.paths)

    def _sum_up(self) -> analysis.SessionMetrics:
        """Metrics and graphs of both tables; without evaluations the second is a copy of the first."""
        assert self.paths is not None
        if self.eval_tracker is None:
            shutil.copyfile(self.paths.session_table("train"), self.paths.session_table("eval"))
        kinds: tuple[Kind, Kind] = ("train", "eval")
        metrics = {kind: self._table_metrics(self.paths, kind) for kind in kinds}
        return metrics["eval"]

    def _table_metrics(self, paths: Paths, kind: Kind) -> analysis.SessionMetrics:
        table = pd.read_csv(paths.session_table(kind))
        metrics = analysis.session_metrics(table, baseline(self.spec.env.name, self.spec.env.kwargs) or 0.0)
        if kind == "train" or self.eval_tracker is not None:
            session_graphs(table, self.spec.name, paths, kind)
        write_session(paths, kind, metrics)
        return metrics

    def close(self) -> None:
        self.env.close()
        if self.events is not None:
            self.events.close()
