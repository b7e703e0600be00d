"""What several commands share: arguments, the notes they print before their answer, exit codes of signals."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

File = Annotated[str, typer.Argument(help="Spec file.")]
Name = Annotated[str, typer.Argument(help="Name of a spec in it.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="Fill ${KEY}, or override a key or a dotted path."),
]
SIGNAL_CODES = {"SIGINT": 130, "SIGTERM": 143}
Debug = Annotated[bool, typer.Option(help="Show the tracebacks of errors.")]


def say(notes: Iterable[str]) -> None:
    """Each note once, on stderr: what is asked for stays alone on stdout."""
    for note in dict.fromkeys(notes):
        typer.echo(f"note: {note}", err=True)
