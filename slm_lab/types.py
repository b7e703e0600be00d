"""The vocabulary of the lab: what passes between env, agent and experiment. Read this first.

Shapes by letter: T vector steps, N envs, B rows of a flat batch, A action dims. Arrays with a
leading N are numpy, batches are torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Array = np.ndarray[Any, Any]
Obs = Array | dict[str, Array]  # one array [N, ...], or one per entry of a Dict observation
State = dict[
    str, Any
]  # nested dicts and lists of arrays, tensors, numbers, strings, booleans, None and Rows: what a checkpoint holds
Metrics = dict[str, float]  # what an update reports; "loss" and "opt_steps" are always there
Shape = tuple[int, ...]
ObsShape = Shape | Mapping[str, Shape]
ActionKind = Literal["discrete", "continuous", "multi_discrete", "multi_binary"]
MASK = "action_mask"  # entry of an observation: allowed actions, where the env says which


class Stateful(Protocol):
    """Anything a checkpoint can hold and bring back."""

    def state_dict(self) -> State: ...
    def load_state_dict(self, state: State) -> None: ...


@dataclass(frozen=True)
class Spaces:
    """What an agent must know of an env: never the env itself."""

    obs_shape: Shape | dict[str, Shape]
    obs_dtype: np.dtype[Any] | dict[str, np.dtype[Any]]
    action_kind: ActionKind
    action_dim: int  # number of actions, of dims, of components
    num_envs: int
    nvec: Shape = ()  # choices per component, multi_discrete only
    mask_size: int = 0  # entries of an action mask; 0 where the env gives none

    @property
    def action_shape(self) -> Shape:
        """Shape of one env's action as a memory stores it."""
        return () if self.action_kind == "discrete" else (self.action_dim,)

    @property
    def action_dtype(self) -> np.dtype[Any]:
        """Whole numbers index, continuous actions and bits are floats."""
        return np.dtype(np.int64 if self.action_kind in ("discrete", "multi_discrete") else np.float32)


class Step(NamedTuple):
    """What one env.step gives, for N envs. `next_obs` is the true successor, also where an episode ended."""

    reward: Array
    next_obs: Obs
    terminated: Array
    truncated: Array
    returns: tuple[float, ...] = ()  # raw scores of the episodes that ended in this step
    next_mask: Array | None = None  # allowed actions in next_obs, where the env says so


class Act(NamedTuple):
    """A decision: what the env gets, what the loss needs, and what else the agent wants stored with it."""

    env_action: Array
    action: Array
    extra: dict[str, Array]
    hidden: dict[str, Array] = {}  # what nets remember from here on, [N, size] by entry of the observation


@dataclass(frozen=True)
class Rows:
    """The rows start <= row < stop of a memory that only grows at one end: each is saved once, see experiment.chunks.

    `parts(first)` gives the rows from `first` on as pieces (number of its first row, arrays with a leading row dim).
    """

    name: str
    start: int
    stop: int
    parts: Callable[[int], Iterator[tuple[int, dict[str, Array]]]]


@dataclass(frozen=True, slots=True)
class Sequences:
    """Observations in the order they were made, for nets with a memory: S stretches of K steps, [K, S, ...] each.

    Where `first` is set, a net takes up what it remembered then, which the entries hold; else it goes on from the step
    before. Of the K * S rows `keep` [B] count. No gradient reaches back into the first `burn_in` steps.
    """

    entries: dict[str, Tensor]
    first: Tensor
    keep: Tensor
    burn_in: int = 0

    def map(self, fn: Callable[[Tensor], Tensor]) -> Sequences:
        """The same stretches with `fn` applied to each entry of the observations."""
        return replace(self, entries={key: fn(value) for key, value in self.entries.items()})

    def to(self, device: torch.device) -> Sequences:
        return replace(self.map(lambda x: x.to(device)), first=self.first.to(device), keep=self.keep.to(device))


class Stretch(NamedTuple):
    """How much of an episode a net with a memory learns from at a time, after some steps to warm up."""

    length: int
    burn_in: int


class Cadence(NamedTuple):
    """What triggers an update, as data: every so many steps, frames or finished episodes, after a start."""

    every: int
    unit: Literal["step", "frame", "episode"]
    after: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """Experience as tensors that share their leading dims: [T, N] for a rollout, [B] once flat."""

    obs: Tensor | dict[str, Tensor] | Sequences
    action: Tensor
    reward: Tensor
    next_obs: Tensor | dict[str, Tensor] | Sequences
    terminated: Tensor
    truncated: Tensor
    extra: dict[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.reward)

    def map(self, fn: Callable[[Tensor], Tensor]) -> Batch:
        """The same batch with `fn` applied to every tensor."""
        return Batch(
            map_obs(fn, self.obs),
            fn(self.action),
            fn(self.reward),
            map_obs(fn, self.next_obs),
            fn(self.terminated),
            fn(self.truncated),
            {key: fn(value) for key, value in self.extra.items()},
        )

    def to(self, device: torch.device) -> Batch:
        """The batch where a net computes; memories hold theirs on the CPU."""
        if device.type == "cpu":
            return self
        moved = self.map(lambda x: x.to(device))
        if isinstance(moved.obs, Sequences) and isinstance(moved.next_obs, Sequences):
            moved = replace(moved, obs=moved.obs.to(device), next_obs=moved.next_obs.to(device))
        return moved

    def flat(self) -> Batch:
        """[T, N, ...] -> [T * N, ...]."""
        return self.map(lambda x: x.flatten(0, 1))

    def rows(self, start: int, stop: int) -> Batch:
        """Rows start <= row < stop of a flat batch, as views."""
        return self.map(lambda x: x[start:stop])

    def tensors(self) -> list[Tensor]:
        """All its tensors, in the order in which `map` meets them."""
        rest = self.terminated, self.truncated, *self.extra.values()
        return [*entries_in(self.obs), self.action, self.reward, *entries_in(self.next_obs), *rest]

    def filled(self, tensors: Iterator[Tensor]) -> Batch:
        """A batch of this form with other tensors, in the order of `tensors`."""
        return self.map(lambda _: next(tensors))

    def split(self, size: int) -> Iterator[Batch]:
        """Pieces of `size` rows of a flat batch, as views; the last may have fewer."""
        for views in zip(*(tensor.split(size) for tensor in self.tensors()), strict=True):  # type: ignore[no-untyped-call]
            yield self.filled(iter(views))

    def with_extra(self, **extra: Tensor) -> Batch:
        return replace(self, extra={**self.extra, **extra})

    @property
    def ended(self) -> Tensor:
        """Where an episode ended, for whatever reason."""
        return self.terminated | self.truncated


def map_obs(fn: Callable[[Any], Any], obs: Any) -> Any:
    """Apply `fn` to an observation, entry by entry where it has several."""
    if isinstance(obs, Sequences):
        return obs.map(fn)
    return {key: fn(value) for key, value in obs.items()} if isinstance(obs, Mapping) else fn(obs)


def entries_in(obs: Any) -> list[Any]:
    """The arrays of an observation, in the order of `map_obs`."""
    if isinstance(obs, Sequences):
        obs = obs.entries
    return list(obs.values()) if isinstance(obs, Mapping) else [obs]


def rows_in(obs: Any) -> int:
    """The leading dim of an observation, which all entries of a dict share."""
    return len(next(iter(obs.values()))) if isinstance(obs, Mapping) else len(obs)


def episode_starts(ended: Tensor) -> Tensor:
    """Where an episode starts [T, N], by where episodes end; also at the first step, whatever was before it."""
    starts = ended.new_ones(ended.shape)
    starts[1:] = ended[:-1]
    return starts


@dataclass
class Clock:
    """Where a session stands. One vector step is one `t` and `num_envs` frames."""

    max_frame: int
    frame: int = 0
    t: int = 0
    epi: int = 0  # finished episodes
    opt_step: int = 0  # gradient steps
    wall_t: float = 0.0  # seconds of training, over all sittings

    def tick(self, num_envs: int) -> None:
        self.frame += num_envs
        self.t += 1

    @property
    def done(self) -> bool:
        return self.frame >= self.max_frame

    def state_dict(self) -> State:
        return {key: value for key, value in asdict(self).items() if key != "max_frame"}

    def load_state_dict(self, state: State) -> None:
        for key, value in state.items():
            setattr(self, key, value)


class VecEnv(Protocol):
    """Always a vector; one env is a vector of one."""

    spaces: Spaces
    obs: Obs  # what to act on now
    action_mask: Array | None  # allowed actions now, where the env says so
    exact: Literal["exact", "unverified", "restarts"]  # what a checkpoint can bring back of an open episode

    def step(self, action: Array) -> Step: ...
    def close(self) -> None: ...
    def state_dict(self) -> State: ...
    def load_state_dict(self, state: State) -> None: ...


class Lessons(Protocol):
    """What an algorithm learns from: batches, and somebody to tell how wrong it was about their rows [B]."""

    def sample(self) -> Batch: ...
    def feedback(self, batch: Batch, error: Tensor) -> None: ...


class Memory(Lessons, Protocol):
    """Stores experience and says when there is enough of it; knows nothing of who asks."""

    def add(self, obs: Obs, act: Act, step: Step) -> None: ...
    def ready(self) -> bool: ...
    def state_dict(self) -> State: ...
    def load_state_dict(self, state: State) -> None: ...
