"""`slm-lab net show`: the nets of a spec as they would be built."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_helpers import GRU, tiny, write_spec

from slm_lab.cli.main import main


def shown(path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    with pytest.raises(SystemExit) as left:
        main(["net", "show", str(path), "tiny", *more])
    assert left.value.code == 0
    return capsys.readouterr().out


def test_layers_are_listed_with_shapes_and_parameters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(write_spec(tmp_path, tiny("PPO", "CartPole-v1", net={"shared": False})), capsys)
    lines = [line.split() for line in out.splitlines()]
    assert "net.actor: takes obs [4]; 58 parameters" in out
    assert ["body.0", "Linear(in_features=4,", "out_features=8,", "bias=True)", "[8]", "40"] in lines  # 4 * 8 + 8
    assert ["heads.0", "Linear(in_features=8,", "out_features=2,", "bias=True)", "[2]", "18"] in lines  # 8 * 2 + 2
    assert "107 parameters learn" in out  # 58, and 40 + 9 of the critic


def test_an_action_a_memory_and_targets_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(write_spec(tmp_path, tiny("SoftActorCritic", "Pendulum-v1", net=GRU)), capsys)
    assert "soft.critics.q1: takes obs [3], hidden.q1 [" in out
    assert "action [1]" in out
    assert "target.net.q1: a copy that follows" in out
    assert out.count("join.0") == 2  # of the critics alone, and not of their copies


def test_entries_go_by_their_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(write_spec(tmp_path, tiny("PPO", "task_envs:Both", net={"shared": True})), capsys)
    assert "takes light [1, 6, 6], noise [2], number [2]" in out
    assert "encoders.light.encoder.layers.0  Conv2d(1, 16" in out


def test_an_agent_without_nets_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no nets: nothing is learnt" in shown(write_spec(tmp_path, tiny("Random")), capsys)


def test_what_does_not_fit_is_told_and_leaves_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    convolutions = {"type": "ConvNet", "conv_hid_layers": [[4, 3]], "fc_hid_layers": []}
    data = tiny("PPO", "CartPole-v1")
    data["agent"]["net"] = convolutions
    with pytest.raises(SystemExit) as left:
        main(["net", "show", str(write_spec(tmp_path, data)), "tiny"])
    assert left.value.code == 2
    assert "For vectors take MLPNet" in capsys.readouterr().err
