"""Components of a user's own, from a module in the folder the command is called in."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from slm_lab.cli.main import main

MODULE = """
import gymnasium

class Bandit(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)
"""
SPEC = {
    "mine": {
        "agent": {"algorithm": {"name": "Random"}},
        "env": {"name": "bandit_of_mine:Bandit", "max_frame": 1000},
        "meta": {"max_session": 1, "log_frequency": 100},
    }
}


@pytest.mark.parametrize(("written", "code"), [(True, 0), (False, 2)])
def test_a_module_in_the_working_folder_can_be_named(
    written: bool, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "bandit_of_mine", raising=False)
    (tmp_path / "specs.json").write_text(json.dumps(SPEC))
    if written:
        (tmp_path / "bandit_of_mine.py").write_text(MODULE)
    with pytest.raises(SystemExit) as exit_info:
        main(["spec", "check", "specs.json"])
    assert exit_info.value.code == code
