"""`slm-lab verify`: are the numbers of a run still what the code gives?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slm_lab.cli.options import Debug


def verify(
    folder: Annotated[Path, typer.Argument(help="A run folder.")],
    frames: Annotated[int, typer.Option(min=1, help="Frames to train again; at least to the first row.")] = 5000,
    session: Annotated[int, typer.Option(min=0, help="Which session.")] = 0,
    debug: Debug = False,
) -> None:
    """Train the first frames of a run again from its recorded seed and compare the rows of its table."""
    from slm_lab.experiment.verify import verify_run
    from slm_lab.lib import log

    log.configure("WARNING", None, None)
    found = verify_run(folder, session, frames)
    if not found.lines:
        typer.echo(f"identical: {found.rows} rows, {found.frames} frames")
        return
    typer.echo(f"differs in {len(found.lines)} of {found.rows} rows")
    for line in found.told():
        typer.echo(f"  {line}")
    raise typer.Exit(1)
