"""What a random agent scores: the zero of `strength`. Measured once, shipped as JSON, never measured inside a run.

`python -m slm_lab.spec.random_baseline` measures every env of ENVS again; with an env id, and its kwargs as JSON where
it has any, it measures that one alone. Either way the numbers are merged into the file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from slm_lab.lib.errors import LabError
from slm_lab.lib.io import read_json, write_json

FILE = Path(__file__).with_suffix(".json")
MUJOCO = (
    "Ant HalfCheetah Hopper Humanoid HumanoidStandup InvertedDoublePendulum InvertedPendulum Pusher Reacher Swimmer "
    "Walker2d"
)
ENVS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("CartPole-v0", {}),
    ("CartPole-v1", {}),
    ("Acrobot-v1", {}),
    ("Pendulum-v1", {}),
    ("MountainCar-v0", {}),
    ("MountainCarContinuous-v0", {}),
    ("LunarLander-v3", {}),
    ("LunarLander-v3", {"continuous": True}),
    ("LunarLanderContinuous-v3", {}),
    ("BipedalWalker-v3", {}),
    ("BipedalWalkerHardcore-v3", {}),
    *((f"{name}-v5", {}) for name in MUJOCO.split()),
)


def entry_key(env_name: str, kwargs: Mapping[str, Any]) -> str:
    """The env's key in the file: its id, then its kwargs sorted, as in `LunarLander-v3{"continuous":true}`."""
    return env_name + (json.dumps(dict(kwargs), sort_keys=True, separators=(",", ":"), default=str) if kwargs else "")


def baseline(env_name: str, kwargs: Mapping[str, Any]) -> float | None:
    """Mean return of random actions, or None where nobody measured this env with these kwargs."""
    entry = read_json(FILE).get(entry_key(env_name, kwargs))
    return None if entry is None else float(entry["mean"])


def random_returns(env_name: str, kwargs: Mapping[str, Any], episodes: int) -> list[float]:
    """Returns of random episodes with seeds 0, 1, ...; the same numbers every time."""
    import gymnasium

    env = gymnasium.make(env_name, **kwargs)
    returns = []
    for seed in range(episodes):
        env.reset(seed=seed)
        # not the env's own seed: both would draw the same numbers, and actions would follow the env's noise
        env.action_space.seed(1_000_000 + seed)
        total, ended = 0.0, False
        while not ended:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            total, ended = total + float(reward), terminated or truncated
        returns.append(total)
    env.close()
    return returns


def measure(env_name: str, kwargs: Mapping[str, Any], episodes: int = 100) -> dict[str, float]:
    """Mean and standard deviation of the return of random actions."""
    returns = np.array(random_returns(env_name, kwargs, episodes))
    return {"mean": round(float(returns.mean()), 4), "std": round(float(returns.std()), 4)}


def main(arguments: list[str]) -> None:
    """Measure every known env, or the one named, and merge the numbers into the file."""
    envs = ((arguments[0], _kwargs(arguments[1:])),) if arguments else ENVS
    known = read_json(FILE) if FILE.exists() else {}
    write_json(FILE, known | {entry_key(name, kwargs): measure(name, kwargs) for name, kwargs in envs})


def _kwargs(arguments: list[str]) -> dict[str, Any]:
    """The env's kwargs from the command line: nothing, or one JSON object."""
    try:
        kwargs = json.loads(arguments[0]) if arguments else {}
    except json.JSONDecodeError:
        kwargs = None
    if not isinstance(kwargs, dict) or len(arguments) > 1:
        raise LabError(
            f"env kwargs: got {' '.join(arguments)!r}; allowed: one JSON object such as '{{\"continuous\": true}}'."
        )
    return kwargs


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except LabError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
