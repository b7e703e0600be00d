"""What tests of searches share: a tiny spec with a space, trials written by hand, jobs that need no Ray."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from run_helpers import NEVER, tiny

from slm_lab.experiment.control import RunOptions
from slm_lab.experiment.paths import Paths
from slm_lab.experiment.search_record import Drawn, Ending
from slm_lab.experiment.search_trial import Job, readable
from slm_lab.lib.io import write_json
from slm_lab.spec.load import dump, from_mapping
from slm_lab.spec.schema import Spec
from slm_lab.spec.space import Space, parse_space

GAMMA, LAYERS = "agent.algorithm.gamma", "agent.net.hid_layers"
SPACE: dict[str, Any] = {f"{GAMMA}__uniform": [0.9, 0.99], f"{LAYERS}__choice": [[8], [4, 4]]}


def searched(
    name: str = "tiny", search: Mapping[str, Any] = SPACE, env_name: str = "CartPole-v1", **sections: Any
) -> dict[str, Any]:
    """A tiny spec with a search space: gamma and the layers of its net."""
    return {**tiny("PPO", env_name, **sections), "name": name, "search": dict(search)}


def searched_spec(name: str = "tiny", **parts: Any) -> Spec:
    return from_mapping(searched(name, **parts), name).spec


def space_of(spec: Spec) -> Space:
    return parse_space(spec, [], readable)


def drawn(
    trial: int, score: float = math.nan, status: Ending = "done", frame: int = 300, gamma: float = 0.95, layers: int = 0
) -> Drawn:
    """A trial of the tiny space."""
    items = SPACE[f"{LAYERS}__choice"]
    return Drawn(
        trial, {GAMMA: gamma, LAYERS: layers}, {GAMMA: gamma, LAYERS: items[layers]}, status, frame=frame, score=score
    )


def job(folder: Path, spec: Spec, every: float = NEVER) -> Job:
    """What the trials of a search get, with the folder that it has made."""
    paths = Paths(folder, spec.name)
    paths.make_folders()
    write_json(paths.experiment_spec, dump(spec))
    return Job(spec, space_of(spec), paths, RunOptions(folder.parent, jobs=2, checkpoint_every=every))
