"""`slm-lab push`, `pull` and `list`: runs on the Hugging Face hub. None of them needs torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slm_lab.cli.options import Debug, say
from slm_lab.lib.errors import LabError, hint

if TYPE_CHECKING:
    from slm_lab.experiment.hub import Hub

ReadFrom = Annotated[
    str,
    typer.Option(
        "--repo", metavar="OWNER/NAME", help="Dataset on the hub; HF_REPO unless set, else SLM-Lab/benchmark."
    ),
]
WriteTo = Annotated[
    str, typer.Option("--repo", metavar="OWNER/NAME", help="Dataset on the hub; HF_REPO unless set, and no default.")
]


def push(
    folder: Annotated[Path, typer.Argument(help="A run folder.")],
    repo: WriteTo = "",
    debug: Debug = False,
) -> None:
    """Send a run to the hub, with a card that tells what it came to. Needs HF_TOKEN."""
    hub = hub_to_write(repo)
    from slm_lab.experiment.hub import push as send
    from slm_lab.experiment.hub_card import card

    done = send(hub, folder, card(folder, hub.repo))
    typer.echo(f"{done.files} files, {done.size / 1e6:.1f} MB: {done.page}")


def pull(
    pattern: Annotated[str, typer.Argument(help="Part of the names of run folders; all that match are fetched.")],
    data_dir: Annotated[Path, typer.Option("--data-dir", "-d", help="The folder that runs are put in.")] = Path("data"),
    only_list: Annotated[bool, typer.Option("--list", "-l", help="Only list what would be fetched.")] = False,
    repo: ReadFrom = "",
    debug: Debug = False,
) -> None:
    """Fetch runs from the hub; every file is checked, and none that is there is overwritten."""
    hub = hub_to_read(repo)
    from slm_lab.experiment.hub import folders
    from slm_lab.experiment.hub_pull import pull as fetch

    names = folders(hub, pattern)
    if not names:
        known = folders(hub)
        there = f"{hint(pattern, known)} `slm-lab list` shows the {len(known)} there are." if known else " It is empty."
        raise LabError(f"{hub.repo}: no run folder with {pattern!r} in its name.{there}")
    if only_list:
        _show(names, hub.repo)
        return
    for name in names:
        done = fetch(hub, name, data_dir)
        typer.echo(f"{done.folder}: {done.fetched} files fetched, {done.kept} were there")


def list_runs(
    pattern: Annotated[str, typer.Argument(help="Part of the names of run folders.")] = "",
    repo: ReadFrom = "",
    debug: Debug = False,
) -> None:
    """List runs on the hub."""
    hub = hub_to_read(repo)
    from slm_lab.experiment.hub import folders

    _show(folders(hub, pattern), hub.repo)


def _show(names: list[str], repo: str) -> None:
    for name in names:
        typer.echo(name)
    typer.echo(f"{len(names)} run{'s' * (len(names) != 1)} in {repo}", err=True)


def hub_to_read(repo: str = "") -> Hub:
    """The repository that is asked for or set, else the public one."""
    from slm_lab.experiment.hub import PUBLIC

    return _hub(repo or _repo_set() or PUBLIC)


def hub_to_write(repo: str = "") -> Hub:
    """The repository that is asked for or set, with the token to write to it."""
    chosen = repo or _repo_set()
    if not chosen:
        raise LabError("no repository to push to: set HF_REPO=OWNER/NAME, or use --repo; there is no default.")
    hub = _hub(chosen)
    if hub.token is None:
        raise LabError("HF_TOKEN is not set: it takes a token with write access to push to the hub.")
    return hub


def _repo_set() -> str:
    repo = repo_in(os.environ)
    if repo and not os.environ.get("HF_REPO", "").strip():
        say([f"HF_DATASET_REPO is the older name of HF_REPO; {repo} is taken."])
    return repo


def repo_in(environment: Mapping[str, str]) -> str:
    """The repository that is set, under the name of today or the older one; nothing where none is."""
    return next(filter(None, (environment.get(key, "").strip() for key in ("HF_REPO", "HF_DATASET_REPO"))), "")


def _hub(repo: str) -> Hub:
    from slm_lab.experiment.hub import Hub

    token, endpoint = (os.environ.get(key, "").strip() or None for key in ("HF_TOKEN", "HF_ENDPOINT"))
    return Hub(repo, token, endpoint.rstrip("/") if endpoint else None)
