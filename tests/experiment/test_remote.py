"""Task files: what dstack's own models read in them, what is refused, names, and words that survive the way."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from slm_lab.experiment.remote import (
    EXTRAS,
    MACHINES,
    Kind,
    arguments,
    checked_mode,
    command,
    kind_of,
    machine,
    packed,
    run_id,
    task_file,
    task_name,
    task_text,
    unpacked,
)
from slm_lab.lib.errors import LabError

KINDS: list[Kind] = ["cpu-train", "cpu-search", "gpu-train", "gpu-search"]
HOSTILE = [
    "a b",
    "it's",
    'say "so"',
    "$(touch x)",
    "`id`",
    "x; rm -rf y",
    "one\ntwo",
    "$$HOME",
    "${{ secrets.a }}",
    "é",
    "--",
]


def read_by_dstack(kind: Kind, **options: Any) -> Any:
    """The task as dstack's configuration model reads the file."""
    api = pytest.importorskip("dstack.api", reason="dstack is an extra: remote")
    return api.Task.model_validate(yaml.safe_load(task_text(kind, machine(kind, **options))))


@pytest.mark.parametrize(
    ("kind", "cpus", "memory", "gpus", "gpu_memory", "hours", "price", "spot"),
    [
        ("cpu-train", "2..", "4GB..", "0", "None", 4, 0.15, "on-demand"),
        ("cpu-search", "8..", "16GB..", "0", "None", 4, 0.30, "on-demand"),
        ("gpu-train", "2..", "32GB..", "1", "20GB..", 6, 0.50, "auto"),
        ("gpu-search", "2..", "20GB..", "1..", "None", 6, 0.25, "on-demand"),
    ],
)
def test_dstack_reads_the_defaults_of_each_kind_as_they_are_meant(
    kind: Kind, cpus: str, memory: str, gpus: str, gpu_memory: str, hours: int, price: float, spot: str
) -> None:
    task = read_by_dstack(kind)
    assert str(task.resources.cpu.count) == cpus
    assert _gigabytes(task.resources.memory) == memory
    assert str(task.resources.gpu.count) == gpus
    assert (_gigabytes(task.resources.gpu.memory) if task.resources.gpu.memory else "None") == gpu_memory
    assert task.max_duration == hours * 3600
    assert task.max_price == price
    assert task.spot_policy.value == spot
    assert [event.value for event in task.retry.on_events] == ["no-capacity", "interruption"]
    assert task.retry.duration == hours * 3600


def _gigabytes(size: Any) -> str:
    low, high = (f"{bound:g}GB" if bound is not None else "" for bound in (size.min, size.max))
    return low if low == high else f"{low}..{high}"


def test_dstack_reads_what_was_asked_for_instead() -> None:
    task = read_by_dstack(
        "gpu-train",
        cpus="4..8",
        memory="512MB..32gb",
        gpu_spec="A100,H100:40GB..80GB:2",
        max_price=1.25,
        max_duration="90m",
        spot="spot",
    )
    assert str(task.resources.cpu.count) == "4..8"
    assert _gigabytes(task.resources.memory) == "0.5GB..32GB"
    assert task.resources.gpu.name == ["A100", "H100"]
    assert _gigabytes(task.resources.gpu.memory) == "40GB..80GB"
    assert str(task.resources.gpu.count) == "2"
    assert (task.max_price, task.max_duration, task.spot_policy.value) == (1.25, 5400, "spot")


@pytest.mark.parametrize("kind", KINDS)
def test_values_of_the_environment_are_taken_from_the_caller_and_not_written(kind: Kind) -> None:
    env = yaml.safe_load(task_text(kind, MACHINES[kind]))["env"]
    assert env[:4] == ["HF_TOKEN", "HF_REPO", "SLM_ARGS", "SLM_RUN_ID"]
    assert env[4:] == ([] if kind.startswith("gpu") else ["UV_TORCH_BACKEND=cpu"])


@pytest.mark.parametrize("kind", KINDS)
def test_the_commands_set_up_what_the_kind_needs_and_become_the_run(kind: Kind) -> None:
    task = yaml.safe_load(task_text(kind, MACHINES[kind]))
    assert f"make setup PYTHON=python EXTRAS={EXTRAS[kind]}" in task["commands"]
    assert ("search" in EXTRAS[kind]) == kind.endswith("search")
    assert ("playground" in EXTRAS[kind]) == kind.startswith("gpu")
    assert any("jax[cuda13]" in line for line in task["commands"]) == kind.startswith("gpu")
    assert task["commands"][-1] == "exec .venv/bin/python -m slm_lab.cli.remote_entry"
    assert "$" not in "".join(task["commands"])


@pytest.mark.parametrize("kind", KINDS)
def test_the_commands_are_shell(kind: Kind) -> None:
    lines = " && ".join(yaml.safe_load(task_text(kind, MACHINES[kind]))["commands"])  # as dstack joins them
    assert subprocess.run([str(shutil.which("bash")), "-n", "-c", lines], check=False).returncode == 0


def test_the_extras_are_those_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert {extra for extras in EXTRAS.values() for extra in extras.split(",")} <= set(project["optional-dependencies"])


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("cpus", "many", "--cpus: got 'many'; allowed: a count from 1 or a range, such as 4, 4.. or 4..8."),
        ("cpus", "8..4", "--cpus: got '8..4'"),
        ("cpus", "0", "--cpus: got '0'"),
        ("cpus", "..", "--cpus: got '..'"),
        ("cpus", "", "--cpus: got ''"),
        ("cpus", "4GB", "--cpus: got '4GB'"),
        (
            "memory",
            "16",
            "--memory: got '16'; allowed: a size or a range with MB, GB or TB, such as 16GB.. or 8GB..32GB.",
        ),
        ("memory", "16GB32GB", "--memory: got '16GB32GB'"),
        ("memory", "1TB..512GB", "--memory: got '1TB..512GB'"),
        ("memory", "0GB..", "--memory: got '0GB..'"),
        ("gpu_spec", "A100:B100", "--gpu-spec: got 'A100:B100'; allowed: names, memory and count once each"),
        ("gpu_spec", "A100:", "--gpu-spec A100:: got ''"),
        ("gpu_spec", "24G", "--gpu-spec 24G: got '24G'"),
        ("max_price", 0.0, "--max-price: got 0.0; allowed: dollars an hour above 0, such as 0.5."),
        ("max_price", float("nan"), "--max-price: got nan"),
        ("max_price", float("inf"), "--max-price: got inf"),
        (
            "max_duration",
            "6",
            "--max-duration: got '6'; allowed: a whole number with s, m, h, d or w, such as 90m or 6h.",
        ),
        ("max_duration", "1h30m", "--max-duration: got '1h30m'"),
        ("max_duration", "0h", "--max-duration: got '0h'"),
        ("max_duration", "off", "--max-duration: got 'off'"),
    ],
)
def test_a_value_dstack_would_misread_is_refused_with_what_is_allowed(option: str, value: Any, told: str) -> None:
    with pytest.raises(LabError, match=f"^{re.escape(told)}"):
        machine("gpu-train", **{option: value})


def test_a_gpu_is_only_described_where_one_is_asked_for() -> None:
    with pytest.raises(LabError, match="--gpu-spec A100: only together with --gpu"):
        machine("cpu-train", gpu_spec="A100")


@pytest.mark.parametrize("text", ["4", "4..", "..8", "4..8", "4..4"])
def test_counts_are_one_number_or_a_range(text: str) -> None:
    assert machine("cpu-train", cpus=text).cpus == text


@pytest.mark.parametrize(
    ("mode", "gpu", "kind"),
    [
        ("train", False, "cpu-train"),
        ("dev", True, "gpu-train"),
        ("search", False, "cpu-search"),
        ("search@tiny_2026_01_02_030405", True, "gpu-search"),
    ],
)
def test_only_search_takes_the_task_of_a_search(mode: str, gpu: bool, kind: Kind) -> None:
    assert kind_of(mode, gpu) == kind
    assert str(task_file(kind)) == f".dstack/run-{kind}.yml"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("ppo_cartpole", "ppo-cartpole"),
        ("PPO Cart.Pole", "ppo-cart-pole"),
        ("2048", "run-2048"),
        ("a", "run-a"),
        ("__", "run"),
        ("é; rm -rf $HOME\n", "rm-rf-home"),
        ("x" * 60, "x" * 41),
        ("y" * 40 + "_" + "z", "y" * 40),
    ],
)
def test_a_name_becomes_one_that_dstack_takes(text: str, name: str) -> None:
    assert task_name(text) == name
    assert re.fullmatch("[a-z][a-z0-9-]{1,40}", name)


def test_the_names_are_those_of_the_dstack_that_is_installed() -> None:
    services = pytest.importorskip("dstack._internal.core.services", reason="dstack is an extra: remote")
    for text in ("ppo_cartpole", "2048", "a", "__", "x" * 60):
        services.validate_dstack_resource_name(task_name(text))


def test_a_launch_is_known_by_its_name_and_time() -> None:
    assert run_id("ppo-pong", datetime(2026, 11, 16, 7, 5, 9)) == "ppo-pong-2026_11_16_070509"


@pytest.mark.parametrize(
    ("given", "mode"),
    [
        ("train", "train"),
        ("dev", "dev"),
        ("search", "search"),
        ("train@data/tiny_2026_01_02_030405", "train@tiny_2026_01_02_030405"),
        ("search@tiny_2026_01_02_030405_2", "search@tiny_2026_01_02_030405_2"),
    ],
)
def test_a_mode_names_a_folder_as_the_hub_does(given: str, mode: str) -> None:
    assert checked_mode(given) == mode


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("trian", "mode: got 'trian'. Did you mean 'train'? Allowed on another machine: dev, train, search, "),
        ("enjoy@data/x", "mode: got 'enjoy@data/x'. Allowed on another machine: "),
        ("train@latest", "mode: got 'train@latest': the newest run of that machine is none of yours; allowed: "),
        ("train@", "mode: got 'train@': no name of a run folder; allowed: "),
        ("train@..", "mode: got 'train@..': no name of a run folder"),
    ],
)
def test_a_mode_that_makes_no_sense_elsewhere_is_refused(mode: str, told: str) -> None:
    with pytest.raises(LabError, match=f"^{re.escape(told)}"):
        checked_mode(mode)


def test_the_run_uploads_while_it_goes_on_and_ends_with_file_name_and_mode() -> None:
    assert arguments("f.json", "tiny", "train", ["a=1", "b=x y"], profile=True) == [
        *("run", "--upload-hf", "--upload-every", "5", "--set=a=1", "--set=b=x y", "--profile"),
        *("--", "f.json", "tiny", "train"),
    ]


def test_words_arrive_as_they_were_and_nothing_on_the_way_finds_a_variable_in_them() -> None:
    line = packed(arguments("f.json", HOSTILE[0], "train", [f"k={text}" for text in HOSTILE], profile=False))
    assert "$" not in line
    assert "\n" not in line
    assert line.isascii()
    assert unpacked(line)[4:-4] == [f"--set=k={text}" for text in HOSTILE]


def test_dstack_leaves_the_words_alone() -> None:
    found = pytest.importorskip("dstack._internal.utils.interpolator", reason="dstack is an extra: remote")
    line = packed(["run", *HOSTILE])
    assert found.VariablesInterpolator({"secrets": {"a": "secret"}}).interpolate_or_error(line) == line


@pytest.mark.parametrize("text", ["", "run train", '{"run": 1}', '["run", "a", "b", 3]', '["run"]'])
def test_words_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(LabError, match=r"^SLM_ARGS: .*allowed: a list of words"):
        unpacked(text)


def test_dstack_is_called_with_words_and_no_shell() -> None:
    assert command("/bin/dstack", task_file("cpu-train"), "tiny") == [
        *("/bin/dstack", "apply", "-f", ".dstack/run-cpu-train.yml", "-y", "--detach", "--name", "tiny"),
    ]


def test_neither_torch_nor_dstack_is_imported() -> None:
    code = (
        "import sys, slm_lab.experiment.remote; print(json.dumps([m for m in ('torch', 'dstack') if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", f"import json; {code}"], capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout) == []
