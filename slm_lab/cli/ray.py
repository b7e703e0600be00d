"""Ray as the command line sets it up, and what is left of it when the driver of a search was killed."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import typer

from slm_lab.cli.options import say

OURS = "SLM_LAB_RAY"
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # no reports home
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # tables of its own for each trial, which nobody reads
    OURS: "1",  # in the environment of all that a search starts
}


def stop_ray() -> None:
    """End processes of Ray that searches of ours started on this machine, and no others."""
    import psutil

    say(["Ray that a search starts ends with it; --stop-ray ends what is left of one whose driver was killed."])
    ended = 0
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # gone, or somebody else's
            is_ray = any("ray" in Path(word).name or "/ray/" in word for word in process.cmdline()[:4])
            if is_ray and OURS in process.environ():
                process.terminate()
                ended += 1
    typer.echo(f"{ended} processes of Ray ended")
