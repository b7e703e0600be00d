"""Random streams: their own for every consumer, the same every time, and saved in mid-stream."""

from __future__ import annotations

import itertools

import numpy as np
import torch

from slm_lab.lib.rng import Consumer, Rng, seed_of


def draws(rng: Rng) -> tuple[list[float], list[float]]:
    return rng.numpy.random(3).tolist(), torch.rand(3, generator=rng.torch).tolist()


def test_the_same_key_gives_the_same_numbers_and_another_key_others() -> None:
    assert draws(Rng(1, 2, 3)) == draws(Rng(1, 2, 3))
    for a, b in itertools.combinations([(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0), (1, 1, 1)], 2):
        ours, theirs = draws(Rng(*a)), draws(Rng(*b))
        assert ours[0] != theirs[0]
        assert ours[1] != theirs[1]


def test_numpy_and_torch_streams_of_a_key_are_not_the_same_numbers() -> None:
    numpy, torches = draws(Rng(5))
    assert not np.allclose(numpy, torches)


def test_sessions_consumers_and_envs_never_share_a_seed() -> None:
    keys = itertools.product(range(3), range(2), range(8), Consumer, range(16))
    seeds = [seed_of(*key) for key in keys]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**32 for seed in seeds)


def test_seeds_are_part_of_every_recorded_result() -> None:
    # from numpy.random.SeedSequence, whose output numpy promises to keep
    assert seed_of(0, 0, 0) == int(np.random.SeedSequence([0, 0, 0]).generate_state(1)[0])
    assert [consumer.value for consumer in Consumer] == list(range(len(Consumer)))
    assert (Consumer.INIT, Consumer.ACT, Consumer.TRAIN, Consumer.ENV, Consumer.EVAL) == (0, 1, 2, 4, 5)


def test_a_stream_goes_on_where_it_was_saved_in_any_other_generator() -> None:
    rng, other = Rng(1), Rng(2)
    rng.numpy.standard_normal(5)
    torch.randn(5, generator=rng.torch)
    state = rng.state_dict()
    expected = draws(rng)
    other.load_state_dict(state)
    assert draws(other) == expected


def test_a_saved_state_does_not_move_with_its_stream() -> None:
    rng = Rng(1)
    state = rng.state_dict()
    expected = draws(rng)
    rng.load_state_dict(state)
    assert draws(rng) == expected


def test_streams_leave_the_global_generators_alone() -> None:
    torch.manual_seed(0)
    np.random.seed(0)
    expected = torch.rand(1).item(), np.random.rand()
    torch.manual_seed(0)
    np.random.seed(0)
    draws(Rng(1))
    assert (torch.rand(1).item(), np.random.rand()) == expected
