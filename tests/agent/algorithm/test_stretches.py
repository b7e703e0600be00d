from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from slm_lab.agent.algorithm.stretches import cut, lesson
from slm_lab.agent.net import make_net
from slm_lab.agent.net.base import Head
from slm_lab.agent.net.recurrent import RecurrentNetSpec
from slm_lab.types import Batch, Sequences

# 5 steps of 2 envs. Rows of the flat rollout: steps 0 to 4 of env 0 are 0, 2, 4, 6, 8, of env 1 1, 3, 5, 7, 9
ENDED = torch.tensor([[True, False], [False, False], [False, True], [False, True], [True, False]])


def rollout(hidden: Tensor | None = None) -> Batch:
    """Flat, 10 rows: each holds its own number."""
    number = torch.arange(10.0)
    entries = {"obs": number.unsqueeze(-1), "hidden.actor": -number.unsqueeze(-1) if hidden is None else hidden}
    ended = ENDED.flatten()
    return Batch(
        entries, number.long(), number * 10, entries, ended, torch.zeros(10, dtype=torch.bool), {"adv": -number}
    )


def sequences(batch: Batch) -> Sequences:
    assert isinstance(batch.obs, Sequences)
    return batch.obs


def test_a_rollout_is_cut_into_stretches_of_each_env() -> None:
    cuts = cut(ENDED, 2)
    assert cuts.count == 6
    # steps 0, 1 of both envs, then 2, 3, then 4 and its fillers
    assert cuts.index.tolist() == [[0, 1, 4, 5, 8, 9], [2, 3, 6, 7, 8, 9]]
    assert cuts.real.tolist() == [[True] * 6, [True] * 4 + [False] * 2]


def test_a_memory_is_taken_up_where_a_stretch_or_an_episode_begins() -> None:
    first = cut(ENDED, 2).first
    assert first[0].all()
    # step 1 of env 0 follows an end, and step 3 of env 1
    assert first[1, :4].tolist() == [True, False, False, True]


def test_a_lesson_holds_every_row_once_and_no_fillers() -> None:
    flat = rollout()
    batch = lesson(flat, cut(ENDED, 2))
    rows = [0, 1, 4, 5, 8, 9, 2, 3, 6, 7]  # the first steps of all stretches, then the second ones
    assert batch.action.tolist() == rows
    assert batch.reward.tolist() == [10 * row for row in rows]
    assert batch.extra["adv"].tolist() == [-row for row in rows]
    assert batch.terminated.tolist() == [flat.terminated[row].item() for row in rows]
    obs = sequences(batch)
    assert obs.burn_in == 0
    assert obs.keep.tolist() == list(range(10))  # of 12, the last two of which are fillers
    assert obs.entries["obs"].shape == (2, 6, 1)
    for key, sign in (("obs", 1), ("hidden.actor", -1)):
        assert obs.entries[key].flatten(0, 1)[obs.keep].flatten().tolist() == [sign * row for row in rows]
    assert torch.equal(obs.first, cut(ENDED, 2).first)


def test_a_lesson_may_be_of_some_stretches() -> None:
    batch = lesson(rollout(), cut(ENDED, 2), torch.tensor([4, 1, 3]))
    obs = sequences(batch)
    # stretch 4 is step 4 of env 0, 1 steps 0 and 1 of env 1, 3 its steps 2 and 3
    assert obs.entries["obs"][..., 0].tolist() == [[8, 1, 5], [8, 3, 7]]
    assert obs.keep.tolist() == [0, 1, 2, 4, 5]
    assert batch.action.tolist() == [8, 1, 5, 3, 7]
    assert obs.first[1, 1:].tolist() == [False, True]


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 6, 100])
@pytest.mark.parametrize("size", [1, 2, 100])
def test_lessons_of_all_stretches_hold_every_row_once(length: int, size: int) -> None:
    cuts, seen = cut(ENDED, length), list[int]()
    assert cuts.count == 2 * -(-5 // length)
    order = torch.randperm(cuts.count, generator=torch.Generator().manual_seed(0))
    for start in range(0, cuts.count, size):
        batch = lesson(rollout(), cuts, order[start : start + size])
        obs = sequences(batch)
        assert obs.entries["obs"].flatten()[obs.keep].tolist() == batch.action.tolist()
        seen += batch.action.tolist()
    assert sorted(seen) == list(range(10))


@pytest.mark.parametrize("length", [5, 6, 100])
def test_a_length_beyond_the_rollout_is_the_whole_of_it(length: int) -> None:
    cuts = cut(ENDED, length)
    assert cuts.index.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    assert cuts.real.all()
    # env 0 after step 0; env 1 after steps 2 and 3
    expected = [[True, True], [True, False], [False, False], [False, True], [False, True]]
    assert cuts.first.tolist() == expected


@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_a_net_gives_for_a_lesson_what_it_gave_step_by_step(length: int) -> None:
    spec: Any = RecurrentNetSpec(type="RecurrentNet", rnn_hidden_size=4, seq_len=length)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = make_net(spec, (1,), [Head(2)], "actor", acts=True)
    state, before, outputs = torch.zeros(2, 4), list[Tensor](), list[Tensor]()
    numbers = torch.arange(10.0).view(5, 2, 1)
    with torch.no_grad():
        for t in range(5):
            before.append(state)
            output, hidden = net.step({"obs": numbers[t], "hidden.actor": state})
            outputs.append(output[0])
            state = hidden["hidden.actor"].where(~ENDED[t].unsqueeze(-1), 0)
        batch = lesson(rollout(torch.cat(before)), cut(ENDED, length))
        torch.testing.assert_close(net(batch.obs)[0], torch.cat(outputs)[batch.action])
