"""`slm-lab run-remote`: a run on a rented machine, launched with dstack."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from slm_lab.cli.hub import repo_in
from slm_lab.cli.options import Debug, File, Name, Sets, say
from slm_lab.experiment import remote
from slm_lab.lib.errors import LabError
from slm_lab.lib.io import make_folder, write_text


def run_remote(
    spec_file: File,
    spec_name: Name,
    mode: Annotated[
        str, typer.Argument(help="dev, train, search, or train@FOLDER: go on with one of the hub.")
    ] = "train",
    sets: Sets = None,
    gpu: Annotated[bool, typer.Option("--gpu", help="A machine with a GPU.")] = False,
    name: Annotated[
        str | None,
        typer.Option("--name", "-n", help="Name of the run; the spec's unless set. One of that name is replaced."),
    ] = None,
    cpus: Annotated[str | None, typer.Option(help="Cores: 4, 4.. or 4..8.")] = None,
    memory: Annotated[str | None, typer.Option(help="Memory: 16GB.. or 8GB..32GB.")] = None,
    gpu_spec: Annotated[str | None, typer.Option(help="Names, memory and count of GPUs: A100,H100:40GB..:1.")] = None,
    max_price: Annotated[float | None, typer.Option(help="Dollars an hour.")] = None,
    max_duration: Annotated[str | None, typer.Option(help="Then it stops, with a checkpoint: 90m or 6h.")] = None,
    spot: Annotated[remote.Spot | None, typer.Option(help="Machines that may be taken away, or not, or both.")] = None,
    profile: Annotated[bool, typer.Option("--profile", help="Profile the run, as `run --profile` does.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the file and the command, and do nothing.")] = False,
    debug: Debug = False,
) -> None:
    """Run a spec on a rented machine with dstack; results go to the hub (HF_TOKEN, HF_REPO) and are resumed from it."""
    from slm_lab.spec.load import load

    mode = remote.checked_mode(mode)
    kind = remote.kind_of(mode, gpu)
    rented = remote.machine(kind, cpus, memory, gpu_spec, max_price, max_duration, spot)
    loaded = load(spec_file, spec_name, sets or [])
    called = remote.task_name(name or loaded.spec.name)
    words = remote.arguments(_sent_file(spec_file), spec_name, mode, sets or [], profile)
    given = {"SLM_ARGS": remote.packed(words), "SLM_RUN_ID": remote.run_id(called, datetime.now(UTC))}
    text, file = remote.task_text(kind, rented), remote.task_file(kind)
    say(loaded.notes)
    if called != (name or loaded.spec.name.replace("_", "-")):
        say(
            [f"name: {name or loaded.spec.name!r} becomes {called!r}: dstack takes lower case letters, digits, dashes."]
        )
    if dry_run:
        say(_missing(os.environ))
        variables = [f"{key}={shlex.quote(value)}" for key, value in given.items()]
        typer.echo(f"# {file}\n{text}\n{' '.join(variables)} {shlex.join(remote.command('dstack', file, called))}")
        return
    missing = _missing(os.environ)
    if missing:
        raise LabError("\n".join(missing))
    code = launch(file, text, remote.command(_dstack(), file, called), given)
    if code:
        raise typer.Exit(code)
    typer.echo(f"run {given['SLM_RUN_ID']}: `dstack logs {called}` shows its log, `dstack stop {called}` ends it")


def launch(file: Path, text: str, words: list[str], given: Mapping[str, str]) -> int:
    """Write the task file and call dstack; its exit code."""
    make_folder(file.parent)
    environment = {**os.environ, **given, "HF_REPO": repo_in(os.environ)}
    with _one_at_a_time(file.parent):
        write_text(file, text)
        code = subprocess.run(words, env=environment, check=False).returncode
    return code if code >= 0 else 128 - code


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Else a second launch could change the file before dstack has read it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _missing(environment: Mapping[str, str]) -> list[str]:
    """What would make the run fail or its results be lost."""
    found = []
    if not environment.get("HF_TOKEN"):
        found.append(
            "HF_TOKEN: not set; results are kept on the Hugging Face hub: export a token that may write to HF_REPO."
        )
    if not repo_in(environment):
        found.append("HF_REPO: not set; results are kept there: export HF_REPO=you/your-dataset.")
    absent = [part for part in ("constraints.txt", "pyproject.toml", "slm_lab", ".git") if not Path(part).exists()]
    if absent:
        found.append(f"{Path.cwd()}: no checkout of SLM-Lab, which is what is sent: there is no {', '.join(absent)}.")
    return found


def _sent_file(file: str) -> str:
    """The spec file as it is called in the checkout, or among the packaged specs; other files stay behind."""
    from slm_lab.spec.load import find

    found, here = find(file), Path.cwd().resolve()
    if found.resolve().is_relative_to(here):
        return str(found.resolve().relative_to(here))
    if found == Path(file):
        raise LabError(f"{file}: outside {here}, which is all that is sent; copy it into the checkout.")
    return file


def _dstack() -> str:
    beside = str(Path(sys.executable).parent)  # where it is when the venv is not active
    found = shutil.which("dstack") or shutil.which("dstack", path=beside)
    if found is None:
        raise LabError(
            "dstack: no such program; install it with `pip install 'slm-lab[remote]'` or dstack's own installer."
        )
    return found
