"""The agents of public specs: every one parses and builds its nets, and those whose env is here also step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slm_lab.agent import make_agent
from slm_lab.agent.plan import plan_agent
from slm_lab.env import check_env
from slm_lab.experiment.check import one_env
from slm_lab.experiment.session import Session
from slm_lab.lib.errors import LabError
from slm_lab.spec.load import for_mode, load, spec_names
from slm_lab.spec.schema import Spec
from slm_lab.types import Spaces

SPECS = Path(__file__).resolve().parents[2] / "../shared/specs"
FILES = sorted(path for path in SPECS.glob("**/*") if path.suffix in (".json", ".yaml") and "agent" in path.read_text())
FILL = ["env=CartPole-v1", "max_frame=1e6"]

pytestmark = pytest.mark.skipif(not FILES, reason="the public specs are not here")


def specs_of(path: Path) -> list[Spec]:
    """Every spec of a file; placeholders get a value where there are any."""
    specs = list[Spec]()
    for name in spec_names(path):
        fill = ["env=ALE/Pong-v5", FILL[1]] if "atari" in path.name else FILL
        for sets in ([], fill, fill[:1], fill[1:], ["env=HalfCheetah-v5"]):
            try:
                specs.append(load(path, name, sets).spec)
                break
            except LabError:
                continue
    assert len(specs) == len(spec_names(path))
    return specs


IMAGE = Spaces((4, 84, 84), np.dtype(np.uint8), "discrete", 6, 4)
VECTOR = Spaces((24,), np.dtype(np.float32), "continuous", 6, 4)


def spaces_of(spec: Spec) -> Spaces:
    """What the spec's env shows; the like of it where it is not installed."""
    if spec.env.name.startswith("ALE/"):
        continuous = bool(spec.env.kwargs.get("continuous"))
        return replace(IMAGE, action_kind="continuous", action_dim=3) if continuous else IMAGE
    try:
        env = one_env(spec.env, 0.99)
    except LabError:
        assert "playground" in spec.env.name or "Bullet" in spec.env.name
        return VECTOR
    env.close()
    return replace(env.spaces, num_envs=4)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_public_agent_parses_and_builds_its_nets(path: Path) -> None:
    for spec in specs_of(path):
        agent = spec.agent.model_copy(update={"memory": {**spec.agent.memory, "max_size": 100}})
        if "max_size" not in spec.agent.memory:
            agent = spec.agent
        plan = plan_agent(agent, spec.env.num_envs, [])
        assert plan.spec.name == spec.agent.algorithm["name"]
        built = make_agent(plan, spec.env, spaces_of(spec), (0, 0, 0))
        assert any(parameter.requires_grad for parameter in built.algorithm.nets.parameters())


def runnable(spec: Spec) -> bool:
    try:
        check_env(spec.env)
    except LabError:
        return False
    return True


FAMILIES = ("dqn", "sac", "sarsa", "sil", "async_sac")


@pytest.mark.parametrize("path", [p for p in FILES if p.parent.name in FAMILIES], ids=lambda path: path.name)
def test_public_specs_of_replaying_and_imitating_algorithms_step(path: Path) -> None:
    specs = [spec for spec in specs_of(path) if runnable(spec)]
    if not specs:
        pytest.skip("its nets or its env come with a later version")
    for spec in specs:
        small = for_mode(spec, "test")
        session = Session(small, plan_agent(small.agent, small.env.num_envs, []), (0, 0, 0))
        session.run()
        session.close()
        assert session.clock.frame >= 40
