from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from made_up import make, spaces
from specs_for_tests import tiny_session, tiny_spec

from slm_lab.lib.rng import Consumer, Rng
from slm_lab.types import Spaces

KINDS: dict[str, Spaces] = {
    "discrete": spaces("discrete", 5),
    "continuous": spaces("continuous", 2),
    "multi_discrete": spaces("multi_discrete", 2, nvec=(2, 4)),
    "multi_binary": spaces("multi_binary", 3),
}


@pytest.mark.parametrize("kind", KINDS)
def test_actions_fill_their_space(kind: str) -> None:
    agent = make("Random", KINDS[kind])
    actions = np.concatenate([agent.act(agent.see(np.zeros((4, 3))), 0).action for _ in range(200)])
    assert actions.shape == (800, *KINDS[kind].action_shape)
    assert actions.dtype == KINDS[kind].action_dtype
    if kind == "continuous":
        assert -1 <= actions.min() < -0.95
        assert 0.95 < actions.max() <= 1
    else:
        expected = {"discrete": [5], "multi_discrete": [2, 4], "multi_binary": [2, 2, 2]}[kind]
        columns = actions.reshape(800, -1).T
        assert [sorted(set(column.tolist())) for column in columns] == [list(range(n)) for n in expected]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 3, 9])
def test_there_is_one_action_for_each_observation_asked_about(kind: str, rows: int) -> None:
    agent = make("Random", KINDS[kind])  # trained, so to speak, on 4 envs
    obs = np.zeros((rows, 3))
    assert len(agent.decide(obs).env_action) == rows
    assert len(agent.decide(obs, Rng(0, 0, 0, Consumer.EVAL)).env_action) == rows
    assert len(agent.decide({"a": obs, "b": obs}).env_action) == rows


def test_nothing_is_stored_or_learnt() -> None:
    session = tiny_session(tiny_spec("Random", max_frame=80))
    session.run()
    assert session.agent.memory is None
    assert session.clock.opt_step == 0
    assert session.clock.frame == 80


def test_keys_of_older_specs_are_accepted() -> None:
    overrides: dict[str, Any] = {"agent.algorithm.training_frequency": 4, "agent.memory.name": "OnPolicyReplay"}
    assert make("Random", **overrides).memory is None
