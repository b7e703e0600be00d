"""Replay: a ring of transitions from which batches are drawn, evenly or by priority."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from slm_lab.agent.memory.base import MemoryBase, MemorySpec
from slm_lab.agent.memory.ring import Layout, Ring
from slm_lab.agent.memory.sampler import Prioritized, Sampler, Uniform
from slm_lab.lib.rng import Rng
from slm_lab.spec.parse import Float, Int
from slm_lab.spec.schema import Schedule
from slm_lab.types import Act, Array, Batch, Cadence, Obs, Shape, Spaces, State, Step


class ReplaySpec(MemorySpec):
    """Transitions drawn evenly."""

    batch_size: Int = Field(ge=1, description="transitions of a batch; sequences of RecurrentNet's seq_len")
    max_size: Int = Field(ge=1, description="transitions kept; the oldest make room")
    use_cer: bool = Field(False, description="the transitions since the last batch are always part of the next")


class Replay(MemoryBase):
    """Vector steps in a ring. An observation is stored once: the successor of a row is the row after it.

    Where an episode ended, the row after holds the first observation of the next one: the true successor then stands
    in a small ring beside. The row that is open, the successor of the newest, is never drawn.
    """

    Spec: ClassVar[type[MemorySpec]] = ReplaySpec
    kind: ClassVar = "replay"
    unit: ClassVar = "frame"
    stores_raw: ClassVar = True

    def __init__(self, spec: ReplaySpec, spaces: Spaces, cadence: Cadence, extra: dict[str, Shape], rng: Rng) -> None:
        self.spec, self.cadence, self.envs = spec, cadence, spaces.num_envs
        self.keep = rows_kept(spec, spaces)
        layout = row_layout(spaces, extra)
        self.entries = list(obs_layout(spaces))
        self.extra = {name: f"extra.{name}" for name in extra}  # columns of what was stored with actions
        self.ring = Ring(layout, self.keep + 1, self.envs)
        self.finals = Ring(obs_layout(spaces), max(16, self.keep * self.envs // 16))
        self.ended = 0  # ends among the rows that are still there
        self.sampler = self.make_sampler(spec, self.ring.slots)
        self.rng = rng
        self.fresh = 0  # rows since the last batch
        self.due = False

    @staticmethod
    def make_sampler(spec: Any, slots: int) -> Sampler:
        return Uniform(slots)

    @classmethod
    def bytes_needed(cls, spec: Any, spaces: Spaces) -> int:
        """Rows once full, without the few ends of episodes."""
        slot = sum(np.dtype(dtype).itemsize * int(np.prod(shape)) for shape, dtype in row_layout(spaces, {}).values())
        return (rows_kept(spec, spaces) + 1) * spaces.num_envs * slot

    @property
    def seen(self) -> int:
        """Transitions ever added."""
        return self.ring.written * self.envs

    @property
    def first(self) -> int:
        """Number of the oldest row that can be drawn."""
        return max(0, self.ring.written - self.keep)

    def add(self, obs: Obs, act: Act, step: Step) -> None:
        ring, end = self.ring, step.terminated | step.truncated
        row, slot = ring.written, ring.slot(ring.written)
        self._forget(row + 1)
        final = np.zeros(self.envs, np.int64)
        if np.count_nonzero(end):  # a quarter of the cost of any()
            final[end] = self._keep_finals(step.next_obs, np.flatnonzero(end))
        ring.write(
            {
                **flat_obs(obs),
                "action": act.action,
                "reward": step.reward,
                "terminated": step.terminated,
                "truncated": step.truncated,
                "final": final,
                **{column: act.extra[name] for name, column in self.extra.items()},
            }
        )
        after = ring.slot(ring.written)
        for name, value in flat_obs(step.next_obs).items():
            ring.views[name][after : after + self.envs] = value
        self.sampler.added(np.arange(slot, slot + self.envs))
        self.fresh += 1
        seen, every = self.seen, self.cadence.every
        self.due = seen >= self.cadence.after and seen % every < self.envs

    def _forget(self, row: int) -> None:
        """Make the slots of a row free: they are about to be the open row."""
        slot = self.ring.slot(row)
        if row >= self.ring.rows:
            views = self.ring.views
            gone = slice(slot, slot + self.envs)
            self.ended -= int((views["terminated"][gone] | views["truncated"][gone]).sum())
            self.sampler.removed(np.arange(slot, slot + self.envs))

    def _keep_finals(self, next_obs: Obs, envs: Array) -> Array:
        """Store the last observations of episodes; their numbers."""
        finals, wanted = self.finals, self.ended + len(envs)
        if wanted > finals.rows:
            layout: Layout = {name: (view.shape[1:], view.dtype) for name, view in finals.views.items()}
            self.finals = Ring(layout, max(wanted, 2 * finals.rows))
            self.finals.load_rows(finals.rows_from("finals", finals.written - self.ended))
        numbers = np.arange(len(envs)) + self.finals.written
        self.finals.extend({name: value[envs] for name, value in flat_obs(next_obs).items()})
        self.ended = wanted
        return numbers

    def ready(self) -> bool:
        return self.due

    def sample(self) -> Batch:
        """A batch [B]; extra holds each row's `index` and, where weighted, its `weight`."""
        index, weight = draw(self.spec, self.ring, self.sampler, self.rng, self.first, self.fresh)
        self.fresh = 0
        batch = self.rows_at(index)
        return batch if weight is None else batch.with_extra(weight=torch.from_numpy(weight))

    def rows_at(self, index: Array) -> Batch:
        """Rows at slots [B]; numpy gathers small rows in a third of torch's time."""
        views = self.ring.views
        taken = {name: view.take(index, axis=0) for name, view in views.items() if name != "final"}
        after = index + self.envs  # round the ring
        follow = {name: views[name].take(after, axis=0, mode="wrap") for name in self.entries}
        ends = (taken["terminated"] | taken["truncated"]).nonzero()[0]
        if len(ends):
            slots = views["final"][index[ends]] % self.finals.rows
            for name in self.entries:
                follow[name][ends] = self.finals.views[name][slots]
        rows = {name: torch.from_numpy(value) for name, value in taken.items()}
        next_obs = {name: torch.from_numpy(value) for name, value in follow.items()}
        extra = {key: rows[name] for key, name in self.extra.items()}
        extra["index"] = torch.from_numpy(index)
        return Batch(
            nested_obs({name: rows[name] for name in self.entries}),
            rows["action"],
            rows["reward"],
            nested_obs(next_obs),
            rows["terminated"],
            rows["truncated"],
            extra,
        )

    def state_dict(self) -> State:
        open_row = self.ring.slot(self.ring.written)
        entries = {name: self.ring.views[name][open_row : open_row + self.envs].copy() for name in self.entries}
        return {
            "rows": self.ring.rows_from("replay", self.first),
            "finals": self.finals.rows_from("replay_ends", self.finals.written - self.ended),
            "ended": self.ended,
            "final_rows": self.finals.rows,
            "open": entries,
            "sampler": self.sampler.state_dict(),
            "rng": self.rng.state_dict(),
            "fresh": self.fresh,
        }

    def load_state_dict(self, state: State) -> None:
        self.ring.load_rows(state["rows"])
        if self.finals.rows != state["final_rows"]:
            layout: Layout = {name: (view.shape[1:], view.dtype) for name, view in self.finals.views.items()}
            self.finals = Ring(layout, state["final_rows"])
        self.finals.load_rows(state["finals"])
        open_row = self.ring.slot(self.ring.written)
        for name, value in state["open"].items():
            self.ring.views[name][open_row : open_row + self.envs] = value
        self.sampler.load_state_dict(state["sampler"])
        self.rng.load_state_dict(state["rng"])
        self.ended, self.fresh = state["ended"], state["fresh"]


class PrioritizedReplaySpec(ReplaySpec):
    """Transitions drawn by how wrong the learner was about them (Schaul et al. 2016)."""

    alpha: Float = Field(0.6, ge=0, le=1, description="how much priorities count: 0 draws evenly")
    epsilon: Float = Field(1e-6, gt=0, description="priority of a transition without error")
    beta_spec: Schedule | Float | None = Field(
        None, description="how far importance weights in the loss undo the priorities, over frames; unset for none"
    )


class PrioritizedReplay(Replay):
    """The same ring with another sampler: stratified draws in proportion to (|error| + epsilon)^alpha."""

    Spec: ClassVar[type[MemorySpec]] = PrioritizedReplaySpec
    spec: PrioritizedReplaySpec

    @staticmethod
    def make_sampler(spec: Any, slots: int) -> Sampler:
        return Prioritized(slots, spec.alpha, spec.epsilon)

    def feedback(self, batch: Batch, error: Tensor) -> None:
        self.sampler.update(batch.extra["index"].cpu().numpy(), error.cpu().numpy())


def draw(
    spec: ReplaySpec, ring: Ring, sampler: Sampler, rng: Rng, first: int, fresh: int, steps: int = 1
) -> tuple[Array, Array | None]:
    """Slots [B] of a batch from the rows `first` on, of which the last `fresh` are new, and weights where asked for.

    Each is the first of `steps` rows.
    """
    past = ring.written - steps + 1  # the first row after which too little follows
    size, count = spec.batch_size, (past - first) * ring.width
    newest = min(fresh * ring.width, size, count) if spec.use_cer else 0
    index = sampler.draw(size - newest, rng, ring.slot(first), count) if newest < size else np.empty(0, np.int64)
    if newest:
        index = np.concatenate([index, (ring.slot(past) - 1 - np.arange(newest)) % ring.slots])
    beta = beta_at(spec, ring.written * ring.width)
    return index, None if beta is None else sampler.weights(index, count, beta)


def beta_at(spec: ReplaySpec, seen: int) -> float | None:
    """How far importance weights undo the priorities after so many transitions; None for no weights."""
    beta = spec.beta_spec if isinstance(spec, PrioritizedReplaySpec) else None
    return beta(seen) if isinstance(beta, Schedule) else beta


def rows_kept(spec: ReplaySpec, spaces: Spaces) -> int:
    """Vector steps that `max_size` transitions make."""
    return max(1, spec.max_size // spaces.num_envs)


def obs_layout(spaces: Spaces) -> Layout:
    """Columns of an observation: `obs`, or `obs.key` for each entry."""
    if isinstance(spaces.obs_shape, dict):
        assert isinstance(spaces.obs_dtype, dict)
        return {f"obs.{key}": (shape, spaces.obs_dtype[key]) for key, shape in spaces.obs_shape.items()}
    assert not isinstance(spaces.obs_dtype, dict)
    return {"obs": (spaces.obs_shape, spaces.obs_dtype)}


def row_layout(spaces: Spaces, extra: dict[str, Shape]) -> Layout:
    """Columns of a transition without its successor."""
    flag, real = np.dtype(bool), np.dtype(np.float32)
    return {
        **obs_layout(spaces),
        "action": (spaces.action_shape, spaces.action_dtype),
        "reward": ((), real),
        "terminated": ((), flag),
        "truncated": ((), flag),
        "final": ((), np.dtype(np.int64)),
        **{f"extra.{name}": (shape, real) for name, shape in extra.items()},
    }


def flat_obs(obs: Obs) -> dict[str, Array]:
    """An observation by the names of its columns."""
    return {f"obs.{key}": value for key, value in obs.items()} if isinstance(obs, dict) else {"obs": obs}


def nested_obs(entries: dict[str, Tensor]) -> Any:
    """An observation as it was before `flat_obs`."""
    return entries["obs"] if "obs" in entries else {name[4:]: value for name, value in entries.items()}
