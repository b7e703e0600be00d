"""What a rented machine calls: go on with this run where the hub has it, else start it."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import typer

from slm_lab.cli.main import guarded
from slm_lab.cli.main import main as command_line
from slm_lab.experiment.paths import STAMP
from slm_lab.experiment.remote import ID_TIME, unpacked
from slm_lab.lib.errors import LabError, RunError
from slm_lab.lib.io import write_text

if TYPE_CHECKING:
    from huggingface_hub import HfApi

    from slm_lab.experiment.hub import Hub as Client

DATA = Path("data")
MARK = "remote_run_id.txt"  # in a run's folder, here and on the hub
WAITS = (5.0, 20.0, 60.0, 180.0)  # seconds between attempts to reach the hub
POLL = 0.2  # seconds between looks for the new run's folder
T = TypeVar("T")


class Hub(Protocol):
    """What is needed of the hub."""

    def folders(self, pattern: str = "") -> list[str]: ...

    def pull(self, folder: str, data_dir: Path) -> Path: ...

    def read(self, path_in_repo: str) -> bytes | None: ...


def enter(environment: Mapping[str, str], connect: Callable[[str, str], Hub]) -> None:
    """Start or continue the run that the environment describes."""
    words = unpacked(_needed(environment, "SLM_ARGS"))
    run_id, token, repo = (_needed(environment, key) for key in ("SLM_RUN_ID", "HF_TOKEN", "HF_REPO"))
    folder = patiently(lambda: on_hub(connect(repo, token), words, run_id), repo, token)
    if folder is None:
        typer.echo(f"{run_id}: nothing on {repo} yet: a new run")
        with marked(DATA, run_id):
            command_line(words)
    else:
        typer.echo(f"{run_id}: goes on with {folder} of {repo}")
        command_line([*words[:-1], f"{words[-1].partition('@')[0]}@{folder}"])


def on_hub(hub: Hub, words: Sequence[str], run_id: str) -> Path | None:
    """The folder to go on with, pulled: the one the mode names, or the one an earlier attempt left; else None."""
    name, mode = words[-2:]
    target = mode.partition("@")[2]
    if target:
        if target not in hub.folders(target):
            raise LabError(f"mode: {mode}: no such folder on the hub; `slm-lab push data/{target}` puts it there.")
        return hub.pull(target, DATA)
    found = earlier(hub, name, run_id)
    return None if found is None else hub.pull(found, DATA)


def earlier(hub: Hub, name: str, run_id: str) -> str | None:
    """The newest folder that an earlier attempt at this run left on the hub."""
    # folders are named by the clock of the machine they were made on: a day covers every time zone
    launched = datetime.strptime(run_id.rpartition("-")[2], ID_TIME) - timedelta(days=1)
    stamped = [(match[1], folder) for folder in hub.folders(name) if (match := STAMP.search(folder))]
    for stamp, folder in sorted(stamped, reverse=True):
        if stamp >= launched.strftime(ID_TIME) and hub.read(f"data/{folder}/{MARK}") == run_id.encode():
            return folder
    return None


def patiently(ask: Callable[[], T], repo: str, token: str, wait: Callable[[float], None] = time.sleep) -> T:
    """What the hub answers, at the latest at the last attempt. Without it nothing starts: work done would be lost."""
    for seconds in (*WAITS, None):
        try:
            return ask()
        except LabError:  # no later attempt changes bad input
            raise
        except Exception as error:
            told = f"{type(error).__name__}: {error}".replace(token, "***")
            if seconds is None:
                raise RunError(f"{repo}: the hub was not reached in {len(WAITS) + 1} attempts: {told}") from None
            typer.echo(f"{repo}: {told}; again in {seconds:.0f} s", err=True)
            wait(seconds)
    raise AssertionError("the last attempt returns or raises")


@contextmanager
def marked(data_dir: Path, run_id: str) -> Iterator[None]:
    """While a new run goes on, write its id into its folder, so that uploads carry it."""
    before, ended = set(_folders(data_dir)), threading.Event()

    def mark() -> None:
        last = False
        while not last:
            last = ended.wait(POLL)
            new = [folder for folder in _folders(data_dir) if folder not in before]
            if new:
                write_text(new[0] / MARK, run_id)
                return

    thread = threading.Thread(target=mark, name="mark", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _folders(data_dir: Path) -> list[Path]:
    """Run folders, oldest first."""
    found = [(match[1], path) for path in data_dir.glob("*") if (match := STAMP.search(path.name)) and path.is_dir()]
    return [path for _, path in sorted(found)]


def _needed(environment: Mapping[str, str], key: str) -> str:
    if not environment.get(key):
        raise LabError(f"{key}: not set; `slm-lab run-remote` sets it on the machine it rents.")
    return environment[key]


class Dataset:
    """The hub's repository, made where it is not there yet: a token that may not write fails here, not after hours."""

    def __init__(self, client: Client) -> None:
        self._client = client
        client.ask(lambda api: api.create_repo(client.repo, repo_type="dataset", private=True, exist_ok=True))

    def folders(self, pattern: str = "") -> list[str]:
        from slm_lab.experiment.hub import folders

        return folders(self._client, pattern)

    def pull(self, folder: str, data_dir: Path) -> Path:
        from slm_lab.experiment.hub_pull import pull

        pull(self._client, folder, data_dir)
        return data_dir / folder

    def read(self, path_in_repo: str) -> bytes | None:
        from huggingface_hub import get_session, hf_hub_url
        from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

        url = hf_hub_url(self._client.repo, path_in_repo, repo_type="dataset", endpoint=self._client.endpoint)

        def fetched(api: HfApi) -> bytes | None:
            response = get_session().get(url, headers=build_hf_headers(token=self._client.token or False))
            if response.status_code == 404:
                return None
            hf_raise_for_status(response)
            return bytes(response.content)

        return self._client.ask(fetched)


def _connect(repo: str, token: str) -> Hub:
    from slm_lab.experiment.hub import Hub as Client

    return Dataset(Client(repo, token))


if __name__ == "__main__":
    sys.exit(guarded(lambda: enter(os.environ, _connect), debug=False))
