"""Trained agents outside of training: what they act, and that their runs are only read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from run_helpers import CONV, GRU, LSTM, assert_equal, contents, no_sinks, run_tiny, tiny  # noqa: F401
from task_envs import Both, Catch, Masked, MaskedEntry, MaskedPair

import slm_lab
from slm_lab.experiment import checkpoint
from slm_lab.experiment.policy import enjoy, find_trained
from slm_lab.lib.errors import LabError


def finished(data: Path, specs: Mapping[str, Mapping[str, Any]]) -> dict[str, Path]:
    """Folders of finished runs, by the names of their specs; nothing is drawn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("slm_lab.experiment.session.session_graphs", lambda *_: None)
        patch.setattr("slm_lab.experiment.metric_files.trial_graphs", lambda *_: [])
        return {name: run_tiny(data, {**spec, "name": name}).predir for name, spec in specs.items()}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One finished run each, by env."""
    specs = {
        "pendulum": tiny("PPO", "Pendulum-v1", net={"shared": False, "log_std_init": 0.0}),
        "cartpole": tiny("PPO", "CartPole-v1", net={"shared": False}),
    }
    return finished(tmp_path_factory.mktemp("data"), specs)


def best_of(folder: Path) -> dict[str, Any]:
    (path,) = (folder / "model").glob("*_ckpt-best.safetensors")
    return checkpoint.load(path)


def greedy_by_hand(best: dict[str, Any], obs: Any) -> Any:
    """The actor's output for one observation, from the saved numbers alone."""
    x = np.asarray(obs, np.float32)
    if best["normalizer"]:
        moments = best["normalizer"]["obs"]
        x = np.clip((x - moments["mean"]) / np.sqrt(moments["var"] + 1e-8), -10, 10).astype(np.float32)
    weights = {key.removeprefix("net.actor.net."): value for key, value in best["nets"].items() if ".actor." in key}
    hidden = torch.tanh(torch.from_numpy(x) @ weights["body.0.weight"].T + weights["body.0.bias"])
    return (hidden @ weights["heads.0.weight"].T + weights["heads.0.bias"]).numpy()


def test_a_discrete_agent_takes_the_action_of_the_highest_logit(runs: dict[str, Path]) -> None:
    agent, best = slm_lab.load(runs["cartpole"]), best_of(runs["cartpole"])
    env = gym.make("CartPole-v1")
    obs, _ = env.reset(seed=0)
    for _ in range(20):
        action = agent.act(obs)
        assert isinstance(action, int)
        assert action == int(greedy_by_hand(best, obs).argmax())
        obs, _, ended, _, _ = env.step(action)
        if ended:
            obs, _ = env.reset()


def test_a_continuous_agent_normalises_and_scales_as_in_training(runs: dict[str, Path]) -> None:
    agent, best = slm_lab.load(str(runs["pendulum"])), best_of(runs["pendulum"])
    assert best["normalizer"]["obs"]["count"] > 100
    env = gym.make("Pendulum-v1")
    obs, _ = env.reset(seed=0)
    for _ in range(20):
        action = agent.act(obs)
        # the policy speaks in [-1, 1], the env takes [-2, 2]
        assert action == pytest.approx(2 * np.clip(greedy_by_hand(best, obs), -1, 1), abs=1e-6)
        assert env.action_space.contains(action)
        obs = env.step(action)[0]


def test_actions_stay_within_bounds_whatever_is_observed(runs: dict[str, Path]) -> None:
    agent = slm_lab.load(runs["pendulum"])
    for scale in (0.0, 1.0, 1e6):
        for deterministic in (True, False):
            action = agent.act(np.full(3, scale, np.float32), deterministic=deterministic)
            assert action.shape == (1,)
            assert -2 <= action[0] <= 2


def test_asking_for_actions_changes_nothing_of_the_agent(runs: dict[str, Path]) -> None:
    agent = slm_lab.load(runs["pendulum"])
    before = agent.agent.state_dict()
    first = agent.act(np.ones(3, np.float32))
    for _ in range(3):
        assert agent.act(np.ones(3, np.float32)) == first
    assert_equal(agent.agent.state_dict(), before)


def test_sampled_actions_vary_and_are_the_same_for_every_load(runs: dict[str, Path]) -> None:
    def sample() -> list[float]:
        agent = slm_lab.load(runs["pendulum"])
        return [float(agent.act(np.ones(3, np.float32), deterministic=False)[0]) for _ in range(5)]

    first = sample()
    assert len(set(first)) > 1
    assert sample() == first


@pytest.fixture(scope="module")
def more_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs of nets with a memory, and of the tasks."""
    cases = {
        "gru": ("PPO", "Pendulum-v1", GRU),
        "lstm": ("SoftActorCritic", "Pendulum-v1", LSTM),
        "catch": ("PPO", "task_envs:Catch", CONV),
        "both": ("PPO", "task_envs:Both", {}),
        "masked": ("PPO", "task_envs:Masked", {}),
        "masked_gru": ("DQN", "task_envs:Masked", GRU),
        "entry": ("PPO", "task_envs:MaskedEntry", {}),
        "pair": ("PPO", "task_envs:MaskedPair", {}),
    }
    specs = {
        name: tiny(algorithm, env_name, net=net, env={"max_frame": 180})
        for name, (algorithm, env_name, net) in cases.items()
    }
    return finished(tmp_path_factory.mktemp("more"), specs)


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("name", ["masked", "masked_gru"])
def test_a_mask_of_the_info_is_given_with_the_observation(
    more_runs: dict[str, Path], name: str, deterministic: bool
) -> None:
    agent, env = slm_lab.load(more_runs[name]), Masked()
    obs, info = env.reset(seed=0)
    for _ in range(100):  # an action that is not allowed raises
        obs, _, ended, _, info = env.step(agent.act(obs, deterministic, info["action_mask"]))
        if ended:
            agent.reset()
            obs, info = env.reset()


@pytest.mark.parametrize("only", range(4))
def test_the_only_allowed_action_is_taken(more_runs: dict[str, Path], only: int) -> None:
    agent, entry_agent = slm_lab.load(more_runs["masked"]), slm_lab.load(more_runs["entry"])
    mask, obs = np.arange(4) == only, np.ones(4, np.float32)
    for given in (mask, mask.astype(np.int8), mask.tolist()):
        assert agent.act(obs, action_mask=given) == only
    assert entry_agent.act({"obs": obs, "action_mask": mask.astype(np.int8)}) == only


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_mask_in_the_observation_is_found_there(more_runs: dict[str, Path], deterministic: bool) -> None:
    agent, env = slm_lab.load(more_runs["entry"]), MaskedEntry()
    obs, _ = env.reset(seed=0)
    for _ in range(100):
        obs, _, ended, _, _ = env.step(agent.act(obs, deterministic))
        if ended:
            obs, _ = env.reset()


@pytest.mark.parametrize("deterministic", [True, False])
def test_each_component_keeps_to_its_part_of_a_mask(more_runs: dict[str, Path], deterministic: bool) -> None:
    agent, env = slm_lab.load(more_runs["pair"]), MaskedPair()
    obs, info = env.reset(seed=0)
    for _ in range(100):
        mask = info["action_mask"]
        action = agent.act(obs, deterministic, mask)
        assert env.action_space.contains(action)
        if deterministic:
            assert np.array_equal(agent.act(obs, action_mask=(mask[:2], mask[2:])), action)
        obs, _, ended, _, info = env.step(action)
        if ended:
            obs, info = env.reset()


@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_a_policy_with_a_memory_begins_anew_at_a_reset(more_runs: dict[str, Path], name: str) -> None:
    agent = slm_lab.load(more_runs[name])
    env = gym.make("Pendulum-v1")
    shown = [env.reset(seed=0)[0], *(env.step(np.zeros(1, np.float32))[0] for _ in range(5))]
    first, second = ([agent.act(obs) for obs in shown] for _ in range(2))
    agent.reset()
    third = [agent.act(obs) for obs in shown]
    assert np.array_equal(third, first)
    assert not np.array_equal(second[0], first[0])  # it went on from what it remembered
    assert np.array_equal([slm_lab.load(more_runs[name]).act(shown[0])], first[:1])


def test_a_memory_is_of_one_agent_and_changes_nothing_of_its_run(more_runs: dict[str, Path]) -> None:
    before = contents(more_runs["gru"])
    one, other = slm_lab.load(more_runs["gru"]), slm_lab.load(more_runs["gru"])
    state = one.agent.state_dict()
    obs = np.ones(3, np.float32)
    expected = [one.act(obs) for _ in range(3)]
    assert np.array_equal([other.act(obs) for _ in range(3)], expected)
    assert_equal(one.agent.state_dict(), state)
    assert contents(more_runs["gru"]) == before


def test_a_policy_without_a_memory_is_the_same_before_and_after_a_reset(runs: dict[str, Path]) -> None:
    agent, obs = slm_lab.load(runs["pendulum"]), np.ones(3, np.float32)
    first = agent.act(obs)
    agent.reset()
    assert agent.act(obs) == first


@pytest.mark.parametrize(("name", "env"), [("catch", Catch()), ("both", Both())])
def test_images_and_entries_are_taken_as_the_env_gives_them(
    more_runs: dict[str, Path], name: str, env: gym.Env[Any, Any]
) -> None:
    agent = slm_lab.load(more_runs[name])
    obs, _ = env.reset(seed=0)
    for deterministic in (True, False) * 5:
        action = agent.act(obs, deterministic)
        assert isinstance(action, int)
        obs, _, ended, _, _ = env.step(action)
        if ended:
            obs, _ = env.reset()


@pytest.mark.parametrize("name", ["gru", "catch", "both", "masked", "masked_gru", "entry", "pair"])
def test_enjoy_plays_every_kind_of_env_and_net(more_runs: dict[str, Path], name: str) -> None:
    trained = find_trained(more_runs[name])
    for deterministic in (True, False):
        returns = enjoy(trained, episodes=3, deterministic=deterministic)
        assert len(returns) == 3
        assert enjoy(trained, episodes=3, deterministic=deterministic) == returns


def test_an_agent_without_nets_can_be_loaded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slm_lab.experiment.session.session_graphs", lambda *_: None)
    monkeypatch.setattr("slm_lab.experiment.metric_files.trial_graphs", lambda *_: [])
    folder = run_tiny(tmp_path, tiny("Random", env={"max_frame": 60})).predir
    assert slm_lab.load(folder).act(np.zeros(4, np.float32)) in (0, 1)
    assert len(enjoy(find_trained(folder), episodes=2, deterministic=False)) == 2


def test_enjoy_gives_the_returns_of_acting_by_hand_and_changes_nothing(runs: dict[str, Path]) -> None:
    folder = runs["pendulum"]
    before = contents(folder)
    trained = find_trained(folder)
    returns = enjoy(trained, episodes=3, deterministic=True)
    assert len(returns) == 3
    assert enjoy(trained, episodes=3, deterministic=True) == returns
    assert enjoy(trained, episodes=3, deterministic=True, seed=1) != returns
    assert enjoy(trained, episodes=3, deterministic=False) != returns
    assert contents(folder) == before
    assert all(-50 * 16.3 < total < 0 for total in returns)  # 50 raw steps each


def test_the_best_session_is_taken_unless_one_is_named(runs: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(runs["cartpole"], folder)
    for path in [p for p in folder.rglob("*") if "_t0_s0" in p.name and p.is_file()]:
        shutil.copy(path, path.with_name(path.name.replace("_t0_s0", "_t0_s1")))
    for name, session, score in (("", None, None), ("_s0", 0, 20.0), ("_s1", 1, 30.0)):
        path = folder / f"cartpole_t0{name}_spec.json"
        spec = json.loads(path.read_text())
        spec["meta"] |= {"max_session": 2, "session": session}
        path.write_text(json.dumps(spec))
        if session is not None:
            scalar = folder / f"info/cartpole_t0_s{session}_session_metrics_scalar_train.json"
            scalar.write_text(json.dumps({"total_reward_ma": score}))
    chosen = {
        str(target.name): find_trained(target).paths.session
        for target in (folder, folder / "cartpole_t0_spec.json", folder / "cartpole_t0_s0_spec.json")
    }
    assert chosen == {"run": 1, "cartpole_t0_spec.json": 1, "cartpole_t0_s0_spec.json": 0}
    (folder / "info/cartpole_t0_s1_session_metrics_scalar_train.json").write_text('{"total_reward_ma": null}')
    assert find_trained(folder).paths.session == 0  # NaN never ranks above a number


def test_what_holds_no_trained_policy_is_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    for target in (tmp_path, tmp_path / "none", tmp_path / "none.json"):
        with pytest.raises(LabError, match="no trained run here"):
            slm_lab.load(target)
    (tmp_path / "x_t0_spec.json").write_text("[]")
    with pytest.raises(LabError, match="not the spec of a run"):
        slm_lab.load(tmp_path)
    folder = tmp_path / "run"
    shutil.copytree(runs["cartpole"], folder)
    (folder / "model/cartpole_t0_s0_ckpt-best.safetensors").unlink()
    for target in (folder, folder / "cartpole_t0_s0_spec.json"):
        with pytest.raises(LabError, match=r"no trained policy: there is no cartpole_t0_s0_ckpt-best\.safetensors"):
            slm_lab.load(target)


def test_a_damaged_policy_is_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(runs["cartpole"], folder)
    (folder / "model/cartpole_t0_s0_ckpt-best.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(LabError, match="damaged or not a checkpoint"):
        slm_lab.load(folder)


def test_run_from_python_takes_a_mapping_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slm_lab.experiment.session.session_graphs", lambda *_: None)
    monkeypatch.setattr("slm_lab.experiment.metric_files.trial_graphs", lambda *_: [])
    monkeypatch.chdir(tmp_path)
    spec = tiny("Random", env={"max_frame": 60})
    result = slm_lab.run(spec)
    assert result.predir.parent == Path("data")
    assert result.trial is not None
    assert result.trial.complete
    Path("two.json").write_text(json.dumps({"one": spec, "two": spec, "_why": {}}))
    with pytest.raises(LabError, match=r"holds 2 specs; say which one\. Known: one, two\."):
        slm_lab.run("two.json")
    assert slm_lab.run("two.json", "two", "dev", ["max_frame=30"]).predir.name.startswith("two_")
    with pytest.raises(LabError, match=r"use slm_lab\.load"):
        slm_lab.run(spec, mode="enjoy@data")
