"""The agents of public specs: every one parses, and those whose nets we have also step, unmodified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slm_lab.agent.net import NETS
from slm_lab.agent.plan import plan_agent
from slm_lab.env import check_env
from slm_lab.experiment.session import Session
from slm_lab.lib.errors import LabError
from slm_lab.spec.load import for_mode, load, spec_names
from slm_lab.spec.schema import AgentSpec, Spec

SPECS = Path(__file__).resolve().parents[2] / "../shared/specs"
FILES = sorted(path for path in SPECS.glob("benchmark/*/*") if path.suffix in (".json", ".yaml"))
FILL = ["env=CartPole-v1", "max_frame=1e6"]
STAND_IN = {"type": "MLPNet", "hid_layers": [8], "hid_layers_activation": "relu"}

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


def known(net: dict[str, Any] | None) -> bool:
    return net is None or net.get("type") in NETS


def with_known_nets(agent: AgentSpec) -> AgentSpec:
    """The agent with a plain net where its own comes with a later version."""
    nets = {"net": agent.net, "critic_net": agent.critic_net}
    return agent.model_copy(update={name: STAND_IN for name, net in nets.items() if not known(net)})


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_sections_of_every_public_agent_parse(path: Path) -> None:
    for spec in specs_of(path):
        agent = with_known_nets(spec.agent)
        plan = plan_agent(agent, spec.env.num_envs, [])
        assert plan.spec.name == spec.agent.algorithm["name"]


def runnable(spec: Spec) -> bool:
    try:
        check_env(spec.env)
    except LabError:
        return False
    return known(spec.agent.net) and known(spec.agent.critic_net)


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
