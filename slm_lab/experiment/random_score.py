"""What random actions score: the zero of `strength`. Measured by a command, shipped as JSON, never inside a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from slm_lab.agent import Player, make_agent
from slm_lab.agent.plan import plan_agent
from slm_lab.env import check_env, make_env
from slm_lab.experiment.evaluate import play
from slm_lab.lib.rng import Consumer, Rng
from slm_lab.spec.schema import AgentSpec, EnvSpec

KEY = (0, 0, 0)
AT_ONCE = 10  # envs side by side: a part of the seeds, so not to be changed


def random_returns(name: str, kwargs: Mapping[str, Any], episodes: int) -> list[float]:
    """Returns of random episodes of an env of any family, as runs step it; the same numbers every time."""
    spec = EnvSpec(**{"name": name, "num_envs": min(AT_ONCE, episodes), "max_frame": 1, **kwargs})
    check_env(spec)
    env = make_env(spec, 0.99, KEY, training=False)
    try:
        plan = plan_agent(AgentSpec(algorithm={"name": "Random"}), spec.num_envs, [])
        player = Player(make_agent(plan, spec, env.spaces, KEY), spec.num_envs)
        return play(player, env, episodes, Rng(*KEY, Consumer.EVAL))
    finally:
        env.close()


def measure(name: str, kwargs: Mapping[str, Any], episodes: int = 100) -> dict[str, float]:
    """Mean and standard deviation of the return of random actions."""
    returns = np.array(random_returns(name, kwargs, episodes))
    return {"mean": round(float(returns.mean()), 4), "std": round(float(returns.std()), 4)}
