"""Memories that are drained whole by each update: rollouts of fixed length, and whole episodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from pydantic import Field

from slm_lab.agent.memory.base import MemoryBase, MemorySpec
from slm_lab.lib.rng import Rng
from slm_lab.spec.parse import Float
from slm_lab.types import Act, Array, Batch, Cadence, Obs, Shape, Spaces, State, Step


class Columns:
    """Preallocated tensors [rows, N, ...] for each field of a Batch, written through numpy views of their storage.

    Writing through the views costs a seventh of torch's indexing.
    """

    def __init__(self, rows: int, spaces: Spaces, extra: dict[str, Shape]) -> None:
        n = spaces.num_envs

        def buffer(shape: Shape, dtype: Any = np.float32) -> torch.Tensor:
            return torch.from_numpy(np.zeros((rows, n, *shape), dtype))

        def obs() -> Any:
            if isinstance(spaces.obs_shape, dict):
                assert isinstance(spaces.obs_dtype, dict)
                return {key: buffer(shape, spaces.obs_dtype[key]) for key, shape in spaces.obs_shape.items()}
            return buffer(spaces.obs_shape, spaces.obs_dtype)

        self.rows = rows
        self.batch = Batch(
            obs(),
            buffer(spaces.action_shape, spaces.action_dtype),
            buffer(()),
            obs(),
            buffer((), bool),
            buffer((), bool),
            {key: buffer(shape) for key, shape in extra.items()},
        )
        self.views = {name: tensor.numpy() for name, tensor in fields(self.batch)}

    def write(self, row: int, obs: Obs, act: Act, step: Step) -> None:
        views = self.views
        if isinstance(obs, dict):
            assert isinstance(step.next_obs, dict)
            for key in obs:
                views[f"obs.{key}"][row] = obs[key]
                views[f"next_obs.{key}"][row] = step.next_obs[key]
        else:
            views["obs"][row] = obs
            views["next_obs"][row] = step.next_obs
        views["action"][row] = act.action
        views["reward"][row] = step.reward
        views["terminated"][row] = step.terminated
        views["truncated"][row] = step.truncated
        for key, value in act.extra.items():
            views[f"extra.{key}"][row] = value

    def state_dict(self, rows: int) -> State:
        return {name: view[:rows].copy() for name, view in self.views.items()}

    def load_state_dict(self, state: State) -> None:
        for name, view in self.views.items():
            view[: len(state[name])] = state[name]


def fields(batch: Batch) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, tensor) of every tensor in a batch; dict entries as `obs.key`."""
    for name in ("obs", "action", "reward", "next_obs", "terminated", "truncated", "extra"):
        value = getattr(batch, name)
        if isinstance(value, dict):
            yield from ((f"{name}.{key}", tensor) for key, tensor in value.items())
        else:
            yield name, value


class OnPolicyBatchReplaySpec(MemorySpec):
    """Rollouts of a fixed number of vector steps."""


class OnPolicyBatchReplay(MemoryBase):
    """`cadence.every` vector steps of N envs, filled in place, handed out whole as [T, N]."""

    Spec: ClassVar[type[MemorySpec]] = OnPolicyBatchReplaySpec
    kind: ClassVar = "on_policy"
    unit: ClassVar = "step"

    def __init__(self, spec: MemorySpec, spaces: Spaces, cadence: Cadence, extra: dict[str, Shape], rng: Rng) -> None:
        self.columns = Columns(cadence.every, spaces, extra)
        self.cursor = 0

    def add(self, obs: Obs, act: Act, step: Step) -> None:
        self.columns.write(self.cursor, obs, act, step)
        self.cursor += 1

    def ready(self) -> bool:
        return self.cursor == self.columns.rows

    def sample(self) -> Batch:
        """The rollout [T, N]: views of the buffers, valid until the next add."""
        self.cursor = 0
        return self.columns.batch

    def state_dict(self) -> State:
        return {"cursor": self.cursor, "columns": self.columns.state_dict(self.cursor)}

    def load_state_dict(self, state: State) -> None:
        self.cursor = state["cursor"]
        self.columns.load_state_dict(state["columns"])


class OnPolicyReplaySpec(MemorySpec):
    """Whole episodes, counted over all envs."""


class Episode(NamedTuple):
    """Rows start <= row < stop of one env."""

    env: int
    start: int
    stop: int


class OnPolicyReplay(MemoryBase):
    """Whole episodes laid end to end as [B, 1]; open ones stay for the next batch.

    Ready after `cadence.every` finished episodes, or vector steps, whichever unit the cadence counts.
    """

    Spec: ClassVar[type[MemorySpec]] = OnPolicyReplaySpec
    kind: ClassVar = "on_policy"
    unit: ClassVar = "episode"

    def __init__(self, spec: MemorySpec, spaces: Spaces, cadence: Cadence, extra: dict[str, Shape], rng: Rng) -> None:
        self.spec, self.spaces, self.cadence, self.extra = spec, spaces, cadence, extra
        self.columns = Columns(1024, spaces, extra)
        self.cursor = 0
        self.steps = 0  # vector steps since the last batch
        self.start = np.zeros(spaces.num_envs, np.int64)  # first row of each env's open episode
        self.finished: list[Episode] = []

    def add(self, obs: Obs, act: Act, step: Step) -> None:
        if self.cursor == self.columns.rows:
            self._grow()
        self.columns.write(self.cursor, obs, act, step)
        self.cursor += 1
        self.steps += 1
        for env in np.flatnonzero(step.terminated | step.truncated):
            self.finished.append(Episode(int(env), int(self.start[env]), self.cursor))
            self.start[env] = self.cursor

    def _grow(self) -> None:
        state = self.columns.state_dict(self.cursor)
        self.columns = Columns(2 * self.columns.rows, self.spaces, self.extra)
        self.columns.load_state_dict(state)

    def ready(self) -> bool:
        if self.cadence.unit == "episode":
            return len(self.finished) >= self.cadence.every
        return self.steps >= self.cadence.every and len(self.finished) > 0

    def keep(self, episodes: list[Episode]) -> list[Episode]:
        """Which finished episodes are learnt from: all of them."""
        return episodes

    def sample(self) -> Batch:
        """All finished episodes end to end, [B, 1]."""
        chosen = self.keep(self.finished)
        row = torch.cat([torch.arange(e.start, e.stop) for e in chosen])
        env = torch.cat([torch.full((e.stop - e.start,), e.env) for e in chosen])
        batch = self.columns.batch.map(lambda x: x[row, env].unsqueeze(1))
        self._drop_finished()
        return batch

    def _drop_finished(self) -> None:
        """Move the open episodes to the front, so that all of them end at the same row."""
        lengths = self.cursor - self.start
        longest = int(lengths.max())
        for view in self.columns.views.values():
            for env in range(self.spaces.num_envs):
                tail = view[self.start[env] : self.cursor, env].copy()
                view[longest - len(tail) : longest, env] = tail
        self.cursor, self.start, self.finished, self.steps = longest, longest - lengths, [], 0

    def state_dict(self) -> State:
        return {
            "cursor": self.cursor,
            "steps": self.steps,
            "start": self.start.copy(),
            "finished": [list(episode) for episode in self.finished],
            "columns": self.columns.state_dict(self.cursor),
        }

    def load_state_dict(self, state: State) -> None:
        self.cursor, self.steps, self.start = state["cursor"], state["steps"], state["start"].copy()
        self.finished = [Episode(*episode) for episode in state["finished"]]
        while self.columns.rows < self.cursor:
            self._grow()
        self.columns.load_state_dict(state["columns"])


class OnPolicyCrossEntropySpec(MemorySpec):
    """Whole episodes, of which only the best are learnt from."""

    cross_entropy: Float = Field(
        1.0, gt=0, le=1, description="share of episodes kept, those of the highest return; 1 keeps all"
    )


class OnPolicyCrossEntropy(OnPolicyReplay):
    """Whole episodes whose return is at or above the (1 - cross_entropy) quantile."""

    Spec: ClassVar[type[MemorySpec]] = OnPolicyCrossEntropySpec

    def keep(self, episodes: list[Episode]) -> list[Episode]:
        assert isinstance(self.spec, OnPolicyCrossEntropySpec)
        reward: Array = self.columns.views["reward"]
        returns = [float(reward[e.start : e.stop, e.env].sum()) for e in episodes]
        # `higher` so that the threshold is a return that occurred: rounding must not drop the best one
        limit = np.quantile(returns, 1 - self.spec.cross_entropy, method="higher")
        return [episode for episode, total in zip(episodes, returns, strict=True) if total >= limit]
