"""`slm-lab net`: look at nets without training them."""

from __future__ import annotations

import typer

from slm_lab.cli.options import Debug, File, Name, Sets, say

app = typer.Typer(no_args_is_help=True, help="Look at the nets of a spec without training them.")


@app.callback()
def nets() -> None:
    """Look at the nets of a spec without training them."""


@app.command()
def show(file: File, name: Name, sets: Sets = None, debug: Debug = False) -> None:
    """Print the nets of a spec as they would be built for its env: layers, shapes and parameter counts."""
    from slm_lab.experiment.describe import describe
    from slm_lab.experiment.net_table import table
    from slm_lab.spec.load import load

    loaded = load(file, name, sets or [])
    notes = list(loaded.notes)
    description = describe(loaded.spec, notes)
    say([*loaded.applied, *notes])
    typer.echo(f"{loaded.spec.name}: {loaded.spec.agent.algorithm['name']} on {loaded.spec.env.name}")
    typer.echo(table(description))
