from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np

from slm_lab.env.engine import SyncEngine
from slm_lab.spec.schema import EnvSpec


def engine(name: str, n: int, **rest: Any) -> SyncEngine:
    return SyncEngine(EnvSpec(name=name, max_frame=1, **rest), list(range(n)))


def test_a_step_gives_true_successors_and_resets_nothing() -> None:
    sync = engine("tiny_envs:Countdown", 2, length=2)
    sync.reset(np.arange(2))
    sync.step(np.zeros(2, np.int64))
    obs, reward, terminated, truncated, mask, over, broken = sync.step(np.zeros(2, np.int64))
    assert isinstance(obs, np.ndarray)
    assert obs.tolist() == [[99], [99]]
    assert obs.dtype == np.float32
    assert (reward.tolist(), reward.dtype) == ([2, 2], np.float64)
    assert terminated.all()
    assert not truncated.any()
    assert mask is None
    assert over is None  # every end is one
    assert broken is None


def test_only_the_envs_at_the_index_are_reset() -> None:
    sync = engine("tiny_envs:Countdown", 3, length=9)
    sync.reset(np.arange(3))
    sync.step(np.zeros(3, np.int64))
    rows, _ = sync.reset(np.array([2, 0]))
    obs, _ = sync.current()
    assert isinstance(rows, np.ndarray)
    assert isinstance(obs, np.ndarray)
    assert rows.tolist() == [[0], [0]]
    assert obs.tolist() == [[0], [1], [0]]


def test_returned_arrays_are_never_written_again() -> None:
    sync = engine("CartPole-v1", 2)
    sync.reset(np.arange(2))
    first = sync.step(np.array([0, 1]))
    kept = deepcopy(first[:4])
    for _ in range(3):
        sync.step(np.array([1, 1]))
    np.testing.assert_equal(first[:4], kept)


def test_a_callers_action_array_may_be_reused() -> None:
    sync = engine("tiny_envs:Echo", 1, length=9)
    sync.reset(np.arange(1))
    action = np.ones((1, 3), np.float32)
    sync.step(action)
    action[:] = 0
    assert sync.state_dict()["slots"][0]["actions"].tolist() == [[1, 1, 1]]


def test_a_mask_in_the_observation_is_taken_out_of_it() -> None:
    sync = engine("tiny_envs:Mixed", 2, length=9)
    obs, mask = sync.reset(np.arange(2))
    assert isinstance(obs, dict)
    assert mask is not None
    assert set(obs) == {"image", "index"}
    assert mask.tolist() == [[True, False], [True, False]]
    obs, _, _, _, mask, *_ = sync.step(np.array([0, 1]))
    assert mask is not None
    assert mask.tolist() == [[False, True], [True, False]]
    assert obs["image"].dtype == np.uint8
    assert obs["index"].tolist() == [[0, 1, 0], [0, 1, 0]]


def test_a_mask_in_the_info_is_found() -> None:
    sync = engine("tiny_envs:Infos", 1, length=9)
    obs, mask = sync.reset(np.arange(1))
    assert isinstance(obs, dict)
    assert mask is not None
    assert mask.tolist() == [[True, False]]
    assert obs["0"].tolist() == [[1, 0, 0, 0]]
    step = sync.step(np.zeros(1, np.int64))
    assert step.mask is not None
    assert step.mask.tolist() == [[True, True]]
