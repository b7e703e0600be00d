"""What a run records of where it ran."""

from __future__ import annotations

import json
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from slm_lab.experiment import record
from slm_lab.lib.cores import cores


def test_versions_name_python_and_every_package_that_decides_numbers() -> None:
    found = record.versions()
    assert list(found) == ["python", *record.PACKAGES]
    assert found["python"] == platform.python_version()
    assert found["torch"] == torch.__version__
    assert found["numpy"] == np.__version__
    assert "not installed" not in (found["gymnasium"], found["slm-lab"])


def test_a_package_that_is_not_there_is_said_not_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "PACKAGES", ("torch", "no-such-package"))
    assert record.versions()["no-such-package"] == "not installed"


def test_the_machine_is_described_in_plain_values() -> None:
    found = record.machine()
    assert json.loads(json.dumps(found)) == found
    assert found["cores"] == cores() >= 1
    assert found["memory_gb"] >= 0
    assert found["cpu_capability"] == torch.backends.cpu.get_cpu_capability()


def git(folder: Path, *command: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *command], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout that seems to hold the code, in the package's folders."""
    for folder in ("lab/experiment", "lab/agent", "results"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("lab/experiment/record.py", "lab/agent/net.py", "results/old.json"):
        (tmp_path / file).write_text("x")
    monkeypatch.setattr(record, "__file__", str(tmp_path / "lab" / "experiment" / "record.py"))
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


@pytest.mark.parametrize(
    ("file", "dirty"), [("lab/experiment/record.py", True), ("lab/agent/net.py", True), ("results/old.json", False)]
)
def test_the_commit_of_the_code_is_recorded_with_whether_the_package_was_changed(
    checkout: Path, file: str, dirty: bool
) -> None:
    state = record.git_state()
    assert re.fullmatch(r"[0-9a-f]{40}", state["sha"])
    assert state["dirty"] is False
    (checkout / file).write_text("y")
    assert record.git_state() == {"sha": state["sha"], "dirty": dirty}


def test_without_a_checkout_or_git_the_commit_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown: dict[str, Any] = {"sha": "unknown", "dirty": None}
    (tmp_path / "lab" / "experiment").mkdir(parents=True)
    monkeypatch.setattr(record, "__file__", str(tmp_path / "lab" / "experiment" / "record.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    assert record.git_state() == unknown
    monkeypatch.setenv("PATH", str(tmp_path))
    assert record.git_state() == unknown


def test_a_copy_inside_somebody_elses_checkout_is_not_that_checkouts_code(checkout: Path, monkeypatch: Any) -> None:
    copy = checkout / "site" / "lab" / "experiment" / "record.py"
    copy.parent.mkdir(parents=True)
    copy.write_text("x")
    monkeypatch.setattr(record, "__file__", str(copy))
    assert record.git_state() == {"sha": "unknown", "dirty": None}
