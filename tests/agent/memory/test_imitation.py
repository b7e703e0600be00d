from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from specs_for_tests import tiny_session, tiny_spec

from slm_lab.agent.memory.base import MemorySpec
from slm_lab.agent.memory.imitation import Imitation, ReturnReplay
from slm_lab.agent.memory.onpolicy import OnPolicyBatchReplay
from slm_lab.agent.memory.replay import PrioritizedReplay, PrioritizedReplaySpec, Replay, ReplaySpec
from slm_lab.agent.memory.ring import Ring
from slm_lab.lib.rng import Rng
from slm_lab.spec.schema import Schedule
from slm_lab.types import Act, Batch, Cadence, Spaces, Step

LINE = Spaces((1,), np.dtype(np.float32), "discrete", 2, 2)


def evenly(size: int = 8, batch: int = 4, cer: bool = False) -> ReturnReplay:
    spec = ReplaySpec(name="Replay", batch_size=batch, max_size=size, use_cer=cer)
    return ReturnReplay(spec, Replay.make_sampler, LINE, Rng(1))


def by_priority(size: int = 8, batch: int = 4, **keys: Any) -> ReturnReplay:
    spec = PrioritizedReplaySpec(name="PrioritizedReplay", batch_size=batch, max_size=size, **keys)
    return ReturnReplay(spec, PrioritizedReplay.make_sampler, LINE, Rng(1))


def rows(first: int, count: int) -> Batch:
    """Rows that observe their number, do its parity and return ten times as much."""
    number = torch.arange(first, first + count)
    obs, flag = number.float().unsqueeze(1), torch.zeros(count, dtype=torch.bool)
    return Batch(obs, number % 2, 10 * number.float(), obs, flag, flag)


def numbers(batch: Batch) -> list[int]:
    """Which rows a batch holds, each with its own action and return, and without a future."""
    assert isinstance(batch.obs, torch.Tensor)
    number = batch.obs.squeeze(1)
    assert torch.equal(batch.action, number.long() % 2)
    assert torch.equal(batch.reward, 10 * number)
    assert batch.terminated.all()
    assert not batch.truncated.any()
    return [int(x) for x in number]


def drawn(replay: ReturnReplay, batches: int = 50) -> set[int]:
    return {number for _ in range(batches) for number in numbers(replay.sample())}


# the ring ---------------------------------------------------------------------------------------------------------


def test_many_rows_at_once_stand_where_they_would_one_by_one() -> None:
    layout = {"x": ((), np.dtype(np.float32))}
    for counts in ([2, 2], [3, 4], [5], [1, 12, 2]):
        one, many = Ring(layout, 5, 2), Ring(layout, 5, 2)
        values = iter(np.arange(1, 99, dtype=np.float32))
        for count in counts:
            part = np.array([next(values) for _ in range(2 * count)])
            for i in range(count):
                one.write({"x": part[2 * i : 2 * i + 2]})
            slots = many.extend({"x": part})
            assert np.array_equal(many.views["x"][slots], part[-len(slots) :])
            assert len(slots) == 2 * min(count, 5)
        assert many.written == one.written == sum(counts)
        assert np.array_equal(many.views["x"], one.views["x"])


# drawing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [evenly, by_priority])
def test_rows_come_back_whole_until_newer_ones_take_their_place(make: Any) -> None:
    replay = make(size=8)
    replay.extend(rows(0, 5))
    assert (len(replay), drawn(replay)) == (5, {0, 1, 2, 3, 4})
    replay.extend(rows(5, 5))
    assert (len(replay), drawn(replay)) == (8, {2, 3, 4, 5, 6, 7, 8, 9})
    replay.extend(rows(10, 20))  # more than there is room for
    assert (len(replay), drawn(replay)) == (8, set(range(22, 30)))


def test_with_cer_the_rows_since_the_last_batch_are_part_of_the_next() -> None:
    replay = evenly(size=100, cer=True)
    replay.extend(rows(0, 90))
    assert numbers(replay.sample()) == [89, 88, 87, 86]
    replay.extend(rows(90, 3))
    assert numbers(replay.sample())[1:] == [92, 91, 90]
    replay.extend(rows(93, 20))  # round the ring
    assert numbers(replay.sample()) == [112, 111, 110, 109]


def test_rows_that_were_much_better_than_expected_are_drawn_more_often() -> None:
    replay = by_priority(size=4, batch=4, alpha=1.0)
    replay.extend(rows(0, 4))
    batch = replay.sample()
    assert sorted(numbers(batch)) == [0, 1, 2, 3]  # all new: one from each quarter
    replay.feedback(batch, torch.tensor([3.0 if number == 2 else 1.0 for number in numbers(batch)]))
    counts = np.bincount([number for _ in range(600) for number in numbers(replay.sample())], minlength=4)
    assert counts / counts.sum() == pytest.approx([1 / 6, 1 / 6, 3 / 6, 1 / 6], abs=0.02)


def test_importance_weights_follow_their_schedule_over_stored_rows() -> None:
    beta = Schedule(name="linear_decay", start_val=0.0, end_val=1.0, start_step=0, end_step=4)
    replay = by_priority(size=8, batch=2, alpha=1.0, beta_spec=beta)
    replay.extend(rows(0, 2))  # half of the schedule
    replay.feedback(rows(0, 2).with_extra(index=torch.arange(2)), torch.tensor([1.0, 9.0]))
    weights = {number: weight for _ in range(99) for number, weight in _weighed(replay)}
    # P = .1 and .9: weights (2 P)^-beta over the largest
    assert weights == pytest.approx({0: 1.0, 1: (0.1 / 0.9) ** 0.5}, rel=1e-4)
    replay.extend(rows(2, 2))
    replay.feedback(rows(2, 2).with_extra(index=torch.arange(2, 4)), torch.tensor([1.0, 1.0]))
    assert dict(pair for _ in range(99) for pair in _weighed(replay))[1] == pytest.approx(1 / 9, rel=1e-4)


def _weighed(replay: ReturnReplay) -> list[tuple[int, float]]:
    batch = replay.sample()
    return list(zip(numbers(batch), batch.extra["weight"].tolist(), strict=True))


def test_evenly_drawn_rows_have_no_weights() -> None:
    replay = evenly()
    replay.extend(rows(0, 3))
    assert "weight" not in replay.sample().extra


def test_entries_of_a_dict_observation_stay_apart() -> None:
    real = np.dtype(np.float32)
    spaces = Spaces({"a": (1,), "b": ()}, {"a": real, "b": np.dtype(np.uint8)}, "continuous", 2, 1)
    spec = ReplaySpec(name="Replay", batch_size=1, max_size=4)
    replay = ReturnReplay(spec, Replay.make_sampler, spaces, Rng(0))
    obs = {"a": torch.ones(1, 1), "b": torch.full((1,), 7, dtype=torch.uint8)}
    flag = torch.zeros(1, dtype=torch.bool)
    replay.extend(Batch(obs, torch.tensor([[0.5, -0.5]]), torch.zeros(1), obs, flag, flag))
    batch = replay.sample()
    assert isinstance(batch.obs, dict)
    assert (batch.obs["a"].tolist(), batch.obs["b"].tolist(), batch.obs["b"].dtype) == ([[1.0]], [7], torch.uint8)
    assert batch.action.tolist() == [[0.5, -0.5]]


# both memories in one ---------------------------------------------------------------------------------------------


def memory(horizon: int = 2, seed: int = 0) -> Imitation:
    rollout = OnPolicyBatchReplay(MemorySpec(name="any"), LINE, Cadence(horizon, "step"), {"hint": ()}, Rng(seed))
    return Imitation(rollout, by_priority(size=6, batch=4), LINE)


def add(one: Imitation, t: int, *ends: int) -> None:
    """Row t of two envs, whose observations are 2 t and 2 t + 1; episodes of the envs `ends` are over."""
    obs = np.array([[2 * t], [2 * t + 1]], np.float32)
    action = np.array([0, 1])
    act = Act(action, action, {"hint": np.zeros(2, np.float32)})
    one.add(obs, act, Step(obs[:, 0], obs + 0.5, np.isin([0, 1], ends), np.zeros(2, bool)))


def taken(one: Imitation) -> list[float] | None:
    """Observations of the episodes that ended."""
    batch = one.finished()
    if batch is None:
        return None
    assert isinstance(batch.obs, torch.Tensor)
    return [float(x) for x in batch.obs.flatten()]


def test_only_episodes_that_are_over_are_handed_to_imitation_however_many_rollouts_they_take() -> None:
    one = memory()
    add(one, 0)
    add(one, 1)
    assert one.ready()
    assert one.sample().reward.tolist() == [[0, 1], [2, 3]]
    assert taken(one) is None
    add(one, 2, 1)
    add(one, 3)
    assert one.sample().reward.tolist() == [[4, 5], [6, 7]]
    assert taken(one) == [1, 3, 5]
    assert taken(one) is None  # once
    add(one, 4, 0)
    add(one, 5, 0, 1)
    one.sample()
    assert taken(one) == [0, 2, 4, 6, 8, 10, 7, 9, 11]


def test_a_restored_memory_goes_on_bit_by_bit() -> None:
    one, other = memory(), memory(seed=1)
    for t in range(4):
        add(one, t, *((1,) if t == 2 else ()))
        if one.ready():
            one.sample()
    one.replay.extend(rows(0, 9))  # round the ring of 6
    one.replay.feedback(one.replay.sample(), torch.tensor([1.0, 2.0, 3.0, 4.0]))
    add(one, 4)
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    for both in (one, other):
        add(both, 5, 0, 1)
    assert one.ready()
    assert other.ready()
    assert torch.equal(one.sample().reward, other.sample().reward)
    assert taken(one) == taken(other) == [1, 3, 5, 0, 2, 4, 6, 8, 10, 7, 9, 11]
    for i in range(10):
        left, right = one.replay.sample(), other.replay.sample()
        assert torch.equal(left.extra["index"], right.extra["index"])
        assert numbers(left) == numbers(right)
        for both in (one, other):
            both.replay.feedback(left, left.reward / (i + 1))
            both.replay.extend(rows(9 + i, 1))


def test_what_is_imitated_is_normalised_by_the_statistics_of_the_day_it_is_drawn() -> None:
    session = tiny_session(tiny_spec("SIL", normalize_obs=True, max_frame=320))
    session.run()
    memory, normalizer = session.agent.memory, session.agent.normalizer
    assert isinstance(memory, Imitation)
    assert normalizer is not None
    batch = memory.replay.sample()
    raw = memory.replay.ring.columns["obs"][batch.extra["index"]].numpy()
    assert np.abs(raw).max() < 3  # as CartPole gives them: a pole of at most 0.21 rad, a cart that did not get far
    before = np.asarray(batch.obs)
    assert np.array_equal(before, normalizer(raw))
    normalizer.update(np.full((4, 4), 100.0))
    again = memory.replay.sample()
    raw = memory.replay.ring.columns["obs"][again.extra["index"]].numpy()
    assert np.array_equal(np.asarray(again.obs), normalizer(raw))


def test_the_rollout_beside_it_holds_what_was_acted_on() -> None:
    session = tiny_session(tiny_spec("SIL", normalize_obs=True, max_frame=16))
    memory, normalizer = session.agent.memory, session.agent.normalizer
    assert isinstance(memory, Imitation)
    assert normalizer is not None
    raw = np.asarray(session.env.obs).copy()
    session.step()
    assert isinstance(memory.rollout, OnPolicyBatchReplay)
    assert np.array_equal(memory.rollout.columns.views["obs"][0], normalizer(raw))
    assert np.array_equal(memory.episodes.columns.views["obs"][0], raw)
