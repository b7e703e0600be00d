"""Named random streams: every consumer draws from its own, so adding one never shifts another."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import torch

from slm_lab.lib.noise import Noise
from slm_lab.types import State


class Consumer(IntEnum):
    """Who draws. Numbers are part of every recorded result: append, never renumber."""

    INIT = 0
    ACT = 1
    TRAIN = 2
    MEMORY = 3
    ENV = 4
    EVAL = 5
    PROBE = 6


def seed_of(*key: int) -> int:
    """One 32-bit seed from a key such as (base, trial, session, consumer, env)."""
    return int(np.random.SeedSequence([k & 0xFFFFFFFF for k in key]).generate_state(1)[0])


class Rng:
    """One random stream: a numpy and a torch generator from the same key; `noise` draws from the latter."""

    def __init__(self, *key: int) -> None:
        numpy_seed, torch_seed = np.random.SeedSequence([k & 0xFFFFFFFF for k in key]).generate_state(2, np.uint64)
        self.numpy = np.random.default_rng(int(numpy_seed))
        self.torch = torch.Generator().manual_seed(int(torch_seed >> np.uint64(1)))
        self.noise = Noise(self.torch)

    def state_dict(self) -> State:
        return {"numpy": self.numpy.bit_generator.state, "torch": self.torch.get_state()}

    def load_state_dict(self, state: State) -> None:
        self.numpy.bit_generator.state = state["numpy"]
        self.torch.set_state(state["torch"])
