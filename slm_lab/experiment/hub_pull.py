"""A run folder fetched from the hub: every file checked, none overwritten, none outside the folder."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slm_lab.experiment.hub import CARD, CONNECT, ROOT, Hub
from slm_lab.lib.errors import LabError, RunError, listing
from slm_lab.lib.io import make_folder

if TYPE_CHECKING:
    from huggingface_hub import HfApi, RepoFile

PARTIAL = ".pull"  # folder of the data folder that holds files until they are whole and checked
AT_ONCE = 8  # files
BLOCK = 1 << 20  # bytes


@dataclass(frozen=True)
class Pulled:
    """Where a run is now, and how many of its files were fetched and were there already."""

    folder: Path
    fetched: int
    kept: int


@dataclass(frozen=True)
class Remote:
    """A file on the hub and what the hub says of its content."""

    path: str  # in the repository
    target: Path
    size: int
    digest: str  # hex
    large: bool  # then the digest is a SHA-256, else that of a git blob

    def is_at(self, path: Path) -> bool:
        """Whether the file at a path has this size and content."""
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        digest = hashlib.sha256() if self.large else hashlib.sha1(b"blob %d\0" % self.size)
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                digest.update(block)
        return digest.hexdigest() == self.digest


def pull(hub: Hub, name: str, data_dir: Path) -> Pulled:
    """Fetch a run folder; files that are there already with the right content are kept, partial ones continued."""
    revision, files = _files(hub, name, data_dir)
    missing = [file for file in files if not os.path.lexists(file.target)]
    _refuse_to_overwrite([file for file in files if file not in missing], data_dir / name)
    partial = data_dir / PARTIAL
    make_folder(partial)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            for _ in pool.map(lambda file: _fetch(hub, file, revision, partial), missing):
                pass
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    if not any(partial.iterdir()):
        partial.rmdir()
    return Pulled(data_dir / name, len(missing), len(files) - len(missing))


def _files(hub: Hub, name: str, data_dir: Path) -> tuple[str, list[Remote]]:
    """A run's files at the newest commit, which later pushes do not change under our hands; without its card."""
    from huggingface_hub import RepoFile

    folder = f"{ROOT}/{name}"

    def listed(api: HfApi) -> tuple[str, list[RepoFile]]:
        revision = str(api.dataset_info(hub.repo, timeout=CONNECT).sha)
        entries = api.list_repo_tree(hub.repo, folder, recursive=True, revision=revision, repo_type="dataset")
        return revision, [entry for entry in entries if isinstance(entry, RepoFile)]

    revision, found = hub.ask(listed)
    files = [_remote(hub, file, name, data_dir) for file in found if file.path != f"{folder}/{CARD}"]
    return revision, files


def _remote(hub: Hub, file: RepoFile, name: str, data_dir: Path) -> Remote:
    """Where a file goes and what it must be; refused where that is not inside the run's folder."""
    start, folder = f"{ROOT}/{name}/", data_dir.resolve() / name
    parts = file.path.removeprefix(start).split("/")
    odd = {"", ".", ".."} & {name, *parts} or name.startswith(".") or "/" in name
    target = folder.joinpath(*parts)
    if odd or {"\\", "\0"} & set(file.path) or not file.path.startswith(start) or not _inside(target, folder):
        raise RunError(hub.masked(f"{hub.repo}: {file.path!r} would be written outside {data_dir / name}; refused."))
    if file.lfs is not None:
        return Remote(file.path, target, file.lfs.size, file.lfs.sha256, large=True)
    return Remote(file.path, target, file.size, file.blob_id, large=False)


def _inside(target: Path, folder: Path) -> bool:
    """Whether a path stays in a folder, links on the way included."""
    return target.resolve().is_relative_to(folder)


def _refuse_to_overwrite(files: Sequence[Remote], folder: Path) -> None:
    differing = [str(file.target.relative_to(folder.resolve())) for file in files if not file.is_at(file.target)]
    if differing:
        raise LabError(
            f"{folder}: files there differ from those on the hub, and none is overwritten: "
            f"{listing(differing)}. Move them away, or choose another --data-dir."
        )


def _fetch(hub: Hub, file: Remote, revision: str, partial: Path) -> None:
    """Fetch a file, check it, and only then give it its name."""
    # by name and content: the rest of an older version is never taken for the start of this one
    part = partial / hashlib.sha256(f"{hub.repo} {file.path} {file.digest}".encode()).hexdigest()
    hub.ask(lambda api: _continue(hub, file, revision, part))
    if not file.is_at(part):
        part.unlink()
        raise RunError(hub.masked(f"{hub.repo}: {file.path} came with another content than the hub lists; not kept."))
    make_folder(file.target.parent)
    os.replace(part, file.target)


def _continue(hub: Hub, file: Remote, revision: str, part: Path) -> None:
    """Fetch what is missing of a file; more than the hub lists is not read."""
    import httpx2
    from huggingface_hub import get_session, hf_hub_url
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

    url = hf_hub_url(hub.repo, file.path, repo_type="dataset", revision=revision, endpoint=hub.endpoint)
    headers = {**build_hf_headers(token=hub.token or False), "accept-encoding": "identity"}
    with part.open("ab") as out:
        if out.tell() >= file.size:
            return
        if out.tell():
            headers["range"] = f"bytes={out.tell()}-"
        with get_session().stream("GET", url, headers=headers) as response:
            hf_raise_for_status(response)
            if response.status_code != 206:  # the whole file, whatever was asked for
                out.seek(0)
                out.truncate()
            for block in response.iter_bytes():
                out.write(block)
                if out.tell() > file.size:
                    return
        if out.tell() < file.size:
            raise httpx2.ReadError(f"{file.path} was cut short")
