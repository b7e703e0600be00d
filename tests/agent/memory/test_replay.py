from __future__ import annotations

import copy
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from slm_lab.agent.memory.replay import PrioritizedReplay, PrioritizedReplaySpec, Replay, ReplaySpec, beta_at
from slm_lab.lib.rng import Rng
from slm_lab.spec.schema import Schedule
from slm_lab.types import Act, Array, Batch, Cadence, Spaces, Step

EVERY = Cadence(1, "frame")


def vector(num_envs: int, kind: Any = "discrete") -> Spaces:
    """Observations of one number."""
    return Spaces((1,), np.dtype(np.float32), kind, 2, num_envs)


def replay(num_envs: int = 1, cadence: Cadence = EVERY, seed: int = 0, **keys: Any) -> Replay:
    spec = ReplaySpec(name="Replay", **{"batch_size": 4, "max_size": 20, **keys})
    return Replay(spec, vector(num_envs), cadence, {}, Rng(seed))


def prioritized(num_envs: int = 1, seed: int = 0, **keys: Any) -> PrioritizedReplay:
    spec = PrioritizedReplaySpec(name="PrioritizedReplay", **{"batch_size": 4, "max_size": 20, **keys})
    return PrioritizedReplay(spec, vector(num_envs), EVERY, {}, Rng(seed))


class Transition(NamedTuple):
    """One row of one env as plain numbers."""

    obs: float
    action: int
    reward: float
    next_obs: float
    terminated: bool
    truncated: bool


class Stream:
    """Vector steps with observations that never repeat; every transition is also kept in a plain list."""

    def __init__(self, num_envs: int, end: float = 0.3, seed: int = 0) -> None:
        self.rng, self.end, self.n = np.random.default_rng(seed), end, num_envs
        self.rows = list[Transition]()
        self.numbers = 0
        self.obs = self._new()

    def _new(self) -> Array:
        self.numbers += self.n
        # thirds have no short binary form: what comes back in half precision would differ
        return (np.arange(self.numbers - self.n, self.numbers, dtype=np.float32) / 3)[:, None]

    def feed(self, memory: Replay, steps: int) -> None:
        for _ in range(steps):
            terminated, truncated = self.rng.random((2, self.n)) < self.end / 2
            action, reward = self.rng.integers(2, size=self.n), self.rng.normal(size=self.n).astype(np.float32)
            after = self._new()
            memory.add(self.obs, Act(action, action, {}), Step(reward, after, terminated, truncated))
            columns = (self.obs[:, 0], action, reward, after[:, 0], terminated, truncated)
            self.rows += [Transition(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]
            ended = terminated | truncated
            self.obs = np.where(ended[:, None], self._new(), after)


def rows_of(batch: Batch) -> list[Transition]:
    assert isinstance(batch.obs, torch.Tensor)
    assert isinstance(batch.next_obs, torch.Tensor)
    columns = (batch.obs[:, 0], batch.action, batch.reward, batch.next_obs[:, 0], batch.terminated, batch.truncated)
    return [Transition(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def valid_slots(memory: Replay) -> Array:
    """Slots of all rows that can be drawn, oldest first."""
    rows = range(memory.first, memory.ring.written)
    return np.concatenate([memory.ring.slot(row) + np.arange(memory.envs) for row in rows])


def open_slots(memory: Replay) -> set[int]:
    start = memory.ring.slot(memory.ring.written)
    return set(range(start, start + memory.envs))


# rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("max_size", [3, 10, 21, 100])
@pytest.mark.parametrize("end", [0.0, 0.3, 1.0])
def test_every_row_that_can_be_drawn_is_what_was_added(num_envs: int, max_size: int, end: float) -> None:
    memory, stream = replay(num_envs, max_size=max_size), Stream(num_envs, end)
    for _ in range(150):
        stream.feed(memory, 1)
        index = valid_slots(memory)
        kept = max_size // num_envs * num_envs  # whole vector steps
        assert rows_of(memory.rows_at(index)) == stream.rows[-kept:]


@pytest.mark.parametrize("steps", [1, 5, 6, 7, 40])
def test_batches_are_drawn_from_all_the_rows_and_no_others(steps: int) -> None:
    memory, stream = replay(3, batch_size=64), Stream(3)
    stream.feed(memory, steps)
    drawn = Counter(row for _ in range(40) for row in rows_of(memory.sample()))
    assert set(drawn) == set(stream.rows[-18:])  # 20 // 3 = 6 vector steps
    assert drawn.total() == 40 * 64


def test_every_row_is_drawn_alike() -> None:
    memory, stream = replay(3, batch_size=1000), Stream(3)
    stream.feed(memory, 40)
    drawn = Counter(row for _ in range(18) for row in rows_of(memory.sample()))
    # 18000 draws of 18 rows: 1000 each, with a deviation of sqrt(18000 * 17 / 18 / 18) = 31
    assert all(abs(count - 1000) < 5 * 31 for count in drawn.values())


def test_the_newest_row_knows_its_successor_before_the_next_one_is_added() -> None:
    memory, stream = replay(2), Stream(2, end=0.0)
    for _ in range(30):
        stream.feed(memory, 1)
        newest = valid_slots(memory)[-2:]
        assert [row.next_obs for row in rows_of(memory.rows_at(newest))] == [row.next_obs for row in stream.rows[-2:]]


def test_images_stay_bytes_and_dicts_stay_dicts() -> None:
    dtypes: dict[str, np.dtype[Any]] = {"image": np.dtype(np.uint8), "speed": np.dtype(np.float32)}
    spaces = Spaces({"image": (2, 2), "speed": (1,)}, dtypes, "continuous", 2, 1)
    memory = Replay(ReplaySpec(name="Replay", batch_size=3, max_size=8), spaces, EVERY, {"hidden": (3,)}, Rng(0))
    obs: dict[str, Array] = {"image": np.full((1, 2, 2), 255, np.uint8), "speed": np.array([[0.1]], np.float32)}
    after: dict[str, Array] = {"image": np.full((1, 2, 2), 7, np.uint8), "speed": np.array([[0.2]], np.float32)}
    act = Act(np.array([[0.5, -0.5]]), np.array([[0.3, -0.3]], np.float32), {"hidden": np.array([[1.0, 2.0, 3.0]])})
    memory.add(obs, act, Step(np.array([1.0]), after, np.array([True]), np.array([False])))
    batch = memory.sample()
    assert isinstance(batch.obs, dict)
    assert isinstance(batch.next_obs, dict)
    assert batch.obs["image"].dtype == batch.next_obs["image"].dtype == torch.uint8
    assert batch.obs["image"].flatten().tolist() == 3 * [255, 255, 255, 255]
    assert batch.next_obs["image"].flatten().tolist() == 3 * [7, 7, 7, 7]
    assert torch.equal(batch.next_obs["speed"], torch.full((3, 1), 0.2))
    assert torch.equal(batch.action, torch.tensor([[0.3, -0.3]]).expand(3, 2))  # what the loss needs, not what was sent
    assert batch.extra["hidden"].tolist() == 3 * [[1, 2, 3]]


def nbytes(memory: Replay) -> int:
    return sum(column.numel() * column.element_size() for column in memory.ring.columns.values())


def test_an_observation_is_stored_once() -> None:
    spaces = Spaces((84, 84), np.dtype(np.uint8), "discrete", 4, 2)
    memory = Replay(ReplaySpec(name="Replay", batch_size=4, max_size=640), spaces, EVERY, {}, Rng(0))
    frame = 84 * 84
    beside = sum(column.numel() for column in memory.finals.columns.values())
    # 320 vector steps and the open one, and room for one end in 16 rows
    assert beside == 40 * frame
    assert (nbytes(memory) + beside) / (642 * frame) < 1.07


@pytest.mark.parametrize("num_envs", [1, 3])
def test_the_bytes_that_are_announced_are_those_of_the_full_ring(num_envs: int) -> None:
    memory = replay(num_envs, max_size=50)
    assert Replay.bytes_needed(memory.spec, vector(num_envs)) == nbytes(memory)
    # a row: obs 4, action 8, reward 4, two flags, number of its end 8; one open row for each env
    assert nbytes(memory) == (50 // num_envs + 1) * num_envs * 26


def test_room_for_the_ends_of_episodes_grows_with_their_share() -> None:
    memory, stream = replay(max_size=400), Stream(1, end=0.0)
    stream.feed(memory, 500)
    assert memory.finals.rows == 25
    stream.end = 2.0  # every step ends an episode
    stream.feed(memory, 390)
    assert memory.finals.rows == 400
    assert memory.ended == 390
    assert rows_of(memory.rows_at(valid_slots(memory))) == stream.rows[-400:]


def test_more_envs_may_end_at_once_than_there_was_room_for() -> None:
    memory, stream = replay(100, max_size=300), Stream(100, end=2.0)
    assert memory.finals.rows < 50
    for _ in range(7):
        stream.feed(memory, 1)
        assert rows_of(memory.rows_at(valid_slots(memory))) == stream.rows[-300:]


def test_fewer_rows_than_envs_still_make_one_vector_step() -> None:
    memory, stream = replay(3, max_size=1), Stream(3)
    stream.feed(memory, 5)
    assert set(rows_of(memory.sample())) <= set(stream.rows[-3:])


# when to learn ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_envs", "every", "after", "due"),
    [
        (1, 1, 0, list(range(1, 25))),
        (1, 3, 0, [3, 6, 9, 12, 15, 18, 21, 24]),
        (1, 3, 7, [9, 12, 15, 18, 21, 24]),
        (1, 1, 22, [22, 23, 24]),
        (4, 1, 0, [4, 8, 12, 16, 20, 24]),  # one update a vector step at most
        (4, 3, 10, [12, 16, 20, 24]),
        (4, 4, 9, [12, 16, 20, 24]),
        (4, 6, 0, [8, 12, 20, 24]),  # the first steps at or past 6, 12, 18 and 24
        (4, 10, 11, [12, 20]),  # past 10, and 20
    ],
)
def test_an_update_is_due_at_the_first_step_past_each_multiple(
    num_envs: int, every: int, after: int, due: list[int]
) -> None:
    memory, stream, seen = replay(num_envs, Cadence(every, "frame", after)), Stream(num_envs), list[int]()
    for _ in range(24 // num_envs):
        stream.feed(memory, 1)
        if memory.ready():
            seen.append(memory.seen)
    assert seen == due


# the newest rows --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [replay, prioritized])
@pytest.mark.parametrize(("steps", "newest"), [(1, 3), (2, 6), (3, 8), (9, 8)])  # at most a batch
def test_with_cer_a_batch_holds_the_rows_since_the_last_one(make: Any, steps: int, newest: int) -> None:
    memory, stream = make(3, use_cer=True, batch_size=8, max_size=300), Stream(3)
    stream.feed(memory, 50)
    memory.sample()
    stream.feed(memory, steps)
    drawn = rows_of(memory.sample())
    assert len(drawn) == 8
    assert set(stream.rows[-newest:]) <= set(drawn)
    fresh = [row for _ in range(10) for row in rows_of(memory.sample()) if row in stream.rows[-3:]]
    assert len(fresh) < 20  # not again: of 80 draws of 150 rows, two or so


def test_cer_takes_no_more_than_there_is() -> None:
    memory, stream = replay(3, use_cer=True, batch_size=8, max_size=6), Stream(3)
    stream.feed(memory, 10)
    drawn = rows_of(memory.sample())
    assert len(drawn) == 8
    assert set(drawn) == set(stream.rows[-6:])


# priorities -------------------------------------------------------------------------------------------------------


def errors(memory: PrioritizedReplay, error: list[float]) -> None:
    """Tell the memory how wrong the learner was about its rows, oldest first."""
    batch = memory.rows_at(valid_slots(memory))
    memory.feedback(batch, torch.tensor(error))


def test_weights_come_only_with_a_beta() -> None:
    memory = prioritized()
    Stream(1).feed(memory, 4)
    assert "weight" not in memory.sample().extra
    weighted = prioritized(beta_spec=0.4)
    Stream(1).feed(weighted, 4)
    assert weighted.sample().extra["weight"].tolist() == [1, 1, 1, 1]  # all have the same priority yet


def test_weights_undo_priorities_as_in_the_paper() -> None:
    memory, stream = prioritized(max_size=4, batch_size=400, alpha=0.6, beta_spec=0.4), Stream(1)
    stream.feed(memory, 4)
    errors(memory, [1, -2, 3, -4])
    batch = memory.sample()
    # P = (.1482, .2247, .2866, .3405) = error^.6 / sum; weight = (4 P)^-.4 over its largest
    by_row = dict(zip(rows_of(batch), batch.extra["weight"].tolist(), strict=True))
    assert [by_row[row] for row in stream.rows] == pytest.approx([1, 0.8467, 0.7682, 0.7170], abs=1e-4)
    drawn = Counter(rows_of(batch))
    # one draw from each of 400 slices of the total: at most one off at either end
    expected = [400 * share for share in (0.1482, 0.2247, 0.2866, 0.3405)]
    assert [drawn[row] for row in stream.rows] == pytest.approx(expected, abs=2)


def test_beta_follows_the_frames() -> None:
    schedule = Schedule(name="linear_decay", start_val=0.4, end_val=1.0, end_step=100)
    memory, stream = prioritized(2, beta_spec=schedule), Stream(2)
    stream.feed(memory, 25)
    assert beta_at(memory.spec, memory.seen) == pytest.approx(0.7)
    stream.feed(memory, 50)
    assert beta_at(memory.spec, memory.seen) == pytest.approx(1.0)


def test_rows_the_learner_was_wrong_about_are_drawn_more() -> None:
    memory, stream = prioritized(max_size=4, batch_size=100, alpha=1.0), Stream(1)
    stream.feed(memory, 4)
    errors(memory, [0, 1, 0, 3])
    drawn = Counter(rows_of(memory.sample()))
    assert [drawn[row] for row in stream.rows] == pytest.approx([0, 25, 0, 75], abs=1)
    stream.feed(memory, 1)  # a new row has the highest priority so far; it took the place of the first
    drawn = Counter(rows_of(memory.sample()))
    assert [drawn[row] for row in stream.rows[1:]] == pytest.approx([100 / 7, 0, 300 / 7, 300 / 7], abs=1.5)


@pytest.mark.parametrize("max_size", [1, 5, 20])
def test_neither_the_open_row_nor_one_that_is_gone_is_ever_drawn_by_priority(max_size: int) -> None:
    memory, stream = prioritized(2, max_size=max_size, batch_size=32, beta_spec=0.5), Stream(2)
    rng = np.random.default_rng(1)
    for _ in range(100):
        stream.feed(memory, 1)
        batch = memory.sample()
        assert not set(batch.extra["index"].tolist()) & open_slots(memory)
        kept = max(1, max_size // 2) * 2
        assert set(rows_of(batch)) <= set(stream.rows[-kept:])
        assert torch.isfinite(batch.extra["weight"]).all()
        memory.feedback(batch, torch.from_numpy(rng.exponential(size=32)))


def test_errors_told_too_late_do_not_bring_a_row_back() -> None:
    memory, stream = prioritized(max_size=4), Stream(1)
    stream.feed(memory, 4)
    batch = memory.rows_at(valid_slots(memory))
    stream.feed(memory, 1)  # the first row's slot is open now
    memory.feedback(batch, torch.tensor([100.0, 1, 1, 1]))
    drawn = {int(slot) for _ in range(50) for slot in memory.sample().extra["index"]}
    assert not drawn & open_slots(memory)


# state ------------------------------------------------------------------------------------------------------------


def batches(memory: Replay, stream: Stream, steps: int) -> list[list[Transition]]:
    """Draw after each of some steps, and tell made-up errors."""
    drawn = list[list[Transition]]()
    for _ in range(steps):
        stream.feed(memory, 1)
        batch = memory.sample()
        memory.feedback(batch, batch.reward)
        drawn.append(rows_of(batch))
    return drawn


@pytest.mark.parametrize("make", [replay, prioritized])
@pytest.mark.parametrize("steps", [1, 6, 7, 20, 61])
@pytest.mark.parametrize("end", [0.2, 2.0])
def test_a_memory_brought_back_draws_the_very_same_batches(make: Any, steps: int, end: float) -> None:
    keys: dict[str, Any] = {"use_cer": True, "batch_size": 8, "max_size": 60}
    memory, stream = make(3, **keys), Stream(3, end)
    batches(memory, stream, steps)
    stream.feed(memory, 1)  # rows that no batch has held yet
    other = make(3, seed=1, **keys)
    batches(other, Stream(3, 0.5, seed=1), 90)  # it has seen other things
    other.load_state_dict(memory.state_dict())
    twin = copy.deepcopy(stream)
    expected = batches(memory, stream, 70)
    assert batches(other, twin, 70) == expected
    assert other.seen == memory.seen == 3 * (steps + 71)


def test_the_newest_row_of_a_memory_brought_back_has_its_successor() -> None:
    memory, other, stream = replay(2), replay(2), Stream(2, end=0.0)
    stream.feed(memory, 13)
    other.load_state_dict(memory.state_dict())
    newest = valid_slots(other)[-2:]
    assert rows_of(other.rows_at(newest)) == stream.rows[-2:]
