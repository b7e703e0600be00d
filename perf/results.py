"""What was measured, as files: one for each row and each series, with what it was measured on."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from slm_lab.experiment.record import git_state, machine
from slm_lab.lib.io import make_folder, read_json, write_json

FOLDER = Path(__file__).parent / "results"
PACKAGES = (
    "torch",
    "numpy",
    "gymnasium",
    "mujoco",
    "ale-py",
    "stable-baselines3",
    "sbx-rl",
    "jax",
    "opencv-python-headless",
)


@dataclass(frozen=True)
class Facts:
    """The machine, the versions, the code and the day of a measurement."""

    machine: dict[str, Any]
    versions: dict[str, str]
    commit: str
    day: str


@dataclass(frozen=True)
class RowResult:
    """A row of the table: frames a second of each contestant by round, and its memory at the end."""

    number: int
    title: str
    settings: str
    frames: int
    threads: int
    speeds: dict[str, list[float]]
    memory_mb: dict[str, float]
    asked: dict[str, float]
    facts: Facts


@dataclass(frozen=True)
class CommandResult:
    """The row that times a whole command."""

    number: int
    title: str
    settings: str
    seconds: float
    asked: float
    facts: Facts


@dataclass(frozen=True)
class Series:
    """How something grows: points that name their values."""

    name: str
    points: list[dict[str, float]]
    facts: Facts


def facts() -> Facts:
    """What this process runs on."""
    git = git_state()
    versions = {"python": platform.python_version(), **{package: version(package) for package in PACKAGES}}
    commit = git["sha"][:7] + ("+" if git["dirty"] else "")
    return Facts({"processor": processor(), **machine()}, versions, commit, date.today().isoformat())


def processor() -> str:
    """The processor's name where the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def write(result: RowResult | CommandResult | Series, folder: Path = FOLDER) -> Path:
    """Write a result to its own file, in place of the last."""
    make_folder(folder)
    name = f"growth_{result.name}" if isinstance(result, Series) else f"row_{result.number}"
    path = folder / f"{name}.json"
    write_json(path, asdict(result))
    return path


def read_rows(folder: Path = FOLDER) -> list[RowResult | CommandResult]:
    """The rows that were measured, in order."""
    found = [_with_facts(read_json(path)) for path in sorted(folder.glob("row_*.json"))]
    rows = [CommandResult(**data) if "seconds" in data else RowResult(**data) for data in found]
    return sorted(rows, key=lambda row: row.number)


def read_series(folder: Path = FOLDER) -> dict[str, Series]:
    """The series that were measured, by name."""
    found = [Series(**_with_facts(read_json(path))) for path in sorted(folder.glob("growth_*.json"))]
    return {series.name: series for series in found}


def _with_facts(data: dict[str, Any]) -> dict[str, Any]:
    return data | {"facts": Facts(**data["facts"])}
