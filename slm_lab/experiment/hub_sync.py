"""Uploads of a run while it goes on and when it ends; a run never fails because of them."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from loguru import logger

from slm_lab.experiment.hub import Hub, push
from slm_lab.experiment.hub_card import card


class Uploads:
    """`with Uploads(hub, folder, every): ...` pushes the folder every so many minutes, and once at the end."""

    def __init__(self, hub: Hub, folder: Path, every: float) -> None:
        self.hub, self.folder, self.every = hub, folder, every
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._now_and_then, name="uploads", daemon=True)

    def __enter__(self) -> Uploads:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """The last upload: also after a failure or a signal, for that is when files on another machine matter."""
        self._over.set()
        self._thread.join()
        self._upload(self.hub)

    def _now_and_then(self) -> None:
        hub = replace(self.hub, wait=self._over.wait)  # the end of the run ends the wait for another try
        while not self._over.wait(60 * self.every):
            self._upload(hub)

    def _upload(self, hub: Hub) -> None:
        try:
            done = push(hub, self.folder, card(self.folder, hub.repo))
        except Exception as error:
            said = hub.masked(str(error))
            logger.error(f"upload failed: {said} All files are here: `slm-lab push {self.folder}` sends them.")
        else:
            logger.info(f"uploaded {done.files} files to {done.page}")
