"""`slm-lab net`: look at nets without training them."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Look at the nets of a spec without training them.")


@app.callback()
def nets() -> None:
    """Look at the nets of a spec without training them."""


@app.command()
def show(
    file: Annotated[str, typer.Argument(help="Spec file.")],
    name: Annotated[str, typer.Argument(help="Name of a spec in it.")],
    sets: Annotated[list[str] | None, typer.Option("--set", "-s", metavar="KEY=VALUE", help="As in `run`.")] = None,
    debug: Annotated[bool, typer.Option(help="Show tracebacks of errors.")] = False,
) -> None:
    """Print the nets of a spec as they would be built for its env: layers, shapes and parameter counts."""
    from slm_lab.experiment.describe import describe
    from slm_lab.experiment.net_table import table
    from slm_lab.spec.load import load

    loaded = load(file, name, sets or [])
    notes = list(loaded.notes)
    description = describe(loaded.spec, notes)
    for note in dict.fromkeys([*loaded.applied, *notes]):
        typer.echo(f"note: {note}", err=True)
    typer.echo(f"{loaded.spec.name}: {loaded.spec.agent.algorithm['name']} on {loaded.spec.env.name}")
    typer.echo(table(description))
