from __future__ import annotations

import copy
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from specs_for_tests import NET, tiny_session, tiny_spec
from torch import Tensor

from slm_lab.agent.memory.replay import PrioritizedReplay, PrioritizedReplaySpec, Replay, ReplaySpec
from slm_lab.agent.memory.sampler import Prioritized
from slm_lab.agent.memory.sequences import SequenceReplay
from slm_lab.agent.net.obs_net import ObsNet
from slm_lab.agent.net.recurrent import RecurrentNet
from slm_lab.experiment.session import Session
from slm_lab.lib.errors import SpecError
from slm_lab.lib.rng import Rng
from slm_lab.types import Act, Array, Batch, Cadence, Sequences, Spaces, Step

EVERY = Cadence(1, "frame")
HIDDEN = "hidden.value"


def vector(num_envs: int) -> Spaces:
    """One number that is seen, two that are remembered."""
    real = np.dtype(np.float32)
    return Spaces({"obs": (1,), HIDDEN: (2,)}, {"obs": real, HIDDEN: real}, "discrete", 2, num_envs)


def sequences(
    num_envs: int = 1, length: int = 3, burn_in: int = 2, cadence: Cadence = EVERY, seed: int = 0, **keys: Any
) -> SequenceReplay:
    spec = ReplaySpec(name="Replay", **{"batch_size": 4, "max_size": 60, **keys})
    return SequenceReplay(Replay(spec, vector(num_envs), cadence, {}, Rng(seed)), length, burn_in)


def prioritized(num_envs: int = 1, length: int = 3, burn_in: int = 2, seed: int = 0, **keys: Any) -> SequenceReplay:
    spec = PrioritizedReplaySpec(name="PrioritizedReplay", **{"batch_size": 4, "max_size": 60, "alpha": 1.0, **keys})
    return SequenceReplay(PrioritizedReplay(spec, vector(num_envs), EVERY, {}, Rng(seed)), length, burn_in)


class Row(NamedTuple):
    """One step of one env as plain numbers."""

    obs: float
    hidden: list[float]
    action: int
    reward: float
    next_obs: float
    next_hidden: list[float]
    terminated: bool
    truncated: bool


class Stream:
    """Vector steps whose observations never repeat; every row is also kept in a plain list, [T][N]."""

    def __init__(self, num_envs: int, end: float = 0.3, seed: int = 0) -> None:
        self.rng, self.end, self.n = np.random.default_rng(seed), end, num_envs
        self.rows = list[list[Row]]()
        self.place = dict[float, tuple[int, int]]()  # observation -> step and env
        self.numbers = 0
        self.obs, self.hidden = self._new(), np.zeros((num_envs, 2), np.float32)

    def _new(self) -> Array:
        self.numbers += self.n
        return (np.arange(self.numbers - self.n, self.numbers, dtype=np.float32) / 3)[:, None]

    def feed(self, memory: SequenceReplay, steps: int) -> None:
        for _ in range(steps):
            terminated, truncated = self.rng.random((2, self.n)) < self.end / 2
            action, reward = self.rng.integers(2, size=self.n), self.rng.normal(size=self.n).astype(np.float32)
            after, hidden = self._new(), self.rng.normal(size=(self.n, 2)).astype(np.float32)
            step = Step(reward, {"obs": after, HIDDEN: hidden}, terminated, truncated)
            memory.add({"obs": self.obs, HIDDEN: self.hidden}, Act(action, action, {}), step)
            seen = (self.obs[:, 0], self.hidden, action, reward, after[:, 0], hidden, terminated, truncated)
            self.place |= {value: (len(self.rows), env) for env, value in enumerate(self.obs[:, 0].tolist())}
            self.rows.append([Row(*row) for row in zip(*(column.tolist() for column in seen), strict=True)])
            over = (terminated | truncated)[:, None]
            self.obs, self.hidden = np.where(over, self._new(), after), np.where(over, np.float32(0), hidden)

    def behind(self, batch: Batch) -> list[list[Row]]:
        """What really happened in each stretch of a batch [S][K]: so many steps of its env from its first on."""
        steps = len(stretches(batch.obs).first)
        starts = [self.place[value] for value in stretches(batch.obs).entries["obs"][0, :, 0].tolist()]
        return [[rows[env] for rows in self.rows[t : t + steps]] for t, env in starts]


def stretches(obs: Any) -> Sequences:
    assert isinstance(obs, Sequences)
    return obs


def drawn(batch: Batch) -> list[list[tuple[float, list[float], float, list[float]]]]:
    """Observations and memories before and after, [S][K]."""
    obs, after = stretches(batch.obs).entries, stretches(batch.next_obs).entries
    columns = [x.transpose(0, 1) for x in (obs["obs"][..., 0], obs[HIDDEN], after["obs"][..., 0], after[HIDDEN])]
    return [list(zip(*(column[s].tolist() for column in columns), strict=True)) for s in range(len(columns[0]))]


def starts(batch: Batch, stream: Stream) -> list[tuple[int, int]]:
    """Step and env at which each stretch begins."""
    return [stream.place[value] for value in stretches(batch.obs).entries["obs"][0, :, 0].tolist()]


# stretches --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [sequences, prioritized])
@pytest.mark.parametrize(("num_envs", "max_size"), [(1, 5), (1, 7), (3, 15), (3, 40), (2, 400)])
@pytest.mark.parametrize("end", [0.0, 0.4, 1.0])
def test_a_stretch_is_what_one_env_went_through(make: Any, num_envs: int, max_size: int, end: float) -> None:
    memory, stream = make(num_envs, max_size=max_size, batch_size=16), Stream(num_envs, end)
    kept, rng = max_size // num_envs, np.random.default_rng(1)
    for _ in range(60):
        stream.feed(memory, 1)
        if not memory.ready():
            continue
        batch = memory.sample()
        rows = stream.behind(batch)
        oldest, past = max(0, len(stream.rows) - kept), len(stream.rows)
        # whole: neither rows that are gone nor the open one, which is not in the list yet
        assert all(oldest <= t <= past - 5 for t, _ in starts(batch, stream))
        assert drawn(batch) == [[(r.obs, r.hidden, r.next_obs, r.next_hidden) for r in each] for each in rows]
        ended = [[row.terminated or row.truncated for row in each] for each in rows]
        first = [[True, *each[:-1]] for each in ended]
        assert stretches(batch.obs).first.T.tolist() == first
        assert stretches(batch.next_obs).first.T.tolist() == first
        memory.feedback(batch, torch.from_numpy(rng.exponential(size=3 * 16)))


@pytest.mark.parametrize(("length", "burn_in"), [(3, 2), (4, 0), (1, 3), (1, 0)])
def test_the_steps_after_burn_in_count(length: int, burn_in: int) -> None:
    memory, stream = sequences(2, length, burn_in), Stream(2)
    stream.feed(memory, 20)
    batch = memory.sample()
    rows = [[each[k] for each in stream.behind(batch)] for k in range(length + burn_in)]  # [K][S]
    counted = [row for step in rows[burn_in:] for row in step]
    assert len(batch) == length * 4
    assert batch.reward.tolist() == [row.reward for row in counted]
    assert batch.action.tolist() == [row.action for row in counted]
    assert batch.terminated.tolist() == [row.terminated for row in counted]
    assert batch.truncated.tolist() == [row.truncated for row in counted]
    for obs in (stretches(batch.obs), stretches(batch.next_obs)):
        assert obs.burn_in == burn_in
        assert obs.first.shape == (length + burn_in, 4)
        assert obs.keep.tolist() == list(range(burn_in * 4, (length + burn_in) * 4))
    kept = stretches(batch.obs).entries["obs"].flatten(0, 1)[stretches(batch.obs).keep]
    assert kept[:, 0].tolist() == [row.obs for row in counted]


@pytest.mark.parametrize("steps", [5, 9, 45])
def test_stretches_begin_at_every_row_alike_that_enough_follows(steps: int) -> None:
    memory, stream = sequences(3, batch_size=1000), Stream(3)
    stream.feed(memory, steps)
    count = Counter(start for _ in range(6) for start in starts(memory.sample(), stream))
    kept = min(steps, 20)
    begins = [(t, env) for t in range(steps - kept, steps - 4) for env in range(3)]
    assert set(count) == set(begins)
    # 6000 draws: the deviation of a count is that of a coin with the share of one start
    share = 1 / len(begins)
    assert all(abs(n - 6000 * share) < 5 * (6000 * share * (1 - share)) ** 0.5 for n in count.values())


# when to learn ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_envs", [1, 3])
def test_there_is_no_batch_before_a_whole_stretch(num_envs: int) -> None:
    memory, stream = sequences(num_envs), Stream(num_envs)
    ready = list[bool]()
    for _ in range(7):
        stream.feed(memory, 1)
        ready.append(memory.ready())
    assert ready == [False, False, False, False, True, True, True]


def test_batches_come_by_the_cadence_of_the_replay() -> None:
    memory, stream, seen = sequences(2, cadence=Cadence(6, "frame", 12)), Stream(2), list[int]()
    for step in range(1, 16):
        stream.feed(memory, 1)
        seen += [step] if memory.ready() else []
    assert seen == [6, 9, 12, 15]


def test_a_replay_too_small_for_one_stretch_is_refused() -> None:
    with pytest.raises(SpecError) as error:
        sequences(2, length=8, burn_in=4, max_size=23)
    got = "got 23, which is 11 steps of 2 envs; allowed: at least 24, for seq_len 8 after burn_in 4."
    assert str(error.value) == f"agent.memory.max_size: {got}"
    memory = sequences(2, length=8, burn_in=4, max_size=24)
    Stream(2).feed(memory, 30)
    assert memory.ready()


# the newest rows --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [sequences, prioritized])
@pytest.mark.parametrize(("steps", "newest"), [(1, 3), (2, 6), (3, 8), (9, 8)])  # at most a batch
def test_with_cer_a_batch_holds_the_stretches_that_end_with_the_rows_since_the_last_one(
    make: Any, steps: int, newest: int
) -> None:
    memory, stream = make(3, use_cer=True, batch_size=8, max_size=600), Stream(3)
    stream.feed(memory, 100)
    memory.sample()
    stream.feed(memory, steps)
    # a stretch of 5 ends with the newest row where it begins 4 before; newest of all first
    wanted = [(t, env) for t in range(95 + steps, 0, -1) for env in (2, 1, 0)][:newest]
    batch = memory.sample()
    assert len(starts(batch, stream)) == 8
    assert set(wanted) <= set(starts(batch, stream))
    again = [start for _ in range(10) for start in starts(memory.sample(), stream) if start in wanted[:3]]
    assert len(again) < 20  # of 80 draws of 300 stretches, one or so


# priorities -------------------------------------------------------------------------------------------------------


def priority(memory: SequenceReplay, index: Tensor) -> list[float]:
    assert isinstance(memory.replay.sampler, Prioritized)
    values: list[float] = memory.replay.sampler.sums[index.numpy()].tolist()
    return values


def only(memory: SequenceReplay, row: int) -> None:
    """Let a row of the first env have all the priority."""
    ring = memory.replay.ring
    error = np.zeros(ring.slots)
    error[ring.slot(row)] = 1e9
    memory.replay.sampler.update(np.arange(ring.slots), error)


def test_a_priority_mixes_the_largest_and_the_mean_error_of_a_stretch() -> None:
    memory, stream = prioritized(length=2, burn_in=1, batch_size=2), Stream(1)
    stream.feed(memory, 10)
    batch = memory.sample()
    index = batch.extra["index"]
    assert index[0] != index[1]  # one out of each half of the total
    memory.feedback(batch, torch.tensor([1.0, -2.0, -3.0, 0.0]))
    # errors 1, 3 and 2, 0: .9 * 3 + .1 * 2 and .9 * 2 + .1 * 1
    assert priority(memory, index) == pytest.approx([2.9, 1.9], abs=1e-5)
    others = torch.tensor([slot for slot in range(10) if slot not in index.tolist()])
    assert priority(memory, others) == [1.0] * 8


def test_the_row_that_was_drawn_begins_the_stretch() -> None:
    memory, stream = prioritized(3), Stream(3)
    stream.feed(memory, 50)  # rows 30 to 49 are there
    only(memory, 37)
    batch = memory.sample()
    assert batch.extra["index"].tolist() == [memory.replay.ring.slot(37)] * 4
    assert starts(batch, stream) == [(37, 0)] * 4


@pytest.mark.parametrize("row", [45, 46, 49])
def test_a_row_too_near_the_end_makes_the_stretch_begin_earlier(row: int) -> None:
    memory, stream = prioritized(3), Stream(3)
    stream.feed(memory, 50)
    only(memory, row)
    batch = memory.sample()
    assert starts(batch, stream) == [(45, 0)] * 4  # the last 5 steps
    assert batch.extra["index"].tolist() == [memory.replay.ring.slot(row)] * 4
    memory.feedback(batch, torch.full((12,), 7.0))
    assert priority(memory, batch.extra["index"]) == pytest.approx([7.0] * 4)  # that of the row drawn all the same


def test_every_row_of_a_stretch_has_its_weight() -> None:
    memory, stream = prioritized(length=2, burn_in=1, beta_spec=1.0, batch_size=40), Stream(1)
    stream.feed(memory, 4)
    slots = np.arange(4)
    memory.replay.sampler.update(slots, np.array([1.0, 2.0, 4.0, 8.0]))
    batch = memory.sample()
    # beta 1: a weight is one over the priority, and the largest is 1
    expected = [1 / 2**slot for slot in batch.extra["index"].tolist()]
    assert {1.0, 0.5, 0.25, 0.125} == set(expected)
    assert batch.extra["weight"].tolist() == pytest.approx(expected * 2, rel=1e-5)


def test_weights_come_only_with_a_beta() -> None:
    for memory in (prioritized(), sequences()):
        Stream(1).feed(memory, 10)
        assert "weight" not in memory.sample().extra


def test_errors_do_not_matter_where_draws_are_even() -> None:
    memory, twin, stream = sequences(2), sequences(2), Stream(2)
    stream.feed(memory, 20)
    twin.load_state_dict(memory.state_dict())
    memory.feedback(memory.sample(), torch.full((12,), 100.0))
    twin.sample()
    assert drawn(memory.sample()) == drawn(twin.sample())


# state ------------------------------------------------------------------------------------------------------------


def batches(memory: SequenceReplay, stream: Stream, steps: int) -> list[Any]:
    """Draw after each of some steps where there is enough, and tell made-up errors."""
    seen = list[Any]()
    for _ in range(steps):
        stream.feed(memory, 1)
        if memory.ready():
            batch = memory.sample()
            memory.feedback(batch, batch.reward)
            seen.append((drawn(batch), stretches(batch.obs).first.tolist(), batch.reward.tolist()))
    return seen


@pytest.mark.parametrize("make", [sequences, prioritized])
@pytest.mark.parametrize("steps", [1, 20, 61])
def test_a_memory_brought_back_draws_the_very_same_batches(make: Any, steps: int) -> None:
    keys: dict[str, Any] = {"use_cer": True, "batch_size": 8}
    memory, stream = make(3, **keys), Stream(3)
    batches(memory, stream, steps)
    stream.feed(memory, 1)  # rows that no batch has held yet
    other = make(3, seed=1, **keys)
    batches(other, Stream(3, 0.5, seed=1), 40)  # it has seen other things
    other.load_state_dict(memory.state_dict())
    twin = copy.deepcopy(stream)
    expected = batches(memory, stream, 30)
    assert len(expected) >= 27
    assert batches(other, twin, 30) == expected


# what was remembered ----------------------------------------------------------------------------------------------


def untrained(**keys: Any) -> tuple[Session, SequenceReplay, ObsNet]:
    """A session whose net never learns: what it remembered then is what it would remember now."""
    net = {**{key: NET[key] for key in ("optim_spec", "hid_layers_activation")}, "type": "RecurrentNet", **keys}
    overrides = {"agent.net": net, "agent.algorithm.training_start_step": 10_000, "agent.memory.max_size": 640}
    session = tiny_session(tiny_spec("DQN", **overrides))
    session.run()
    assert session.clock.opt_step == 0
    algorithm: Any = session.agent.algorithm
    memory = session.agent.memory
    assert isinstance(memory, SequenceReplay)
    return session, memory, algorithm.learner.net


@torch.no_grad()
def recomputed(memory: SequenceReplay, net: ObsNet) -> tuple[Tensor, Tensor, Tensor]:
    """What is remembered before and after each step [T, N, hidden], and action values [T, N, n], from zeros on."""
    views, envs = memory.replay.ring.views, memory.replay.envs
    obs = torch.from_numpy(views["obs.obs"]).view(-1, envs, 4)
    ended = torch.from_numpy(views["terminated"] | views["truncated"]).view(-1, envs)
    assert isinstance(net.net, RecurrentNet)
    state, before, after, values = torch.zeros(envs, net.net.hidden), [], [], []
    for t in range(memory.replay.ring.written):
        before.append(state)
        outputs, state = net.net.step(obs[t], state)
        after.append(state)
        values.append(outputs[0])
        state = state.where(~ended[t].unsqueeze(-1), 0)
    return torch.stack(before), torch.stack(after), torch.stack(values)


@pytest.mark.parametrize(("cell", "layers"), [("LSTM", 2), ("GRU", 1)])
def test_what_was_stored_is_what_stepping_from_the_start_of_each_episode_gives(cell: str, layers: int) -> None:
    keys = {"cell_type": cell, "rnn_num_layers": layers, "rnn_hidden_size": 8, "seq_len": 6, "fc_hid_layers": [8]}
    session, memory, net = untrained(**keys)
    assert session.clock.epi > 10  # many starts
    before, after, values = recomputed(memory, net)
    for _ in range(5):
        batch = memory.sample()
        row, env = batch.extra["index"] // 4, batch.extra["index"] % 4
        t = row + torch.arange(9).unsqueeze(-1)  # burn-in 3, then 6, [K, S]
        obs, following = stretches(batch.obs), stretches(batch.next_obs)
        assert obs.first[1:].any()
        torch.testing.assert_close(obs.entries[HIDDEN], before[t, env])
        torch.testing.assert_close(following.entries[HIDDEN], after[t, env])
        with torch.no_grad():
            torch.testing.assert_close(net(obs)[0], values[t[3:], env].flatten(0, 1), rtol=1e-4, atol=1e-5)
            # what follows a row that did not end is the next row
            goes_on = ~batch.terminated & ~batch.truncated
            goes_on &= (t[3:].flatten() + 1) < len(values)
            next_t = (t[3:] + 1).clamp_max(len(values) - 1)
            expected = values[next_t, env].flatten(0, 1)
            torch.testing.assert_close(net(following)[0][goes_on], expected[goes_on], rtol=1e-4, atol=1e-5)
