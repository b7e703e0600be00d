"""The packaged specs of PPO on MuJoCo Playground: what they set, and that each runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from specs_for_tests import tiny_session

import slm_lab.spec
from slm_lab.agent.plan import plan_agent
from slm_lab.spec.load import load, spec_names
from slm_lab.spec.schema import Spec

pytest.importorskip("envpool")

FILE = Path(slm_lab.spec.__file__).parent / "benchmark/ppo/ppo_playground.yaml"
FACTS: dict[str, dict[str, Any]] = {
    "ppo_playground": {"gamma": 0.995, "time_horizon": 30, "training_epoch": 16, "minibatch_size": 2048, "lr": 1e-3},
    "ppo_playground_vnorm": {"normalize_v_targets": True, "min_factor": 0.033},
    "ppo_playground_fingerspin": {"gamma": 0.95, "minibatch_size": 4096, "training_epoch": 16},
    "ppo_playground_pendulum": {"gamma": 0.995, "minibatch_size": 4096, "training_epoch": 4},
    "ppo_playground_humanoid": {
        "action_pdtype": "NormalTanh",
        "normalize_v_targets": True,
        "policy": [256, 256],
        "min_factor": None,
        "reward_scale": 10,
    },
    "ppo_playground_rs10": {"reward_scale": 10, "min_factor": None, "minibatch_size": 2048},
    "ppo_playground_constlr": {"min_factor": None, "minibatch_size": 4096, "reward_scale": 1, "clip": 0.2},
    "ppo_playground_vnorm_constlr": {"min_factor": None, "normalize_v_targets": True, "clip": 0.2},
    "ppo_playground_constlr_clip03": {"min_factor": None, "normalize_v_targets": False, "clip": 0.3},
    "ppo_playground_vnorm_constlr_clip03": {"min_factor": None, "normalize_v_targets": True, "clip": 0.3},
    "ppo_playground_brax_policy": {"policy": [32] * 4, "value": [256] * 3, "clip": 0.2},
    "ppo_playground_brax": {"num_unrolls": 16, "minibatch_size": 30_720, "value": [256] * 5, "norm": None},
    "ppo_playground_loco": {
        "gamma": 0.97,
        "time_horizon": 20,
        "training_epoch": 4,
        "minibatch_size": 4096,
        "clip": 0.3,
        "lr": 3e-4,
        "policy": [128] * 4,
        "value": [256] * 5,
        "min_factor": None,
    },
    "ppo_playground_loco_go1": {"policy": [512, 256, 128], "value": [512, 256, 128], "clip": 0.3},
    "ppo_playground_loco_precise": {"clip": 0.2, "entropy": 0.005, "policy": [128] * 4, "lr": 3e-4},
    "ppo_playground_manip": {
        "policy": [32] * 4,
        "time_horizon": 10,
        "training_epoch": 8,
        "entropy": 0.02,
        "lr": 1e-3,
        "gamma": 0.97,
    },
    "ppo_playground_manip_aloha": {"policy": [256] * 3, "time_horizon": 15, "lr": 1e-3},
    "ppo_playground_manip_aloha_peg": {"policy": [256] * 4, "time_horizon": 40, "lr": 3e-4},
    "ppo_playground_manip_dexterous": {"policy": [512, 256, 128], "time_horizon": 40, "gamma": 0.99, "lr": 3e-4},
    "ppo_playground_manip_robotiq": {"policy": [64] * 4, "time_horizon": 100, "gamma": 0.994, "lr": 6e-4},
    "ppo_playground_cpu": {"action_pdtype": "NormalTanh", "time_horizon": 64, "clip": 0.3},
}


def sets_for(name: str) -> list[str]:
    return [] if name == "ppo_playground_cpu" else ["env=playground/CartpoleBalance"]


def facts(spec: Spec) -> dict[str, Any]:
    plan = plan_agent(spec.agent, spec.env.num_envs, [])
    actor, critic, algorithm = plan.nets.actor, plan.nets.critic, plan.spec
    assert critic is not None
    assert actor.optim_spec == critic.optim_spec
    assert actor.lr_scheduler_spec == critic.lr_scheduler_spec
    return {
        **algorithm.model_dump(),
        "clip": algorithm.clip_eps_spec.start_val,
        "entropy": algorithm.entropy_coef_spec.start_val,
        "policy": actor.hid_layers,
        "value": critic.hid_layers,
        "lr": actor.optim_spec.lr,
        "norm": actor.clip_grad_val,
        "min_factor": actor.lr_scheduler_spec and actor.lr_scheduler_spec.kwargs["min_factor"],
        "reward_scale": spec.env.reward_scale,
    }


def test_the_file_holds_these_specs() -> None:
    assert spec_names(FILE) == list(FACTS)


@pytest.mark.parametrize("name", FACTS)
def test_a_spec_says_what_is_known_of_it(name: str) -> None:
    spec = load(FILE, name, sets_for(name)).spec
    said = facts(spec)
    assert {key: said[key] for key in FACTS[name]} == FACTS[name]
    assert spec.env.normalize_obs
    assert spec.env.name == "playground/CartpoleBalance"
    assert "privileged" not in spec.env.kwargs  # most tasks have none


SMALL = [
    "env.num_envs=2",
    "agent.algorithm.time_horizon=3",
    "agent.algorithm.minibatch_size=4",
    "agent.algorithm.training_epoch=1",
]


@pytest.mark.parametrize("name", FACTS)
def test_a_spec_runs(name: str) -> None:
    frames = 2 * 3 * (16 if name == "ppo_playground_brax" else 1)
    session = tiny_session(load(FILE, name, [*sets_for(name), *SMALL, f"max_frame={frames}"]).spec)
    session.run()
    session.close()
    assert session.clock.frame == frames
    assert session.clock.opt_step == frames // 4 + (frames % 4 > 0)


def test_the_settings_in_the_file_give_the_critic_alone_what_is_privileged() -> None:
    (line,) = re.findall(r"^# +-s env.privileged.*", FILE.read_text(), re.MULTILINE)
    sets = [text.strip("'") for text in line.split()[2::2]]
    assert len(sets) == 3
    spec = load(FILE, "ppo_playground_loco_go1", ["env=playground/Go1Getup", *sets, *SMALL, "max_frame=6"]).spec
    session = tiny_session(spec)
    session.run()
    session.close()
    net = session.agent.algorithm.learner.net
    inputs = {name: next(p for p in group if p.dim() == 2).shape[1] for name, group in net.groups().items()}
    assert inputs == {"actor": 42, "critic": 91}
