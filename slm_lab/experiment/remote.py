"""A run on a rented machine: typed options become a dstack task file, a name, arguments and a command."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import yaml

from slm_lab.experiment.paths import STAMP
from slm_lab.lib.errors import LabError, hint

Kind = Literal["cpu-train", "cpu-search", "gpu-train", "gpu-search"]
Spot = Literal["auto", "spot", "on-demand"]
MODES = ("dev", "train", "search")
NAME_LENGTH = 41  # of a run, in dstack
UPLOAD_MINUTES = 5  # what a machine that is taken away can lose
ID_TIME = "%Y_%m_%d_%H%M%S"
PYTHON = "3.11"  # the version that the pins are tested with

_COUNT = re.compile(r"(\d+)?(\.\.)?(\d+)?", re.ASCII)
_MEMORY = re.compile(r"(\d+(?:\.\d+)?[MGT]B)?(\.\.)?(\d+(?:\.\d+)?[MGT]B)?", re.ASCII | re.IGNORECASE)
_DURATION = re.compile(r"[1-9]\d*[smhdw]", re.ASCII)
_GPU_NAMES = re.compile(r"[A-Za-z][\w-]*(,[A-Za-z][\w-]*)*", re.ASCII)
_MEGABYTES = {"mb": 1, "gb": 1024, "tb": 1024 * 1024}


@dataclass(frozen=True)
class Machine:
    """What to rent, how long and for how much: ranges as dstack writes them, dollars an hour."""

    cpus: str
    memory: str
    gpu: str  # "0" for none
    max_price: float
    max_duration: str
    spot: Spot

    def checked(self) -> Machine:
        """Itself, once every value is one that dstack reads as it was meant."""
        _check_count(self.cpus, "--cpus")
        _check_memory(self.memory, "--memory")
        if self.gpu != "0":
            _check_gpu(self.gpu)
        if not 0 < self.max_price < float("inf"):
            raise LabError(f"--max-price: got {self.max_price}; allowed: dollars an hour above 0, such as 0.5.")
        if not _DURATION.fullmatch(self.max_duration):
            allowed = "a whole number with s, m, h, d or w, such as 90m or 6h"
            raise LabError(f"--max-duration: got {self.max_duration!r}; allowed: {allowed}.")
        return self


MACHINES: dict[Kind, Machine] = {
    "cpu-train": Machine("2..", "4GB..", "0", 0.15, "4h", "on-demand"),
    "cpu-search": Machine("8..", "16GB..", "0", 0.30, "4h", "on-demand"),
    "gpu-train": Machine("2..", "32GB..", "20GB..:1", 0.50, "6h", "auto"),
    "gpu-search": Machine("2..", "20GB..", "1..", 0.25, "6h", "on-demand"),
}
EXTRAS: dict[Kind, str] = {
    "cpu-train": "envpool",
    "cpu-search": "envpool,search",
    "gpu-train": "envpool,playground",
    "gpu-search": "envpool,playground,search",
}


def kind_of(mode: str, gpu: bool) -> Kind:
    """Which of the four task files a run takes."""
    if mode.partition("@")[0] == "search":
        return "gpu-search" if gpu else "cpu-search"
    return "gpu-train" if gpu else "cpu-train"


def machine(
    kind: Kind,
    cpus: str | None = None,
    memory: str | None = None,
    gpu_spec: str | None = None,
    max_price: float | None = None,
    max_duration: str | None = None,
    spot: Spot | None = None,
) -> Machine:
    """The machine of that kind with what was asked for instead of its defaults."""
    if gpu_spec is not None and not kind.startswith("gpu"):
        raise LabError(f"--gpu-spec {gpu_spec}: only together with --gpu.")
    asked = {"cpus": cpus, "memory": memory, "gpu": gpu_spec, "max_price": max_price, "max_duration": max_duration}
    given: dict[str, Any] = {key: value for key, value in {**asked, "spot": spot}.items() if value is not None}
    return replace(MACHINES[kind], **given).checked()


def task(kind: Kind, rented: Machine) -> dict[str, Any]:
    """The dstack task. Nothing a user wrote is in its commands: arguments come in the environment, tokens as names."""
    cpu_torch = [] if kind.startswith("gpu") else ["UV_TORCH_BACKEND=cpu"]  # a tenth of the download
    return {
        "type": "task",
        "python": PYTHON,
        "repos": [{"local_path": ".."}],
        "env": ["HF_TOKEN", "HF_REPO", "SLM_ARGS", "SLM_RUN_ID", *cpu_torch],
        "commands": _commands(kind),
        "resources": {
            "cpu": rented.cpus,
            "memory": rented.memory,
            "gpu": 0 if rented.gpu == "0" else rented.gpu,
        },
        "max_price": rented.max_price,
        "max_duration": rented.max_duration,
        "spot_policy": rented.spot,
        # not on errors: what fails by itself would fail, and cost, again and again
        "retry": {"on_events": ["no-capacity", "interruption"], "duration": rented.max_duration},
    }


def _commands(kind: Kind) -> list[str]:
    """Set up as on any machine, then become the run, so that a signal to stop reaches it and no shell in between."""
    install = "sudo apt-get install -qy --no-install-recommends make git g++ libgl1 libegl1"
    cuda_jax = [".venv/bin/uv pip install -q --python .venv/bin/python -c constraints.txt 'jax[cuda13]'"]
    return [
        "sudo apt-get update -q",
        install,
        f"make setup PYTHON=python EXTRAS={EXTRAS[kind]}",
        *(cuda_jax if kind.startswith("gpu") else []),
        "exec .venv/bin/python -m slm_lab.cli.remote_entry",
    ]


def task_file(kind: Kind) -> Path:
    """Where the task is written, from the folder one is in."""
    return Path(".dstack", f"run-{kind}.yml")


def task_text(kind: Kind, rented: Machine) -> str:
    """The task as YAML."""
    written: str = yaml.safe_dump(task(kind, rented), sort_keys=False, width=200)
    return f"# written by `slm-lab run-remote`, anew with each call: {kind}\n{written}"


def task_name(text: str) -> str:
    """A name dstack takes, near the given one: 2 to 41 lower case letters, digits and dashes, first a letter."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if len(name) < 2 or not name[0].isalpha():
        name = f"run-{name}".rstrip("-")
    return name[:NAME_LENGTH].rstrip("-")


def run_id(name: str, now: datetime) -> str:
    """What one launch is called on the hub, the same for every attempt at it."""
    return f"{name}-{now.strftime(ID_TIME)}"


def checked_mode(text: str) -> str:
    """The mode for the other machine: dev, train or search, or one of them with the name of a folder on the hub."""
    word, at, target = text.partition("@")
    allowed = "dev, train, search, train@FOLDER, search@FOLDER"
    if word not in MODES:
        raise LabError(f"mode: got {text!r}.{hint(word, MODES)} Allowed on another machine: {allowed}.")
    folder = Path(target).name
    if at and not STAMP.search(folder):
        reason = "the newest run of that machine is none of yours" if target == "latest" else "no name of a run folder"
        raise LabError(f"mode: got {text!r}: {reason}; allowed: {allowed}. `slm-lab list` shows the hub's folders.")
    return f"{word}@{folder}" if at else word


def arguments(file: str, name: str, mode: str, sets: Sequence[str], profile: bool) -> list[str]:
    """Words of the run for the command line; the last three are file, name and mode, whatever they begin with."""
    options = ["--upload-hf", "--upload-every", str(UPLOAD_MINUTES), *(f"--set={item}" for item in sets)]
    return ["run", *options, *(["--profile"] if profile else []), "--", file, name, mode]


def packed(words: Sequence[str]) -> str:
    """Words as one line of JSON without a dollar sign, which dstack and shells would read as a variable."""
    return json.dumps(list(words)).replace("$", "\\u0024")


def unpacked(text: str) -> list[str]:
    """The words of `packed`."""
    try:
        words = json.loads(text)
    except json.JSONDecodeError as error:
        raise LabError(f"SLM_ARGS: not JSON: {error}; allowed: a list of words.") from None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words) or len(words) < 4:
        raise LabError("SLM_ARGS: allowed: a list of words, `run` and its options first, then file, name and mode.")
    return words


def command(program: str, file: Path, name: str) -> list[str]:
    """How dstack is called."""
    return [program, "apply", "-f", str(file), "-y", "--detach", "--name", name]


def _check_count(text: str, where: str) -> None:
    match = _COUNT.fullmatch(text)
    low, dots, high = match.groups() if match else (None, None, None)
    bounds = [int(bound) for bound in (low, high) if bound is not None]
    # without dots a number has been split in two
    if not bounds or min(bounds) < 1 or bounds != sorted(bounds) or (high is not None and not dots):
        raise LabError(f"{where}: got {text!r}; allowed: a count from 1 or a range, such as 4, 4.. or 4..8.")


def _check_memory(text: str, where: str) -> None:
    match = _MEMORY.fullmatch(text)
    low, dots, high = match.groups() if match else (None, None, None)
    sizes = [float(bound[:-2]) * _MEGABYTES[bound[-2:].lower()] for bound in (low, high) if bound is not None]
    if not sizes or min(sizes) <= 0 or sizes != sorted(sizes) or (high is not None and not dots):
        allowed = "a size or a range with MB, GB or TB, such as 16GB.. or 8GB..32GB"
        raise LabError(f"{where}: got {text!r}; allowed: {allowed}.")


def _check_gpu(text: str) -> None:
    """Names, memory and count, each at most once, with colons between them."""
    seen = list[str]()
    for part in text.split(":"):
        if _GPU_NAMES.fullmatch(part):
            seen.append("names")
        elif any(letter.isalpha() for letter in part):
            _check_memory(part, f"--gpu-spec {text}")
            seen.append("memory")
        else:
            _check_count(part, f"--gpu-spec {text}")
            seen.append("count")
    if len(seen) != len(set(seen)):
        allowed = "names, memory and count once each, such as A100,H100:40GB..:1"
        raise LabError(f"--gpu-spec: got {text!r}; allowed: {allowed}.")
