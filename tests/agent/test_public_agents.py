"""The agents of public specs: every one parses and builds its nets, and one of each family and env runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from spec_files import BULLET, FILES, SPECS, run_test_mode, specs_of

from slm_lab.agent import make_agent
from slm_lab.agent.plan import plan_agent
from slm_lab.experiment.check import one_env
from slm_lab.spec.schema import Spec
from slm_lab.types import Spaces

pytestmark = pytest.mark.skipif(not FILES, reason="the public specs are not here")
AGENTS = [path for path in FILES if path != BULLET]  # its env exists no more

IMAGE = Spaces((4, 84, 84), np.dtype(np.uint8), "discrete", 6, 4)


def spaces_of(spec: Spec) -> Spaces:
    """What the spec's env shows; games are slow to start, so theirs are known here."""
    if spec.env.name.startswith("ALE/"):
        continuous = bool(spec.env.kwargs.get("continuous"))
        return replace(IMAGE, action_kind="continuous", action_dim=3) if continuous else IMAGE
    env = one_env(spec.env, 0.99)
    env.close()
    return replace(env.spaces, num_envs=4)


@pytest.mark.parametrize("path", AGENTS, ids=lambda path: path.name)
def test_every_public_agent_parses_and_builds_its_nets(path: Path) -> None:
    for spec in specs_of(path):
        agent = spec.agent.model_copy(update={"memory": {**spec.agent.memory, "max_size": 100}})
        if "max_size" not in spec.agent.memory:
            agent = spec.agent
        plan = plan_agent(agent, spec.env.num_envs, [])
        assert plan.spec.name == spec.agent.algorithm["name"]
        built = make_agent(plan, spec.env, spaces_of(spec), (0, 0, 0))
        assert any(parameter.requires_grad for parameter in built.algorithm.nets.parameters())


ONE_OF_EACH = """
    a2c/a2c_gae_cartpole.json a2c/a2c_gae_atari.json a2c/a2c_nstep_lunar.json a2c/a2c_nstep_mujoco.json
    a3c/a3c_gae_pong.json async_sac/async_sac_lunar.json async_sac/async_sac_pong.json async_sac/async_sac_mujoco.json
    crossq/crossq_atari.yaml crossq/crossq_box2d.yaml crossq/crossq_classic.yaml crossq/crossq_mujoco.yaml
    dppo/dppo_pong.json dqn/dqn_cartpole.json dqn/ddqn_per_lunar.json dqn/ddqn_per_pong.json dqn/dueling_dqn_pong.json
    ppo/ppo_cartpole.yaml ppo/ppo_atari.json ppo/ppo_lunar.json ppo/ppo_mujoco.json reinforce/reinforce_cartpole.json
    sac/sac_cartpole.yaml sac/sac_atari.json sac/sac_lunar.json sac/sac_mujoco.json sarsa/sarsa_cartpole.json
    sil/ppo_sil_cartpole.json
"""  # every folder of algorithms with every family of envs it has; `python tests/spec_files.py` runs all


@pytest.mark.parametrize("file", ONE_OF_EACH.split())
def test_spec_files_run_on_each_family_of_envs(file: str) -> None:
    session = run_test_mode(next(specs_of(SPECS / "benchmark" / file)))
    assert session.clock.opt_step > 0
