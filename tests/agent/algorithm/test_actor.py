"""What policy-gradient algorithms share: acting in eval mode, learning in training mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from specs_for_tests import tiny_session, tiny_spec

from slm_lab.agent.algorithm import ALGORITHMS

LEARNERS = [name for name, cls in ALGORITHMS.items() if cls.memory_kind == "on_policy"]


def learner_of(name: str) -> tuple[Any, Any]:
    spec = tiny_spec(name, "CartPole-v1", **{"agent.net.batch_norm": True})
    session = tiny_session(spec)
    return session, session.agent.algorithm.learner  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", LEARNERS)
def test_acting_leaves_batch_statistics_alone_and_learning_moves_them(name: str) -> None:
    session, learner = learner_of(name)
    statistics = [b for key, b in learner.net.named_buffers() if "running_mean" in key]
    assert statistics
    assert not learner.net.training
    while session.clock.opt_step == 0:
        before = [b.clone() for b in statistics]
        session.step()
        if session.clock.opt_step == 0:
            assert all(torch.equal(a, b) for a, b in zip(before, statistics, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(before, statistics, strict=True))
    assert not learner.net.training
