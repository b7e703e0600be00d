from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from slm_lab.agent.memory.base import MemoryBase, MemorySpec
from slm_lab.agent.memory.onpolicy import (
    OnPolicyBatchReplay,
    OnPolicyCrossEntropy,
    OnPolicyCrossEntropySpec,
    OnPolicyReplay,
)
from slm_lab.lib.rng import Rng
from slm_lab.types import Act, ActionKind, Array, Batch, Cadence, Shape, Spaces, State, Step

SPEC = MemorySpec(name="any")
RNG = Rng(0)


def vector(num_envs: int, kind: ActionKind = "discrete", dim: int = 2, nvec: Shape = ()) -> Spaces:
    """Observations of one number."""
    return Spaces((1,), np.dtype(np.float32), kind, dim, num_envs, nvec)


def add(memory: MemoryBase, t: int, terminated: Array, truncated: Array | None = None, reward: Any = None) -> None:
    """Row t of N envs; transition (t, env) has the observation t * N + env and half of it after, and reward 100 t."""
    n = len(terminated)
    number = (t * n + np.arange(n, dtype=np.float32))[:, None]
    reward = np.full(n, 100.0 * t, np.float32) if reward is None else np.array(reward, np.float32)
    truncated = np.zeros(n, bool) if truncated is None else truncated
    action = np.arange(n) % 2
    memory.add(number, Act(action, action, {}), Step(reward, number + 0.5, terminated, truncated))


def ids(batch: Batch) -> list[int]:
    """Which transitions a batch [B, 1] holds."""
    assert isinstance(batch.obs, torch.Tensor)
    assert isinstance(batch.next_obs, torch.Tensor)
    assert torch.equal(batch.next_obs, batch.obs + 0.5)
    return [int(number) for number in batch.obs.flatten()]


def ends(*envs: int, n: int = 3) -> Array:
    return np.isin(np.arange(n), envs)


def never(n: int) -> Array:
    return np.zeros(n, bool)


# rollouts ---------------------------------------------------------------------------------------------------------


def test_a_rollout_is_handed_out_when_full_with_one_row_a_step_and_one_column_an_env() -> None:
    memory = OnPolicyBatchReplay(SPEC, vector(3), Cadence(2, "step"), {}, RNG)
    add(memory, 0, ends(1))
    assert not memory.ready()
    add(memory, 1, never(3), truncated=ends(2))
    assert memory.ready()
    batch = memory.sample()
    assert isinstance(batch.obs, torch.Tensor)
    assert isinstance(batch.next_obs, torch.Tensor)
    assert batch.obs.squeeze(-1).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert batch.next_obs.squeeze(-1).tolist() == [[0.5, 1.5, 2.5], [3.5, 4.5, 5.5]]
    assert batch.action.tolist() == [[0, 1, 0], [0, 1, 0]]
    assert batch.reward.tolist() == [[0, 0, 0], [100, 100, 100]]
    assert batch.terminated.tolist() == [[False, True, False], [False, False, False]]
    assert batch.truncated.tolist() == [[False, False, False], [False, False, True]]
    assert batch.ended.tolist() == [[False, True, False], [False, False, True]]
    # flat: all envs of a step, then those of the next
    flat = batch.flat().obs
    assert isinstance(flat, torch.Tensor)
    assert flat.flatten().tolist() == [0, 1, 2, 3, 4, 5]


def test_a_sampled_rollout_is_gone_and_the_next_one_fills_anew() -> None:
    memory = OnPolicyBatchReplay(SPEC, vector(1), Cadence(2, "step"), {}, RNG)
    for t in range(5):
        add(memory, t, never(1))
        if memory.ready():
            assert memory.sample().reward.flatten().tolist() == [100 * (t - 1), 100 * t]
    assert not memory.ready()


@pytest.mark.parametrize(
    ("spaces", "shape", "dtype"),
    [
        (vector(3), (4, 3), torch.int64),
        (vector(3, "continuous", 2), (4, 3, 2), torch.float32),
        (vector(3, "multi_discrete", 2, (2, 5)), (4, 3, 2), torch.int64),
        (vector(3, "multi_binary", 2), (4, 3, 2), torch.float32),
    ],
)
def test_actions_are_stored_in_the_shape_and_type_of_their_space(
    spaces: Spaces, shape: Shape, dtype: torch.dtype
) -> None:
    memory = OnPolicyBatchReplay(SPEC, spaces, Cadence(4, "step"), {}, RNG)
    action = np.ones((3, *spaces.action_shape), spaces.action_dtype)
    for _ in range(4):
        memory.add(np.zeros((3, 1)), Act(action, action, {}), Step(np.zeros(3), np.zeros((3, 1)), never(3), never(3)))
    stored = memory.sample().action
    assert stored.shape == shape
    assert stored.dtype == dtype
    assert (stored == 1).all()


def test_dict_observations_and_extras_have_columns_of_their_own_and_images_stay_bytes() -> None:
    dtypes: dict[str, np.dtype[Any]] = {"image": np.dtype(np.uint8), "speed": np.dtype(np.float32)}
    spaces = Spaces({"image": (2, 2), "speed": (1,)}, dtypes, "discrete", 2, 1)
    memory = OnPolicyBatchReplay(SPEC, spaces, Cadence(1, "step"), {"hidden": (3,)}, RNG)
    obs: dict[str, Array] = {"image": np.full((1, 2, 2), 255, np.uint8), "speed": np.array([[0.1]], np.float32)}
    after: dict[str, Array] = {"image": np.full((1, 2, 2), 7, np.uint8), "speed": np.array([[0.2]], np.float32)}
    act = Act(np.array([1]), np.array([1]), {"hidden": np.array([[1.0, 2.0, 3.0]])})
    memory.add(obs, act, Step(np.ones(1), after, never(1), never(1)))
    batch = memory.sample()
    assert isinstance(batch.obs, dict)
    assert isinstance(batch.next_obs, dict)
    assert batch.obs["image"].dtype == torch.uint8
    assert batch.obs["image"].flatten().tolist() == [255] * 4
    assert batch.next_obs["image"].flatten().tolist() == [7] * 4
    assert batch.next_obs["speed"].item() == np.float32(0.2)  # bit for bit
    assert batch.extra["hidden"].tolist() == [[[1, 2, 3]]]


# whole episodes ---------------------------------------------------------------------------------------------------


def test_an_open_tail_waits_for_the_batch_in_which_it_ends() -> None:
    memory = OnPolicyReplay(SPEC, vector(3), Cadence(2, "episode"), {}, RNG)
    add(memory, 0, ends())
    add(memory, 1, ends(1))  # env 1: transitions 1, 4
    assert not memory.ready()
    add(memory, 2, ends(2))  # env 2: 2, 5, 8
    assert memory.ready()
    batch = memory.sample()
    assert ids(batch) == [1, 4, 2, 5, 8]
    assert batch.reward.shape == (5, 1)
    assert batch.ended.flatten().tolist() == [False, True, False, False, True]
    assert not memory.ready()
    add(memory, 3, ends(0))  # env 0 was open since the start: 0, 3, 6, 9
    add(memory, 4, ends(1))  # env 1 since step 2: 7, 10, 13
    assert ids(memory.sample()) == [0, 3, 6, 9, 7, 10, 13]


def test_a_time_limit_ends_an_episode_too() -> None:
    memory = OnPolicyReplay(SPEC, vector(1), Cadence(1, "episode"), {}, RNG)
    add(memory, 0, never(1), truncated=np.array([True]))
    assert memory.ready()
    batch = memory.sample()
    assert batch.truncated.tolist() == [[True]]
    assert batch.terminated.tolist() == [[False]]


def expected_batches(ended: Array, ready: Callable[[int, int], bool]) -> tuple[list[list[int]], list[list[int]]]:
    """Batches and open tails of episodes kept as plain lists; `ready(steps, episodes)` since the last batch."""
    n = ended.shape[1]
    tails: list[list[int]] = [[] for _ in range(n)]
    finished, batches, steps = list[list[int]](), list[list[int]](), 0
    for t, row in enumerate(ended):
        steps += 1
        for env in range(n):
            tails[env].append(t * n + env)
            if row[env]:
                finished.append(tails[env])
                tails[env] = []
        if ready(steps, len(finished)):
            batches.append([number for episode in finished for number in episode])
            finished, steps = [], 0
    return batches, tails


@pytest.mark.parametrize(
    ("cadence", "ready"),
    [
        (Cadence(4, "episode"), lambda steps, episodes: episodes >= 4),
        (Cadence(25, "step"), lambda steps, episodes: steps >= 25 and episodes > 0),
    ],
)
@pytest.mark.parametrize("share", [0.3, 0.05, 0.002])
def test_every_finished_transition_is_handed_out_once_and_in_order(
    cadence: Cadence, ready: Callable[[int, int], bool], share: float
) -> None:
    ended = np.random.default_rng(3).random((3000, 3)) < share
    memory, batches = OnPolicyReplay(SPEC, vector(3), cadence, {}, RNG), list[list[int]]()
    for t, row in enumerate(ended):
        add(memory, t, row)
        if memory.ready():
            batches.append(ids(memory.sample()))
    expected, tails = expected_batches(ended, ready)
    assert len(batches) > 2
    assert batches == expected
    assert (memory.cursor - memory.start).tolist() == [len(tail) for tail in tails]


def test_a_memory_grows_with_its_longest_episode() -> None:
    memory = OnPolicyReplay(SPEC, vector(2), Cadence(1, "episode"), {}, RNG)
    for t in range(2500):
        add(memory, t, np.array([t == 2499, False]))
    assert memory.columns.rows == 4096
    assert ids(memory.sample()) == list(range(0, 5000, 2))
    add(memory, 2500, np.array([False, True]))
    assert ids(memory.sample()) == list(range(1, 5002, 2))


def test_a_step_counted_batch_waits_until_an_episode_is_finished() -> None:
    memory = OnPolicyReplay(SPEC, vector(2), Cadence(3, "step"), {}, RNG)
    for t in range(5):
        add(memory, t, never(2))
        assert not memory.ready()
    add(memory, 5, ends(1, n=2))
    assert memory.ready()
    assert ids(memory.sample()) == [1, 3, 5, 7, 9, 11]
    add(memory, 6, ends(0, n=2))  # finished, but only one step since the last batch
    assert not memory.ready()


# cross entropy ----------------------------------------------------------------------------------------------------


def elite(share: float, returns: list[float]) -> list[int]:
    """Which of the one-step episodes with these returns are kept."""
    spec = OnPolicyCrossEntropySpec(name="OnPolicyCrossEntropy", cross_entropy=share)
    memory = OnPolicyCrossEntropy(spec, vector(1), Cadence(len(returns), "episode"), {}, RNG)
    for t, total in enumerate(returns):
        add(memory, t, np.array([True]), reward=[total])
    return ids(memory.sample())


@pytest.mark.parametrize(
    ("share", "kept"),
    [
        (1.0, [0, 1, 2, 3, 4]),
        # returns 5 1 4 2 3 in order are 1 2 3 4 5; position .6 * 4 = 2.4 lies between 3 and 4: at least 4
        (0.4, [0, 2]),
        (0.5, [0, 2, 4]),  # position 2 is the return 3
        (0.01, [0]),
    ],
)
def test_cross_entropy_keeps_the_episodes_of_the_highest_returns(share: float, kept: list[int]) -> None:
    assert elite(share, [5, 1, 4, 2, 3]) == kept


def test_cross_entropy_always_keeps_the_best_whatever_the_rounding() -> None:
    for count in range(1, 40):
        returns = [0.1 * k for k in range(count)]
        for share in (0.001, 0.1, 0.3, 0.7):
            assert count - 1 in elite(share, returns)


def test_the_return_of_an_episode_is_the_sum_of_its_own_rewards() -> None:
    spec = OnPolicyCrossEntropySpec(name="OnPolicyCrossEntropy", cross_entropy=0.5)
    memory = OnPolicyCrossEntropy(spec, vector(2), Cadence(2, "episode"), {}, RNG)
    add(memory, 0, never(2), reward=[3, 1])
    add(memory, 1, np.array([True, True]), reward=[0, 1])  # env 0: 3, env 1: 2
    assert ids(memory.sample()) == [0, 2]


# state ------------------------------------------------------------------------------------------------------------

MAKERS: dict[str, Callable[[], MemoryBase]] = {
    "rollout": lambda: OnPolicyBatchReplay(SPEC, vector(3), Cadence(40, "step"), {}, RNG),
    "episodes": lambda: OnPolicyReplay(SPEC, vector(3), Cadence(5, "episode"), {}, RNG),
    "episodes by steps": lambda: OnPolicyReplay(SPEC, vector(3), Cadence(40, "step"), {}, RNG),
    "cross entropy": lambda: OnPolicyCrossEntropy(
        OnPolicyCrossEntropySpec(name="x", cross_entropy=0.5), vector(3), Cadence(5, "episode"), {}, RNG
    ),
}


def drained(memory: MemoryBase, ended: Array, start: int, stop: int) -> list[list[float]]:
    """Feed rows start <= t < stop; the observations of each batch that became ready."""
    batches = list[list[float]]()
    for t in range(start, stop):
        add(memory, t, ended[t])
        if memory.ready():
            obs = memory.sample().obs
            assert isinstance(obs, torch.Tensor)
            batches.append(obs.flatten().tolist())
    return batches


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("pause", [1, 39, 57, 1300])
def test_a_memory_saved_in_mid_batch_goes_on_as_if_nothing_had_been(name: str, pause: int) -> None:
    ended = np.random.default_rng(8).random((1500, 3)) < 0.02
    ended[100:1250] = False  # episodes longer than the first buffer
    memory, copy = MAKERS[name](), MAKERS[name]()
    drained(memory, ended, 0, pause)
    state: State = memory.state_dict()
    expected = drained(memory, ended, pause, 1500)  # must not reach into the saved state
    copy.load_state_dict(state)
    assert drained(copy, ended, pause, 1500) == expected
    assert len(expected) > 1


@pytest.mark.parametrize("name", MAKERS)
def test_a_used_memory_takes_on_an_older_state(name: str) -> None:
    ended = np.random.default_rng(9).random((400, 3)) < 0.02
    memory = MAKERS[name]()
    drained(memory, ended, 0, 130)
    state = memory.state_dict()
    expected = drained(memory, ended, 130, 400)
    memory.load_state_dict(state)
    assert drained(memory, ended, 130, 400) == expected
