"""Seeds of the envs of a session: of training, and others of evaluation."""

from __future__ import annotations

from slm_lab.spec.schema import EnvSpec

LARGEST = 2**31 - 1  # what libraries in C++ take for a seed: a positive 32-bit integer


def env_seeds(spec: EnvSpec, key: tuple[int, ...], training: bool) -> list[int]:
    """One seed for each env, from (base, trial, session)."""
    # late: worker processes import this package, and torch would cost each of them seconds
    from slm_lab.lib.rng import Consumer, seed_of

    consumer = Consumer.ENV if training else Consumer.EVAL
    return [seed_of(*key, consumer, i) for i in range(spec.num_envs)]


def later_seeds(seeds: list[int], steps: int) -> list[int]:
    """Seeds for envs that start anew after so many steps, because their episodes could not be saved."""
    from slm_lab.lib.rng import seed_of  # late, as above

    return [seed_of(seed, steps) for seed in seeds]
