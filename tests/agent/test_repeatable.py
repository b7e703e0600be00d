"""The same key gives the same numbers, and nothing but the key has a say in them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from specs_for_tests import tiny_session, tiny_spec
from torch import Tensor

from slm_lab.agent.algorithm import ALGORITHMS
from slm_lab.agent.algorithm.base import Key
from slm_lab.spec.schema import Spec

LEARNERS = [name for name, cls in ALGORITHMS.items() if cls.memory_kind is not None]

CASES = [(name, kind) for name, cls in ALGORITHMS.items() for kind in ("discrete", "continuous") if kind in cls.actions]
CONTINUOUS: dict[str, Any] = {"agent.algorithm.action_pdtype": "NormalTanh"}  # its entropy is sampled too
SPECS: dict[str, Any] = {
    "discrete": lambda name: tiny_spec(name, normalize_obs=True),
    "continuous": lambda name: tiny_spec(name, "Pendulum-v1", max_t=10, normalize_reward=True, **CONTINUOUS),
}


def trained(spec: Spec, key: Key) -> tuple[dict[str, Tensor], list[float]]:
    """Weights and returns after ten updates."""
    session = tiny_session(spec, key)
    session.run()
    if session.agent.memory is not None:
        assert session.clock.opt_step >= 8
    return dict(session.agent.algorithm.nets.state_dict()), list(session.tracker.returns)


def disturb() -> None:
    """Move every global generator."""
    random.seed(3)
    np.random.seed(3)
    torch.manual_seed(3)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_the_same_key_gives_the_same_weights_bit_by_bit(name: str, kind: str) -> None:
    spec = SPECS[kind](name)
    weights, returns = trained(spec, (5, 0, 2))
    disturb()
    again, returns_again = trained(spec, (5, 0, 2))
    assert returns
    assert returns == returns_again
    assert weights.keys() == again.keys()
    assert all(torch.equal(weights[key], again[key]) for key in weights)


@pytest.mark.parametrize("other", [(6, 0, 2), (5, 1, 2), (5, 0, 3)])
@pytest.mark.parametrize("name", LEARNERS)
def test_another_seed_trial_or_session_gives_others(name: str, other: Key) -> None:
    spec = SPECS["discrete"](name)
    weights, returns = trained(spec, (5, 0, 2))
    others, other_returns = trained(spec, other)
    matrices = [key for key in weights if weights[key].dim() > 1]
    assert matrices
    assert all(not torch.equal(weights[key], others[key]) for key in matrices)
    assert returns != other_returns


def global_states() -> tuple[Any, Any, Any]:
    numpy_state: Any = np.random.get_state(legacy=False)
    return random.getstate(), repr(numpy_state), torch.get_rng_state().tolist()


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_training_leaves_the_global_generators_alone(name: str, kind: str) -> None:
    session = tiny_session(SPECS[kind](name))
    before = global_states()
    session.run()
    assert global_states() == before


@pytest.mark.parametrize("name", ALGORITHMS)
def test_building_a_session_leaves_them_alone_too(name: str) -> None:
    before = global_states()
    tiny_session(SPECS["discrete"](name))
    assert global_states() == before
