"""What a run records of where and how it ran: enough to repeat it, and to see why it could not be repeated."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
import torch

from slm_lab.lib.cores import cores

PACKAGES = ("slm-lab", "torch", "numpy", "gymnasium", "mujoco", "box2d", "pydantic", "pandas")


def versions() -> dict[str, str]:
    """Versions of what decides numbers."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def machine() -> dict[str, Any]:
    """Processor, cores, memory, GPU."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": cores(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "gpu": gpu,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }


def git_state() -> dict[str, Any]:
    """The last commit that changed the lab's code, and whether it was changed since; `unknown` outside a checkout."""
    here = Path(__file__)
    package = here.parent.parent  # a change anywhere in the package is a change of the code

    def git(*command: str) -> str | None:
        try:
            done = subprocess.run(["git", *command], cwd=package, capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    # a copy installed inside somebody else's checkout is not that checkout's code
    sha = git("log", "-1", "--format=%H", "--", ".") if git("ls-files", "--", str(here)) else None
    return {"sha": sha or "unknown", "dirty": bool(git("status", "--porcelain", "--", ".")) if sha else None}
