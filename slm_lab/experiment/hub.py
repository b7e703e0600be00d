"""Runs on the Hugging Face hub: `data/<folder>/` in a dataset repository; which there are, and how one gets there."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from slm_lab.experiment.paths import TEMPORARY
from slm_lab.lib.errors import LabError, RunError

if TYPE_CHECKING:
    from huggingface_hub import HfApi

T = TypeVar("T")

PUBLIC = "SLM-Lab/benchmark"  # results that anybody may read
CARD = "README.md"  # stands beside a run's files on the hub, and only there
ROOT = "data"  # the folder of the repository that runs are in
WAITS = (1.0, 2.0, 4.0, 8.0)  # seconds before another try
CONNECT, SILENCE = 10.0, 60.0  # seconds until a hub that does not answer counts as lost
LEFT_OUT = {"ray_tune"}
REPO_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")


@dataclass(frozen=True)
class Hub:
    """A dataset repository and how it is reached."""

    repo: str
    token: str | None = field(default=None, repr=False)
    endpoint: str | None = None  # None for the public hub
    wait: Callable[[float], object] = time.sleep  # seconds -> passed before another try

    def __post_init__(self) -> None:
        if not REPO_NAME.fullmatch(self.repo):
            raise LabError(f"{self.repo!r}: not the name of a repository on the hub; expected OWNER/NAME.")

    def ask(self, request: Callable[[HfApi], T]) -> T:
        """What the hub answers; asked again where it is busy or out of reach, and an error that says why otherwise."""
        api, waits = self._api(), list(WAITS)
        while True:
            try:
                return request(api)
            except (LabError, RunError):
                raise
            except Exception as error:  # the library's, and those of the three it stands on
                if not waits or not _passing(error):
                    # from None: what a hub answered, and a traceback would show, may hold the token
                    raise RunError(self.masked(f"{self.repo}: {_reason(error, self)}")) from None
            self.wait(waits.pop(0))

    def masked(self, text: str) -> str:
        """A text without the token, whoever wrote it there."""
        return text.replace(self.token, "***") if self.token else text

    @property
    def page(self) -> str:
        return f"{self.endpoint or 'https://huggingface.co'}/datasets/{self.repo}"

    def _api(self) -> HfApi:
        import httpx2
        from huggingface_hub import HfApi, get_session
        from huggingface_hub.utils import disable_progress_bars, logging

        logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # it repeats what a hub says, a token included
        disable_progress_bars()  # a run has its own display
        get_session().timeout = httpx2.Timeout(SILENCE, connect=CONNECT)
        return HfApi(endpoint=self.endpoint, token=self.token or False)


def _passing(error: Exception) -> bool:
    """Whether another try may help: two pushes that met (412), a busy hub (429, 5xx), a lost connection."""
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    cause = error.__cause__ if isinstance(error, RuntimeError) else error  # how large files fail
    if isinstance(cause, HfHubHTTPError):
        status = int(cause.response.status_code)
        return status in (408, 412, 429) or status >= 500
    return isinstance(cause, httpx2.TransportError | ConnectionError) and not isinstance(cause, OfflineModeIsEnabled)


def _reason(error: Exception, hub: Hub) -> str:
    """Why the hub did not do what it was asked, in a line."""
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled, RepositoryNotFoundError

    where = hub.endpoint or "the hub"
    if isinstance(error, RepositoryNotFoundError):
        who = "this HF_TOKEN" if hub.token else "somebody without HF_TOKEN"
        return f"no such dataset on {where}, or none that {who} may see."
    if isinstance(error, OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set, so nothing is asked of the hub."
    if not isinstance(error, HfHubHTTPError):
        lost = f"{where} cannot be reached: " if _passing(error) else ""
        return f"{lost}{type(error).__name__}: {' '.join(str(error).split())}"
    status = int(error.response.status_code)
    known = {401: ": HF_TOKEN was refused", 403: ": HF_TOKEN does not allow this"}
    said = " ".join((error.server_message or "").split())
    return f"HTTP {status} from {where}{known.get(status, '')}" + (f": {said}" if said else ".")


def folders(hub: Hub, pattern: str = "") -> list[str]:
    """Names of the run folders on the hub that contain a pattern, by name."""
    from huggingface_hub import RepoFolder
    from huggingface_hub.errors import EntryNotFoundError

    def listed(api: HfApi) -> list[str]:
        api.dataset_info(hub.repo, timeout=CONNECT)  # answers or fails at once, where listing tries for long
        try:
            entries = list(api.list_repo_tree(hub.repo, ROOT, repo_type="dataset"))
        except EntryNotFoundError:  # nothing was pushed yet
            return []
        return [entry.path.removeprefix(f"{ROOT}/") for entry in entries if isinstance(entry, RepoFolder)]

    wanted = pattern.removeprefix(f"{ROOT}/").rstrip("/")
    return sorted(name for name in hub.ask(listed) if wanted in name)


@dataclass(frozen=True)
class Pushed:
    """What a push sent, and where it can be seen."""

    files: int
    size: int  # bytes
    page: str


def push(hub: Hub, folder: Path, card: str) -> Pushed:
    """Send a run's folder and its card in one commit; files that the hub has already are not sent again."""
    from huggingface_hub import CommitOperationAdd

    name = folder.resolve().name
    target = f"{ROOT}/{name}"
    with _still(folder) as copy:
        files = files_of(copy)

        def commit(api: HfApi) -> None:
            _make_repo(api, hub)
            added = [CommitOperationAdd(f"{target}/{path.relative_to(copy).as_posix()}", path) for path in files]
            added.append(CommitOperationAdd(f"{target}/{CARD}", card.encode()))
            api.create_commit(hub.repo, added, commit_message=f"{name}: push", repo_type="dataset")

        hub.ask(commit)
        return Pushed(len(files), sum(path.stat().st_size for path in files), f"{hub.page}/tree/main/{target}")


def _make_repo(api: HfApi, hub: Hub) -> None:
    """See that the repository is there; a new one is private until its owner decides otherwise."""
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        api.dataset_info(hub.repo, timeout=CONNECT)
    except RepositoryNotFoundError:
        api.create_repo(hub.repo, repo_type="dataset", private=True, exist_ok=True)


def files_of(folder: Path) -> list[Path]:
    """The files of a run that are pushed: models come first, and what is hidden, linked or temporary does not come."""

    def is_of_the_run(path: Path) -> bool:
        parts = path.relative_to(folder).parts
        hidden = any(part.startswith(".") for part in parts)
        temporary = TEMPORARY.search(path.name) or path.suffix == ".lock" or parts == (CARD,)
        return not (hidden or temporary or parts[0] in LEFT_OUT) and path.is_file() and not path.is_symlink()

    found = [path for path in sorted(folder.rglob("*")) if is_of_the_run(path)]
    return sorted(found, key=lambda path: path.parent.name != "model")


@contextmanager
def _still(folder: Path) -> Iterator[Path]:
    """The folder as it is now, while a run goes on writing to it: tables no shorter than its checkpoints say."""
    beside = folder.resolve().parent
    place = beside if os.access(beside, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix=".upload_", dir=place, ignore_cleanup_errors=True) as copy:
        for path in files_of(folder):
            target = Path(copy) / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                _take(path, target)
            except FileNotFoundError:  # an old checkpoint made room for a new one
                continue
        yield Path(copy)


def _take(path: Path, target: Path) -> None:
    """Link what is written once and may be large; copy what may grow."""
    if path.parent.name == "model":
        try:
            os.link(path, target)
            return
        except FileNotFoundError:
            raise
        except OSError:  # another file system, or one without links
            pass
    shutil.copyfile(path, target)
