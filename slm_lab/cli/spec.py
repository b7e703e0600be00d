"""`slm-lab spec`: check, show and explain specs without running them."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer

from slm_lab.cli.options import Debug, File, Name, Sets, say
from slm_lab.lib.columns import columns
from slm_lab.lib.errors import LabError, SpecError, lookup

app = typer.Typer(no_args_is_help=True, help="Check, show and explain specs without running them.")


@app.command()
def check(
    files: Annotated[list[str], typer.Argument(help="Spec files; every spec in them is checked.")],
    sets: Sets = None,
    debug: Debug = False,
) -> None:
    """Validate every spec of the given files."""
    bad = 0
    for file in files:
        for where, check_one in _checks(file, sets or []):
            try:
                notes = check_one()
            except LabError as error:
                bad += 1
                typer.echo(f"{where}: error\n" + _indented(str(error)), err=True)
                continue
            typer.echo(f"{where}: ok")
            if notes:
                typer.echo(_indented("\n".join(dict.fromkeys(notes))))
    if bad:
        raise SpecError(f"{bad} spec{'s' * (bad > 1)} with errors.")


def _checks(file: str, sets: list[str]) -> list[tuple[str, Callable[[], list[str]]]]:
    """What to call each spec of a file, and its check, which gives notes; a file without specs has one that fails."""
    from slm_lab.experiment.check import check as check_spec
    from slm_lab.spec.load import load, spec_names

    def check_one(name: str) -> list[str]:
        loaded = load(file, name, sets)
        notes = list(loaded.notes)
        check_spec(loaded.spec, notes)
        return notes

    def refuse(error: LabError) -> list[str]:
        raise error

    try:
        names = spec_names(file)
    except LabError as error:
        return [(file, partial(refuse, error))]
    if not names:
        return [(file, partial(refuse, SpecError("it holds no spec: no entry with an `agent`.")))]
    return [(f"{file} {name}", partial(check_one, name)) for name in names]


@app.command()
def show(file: File, name: Name, sets: Sets = None, debug: Debug = False) -> None:
    """Print the resolved spec as JSON, with every default: a spec file of its own."""
    from slm_lab.experiment.check import check as check_spec
    from slm_lab.experiment.explain import resolved
    from slm_lab.spec.load import load

    loaded = load(file, name, sets or [])
    notes = list(loaded.notes)
    plan = check_spec(loaded.spec, notes)
    say([*loaded.applied, *notes])
    typer.echo(json.dumps({loaded.spec.name: resolved(loaded.spec, plan)}, indent=2))


@app.command()
def keys(
    component: Annotated[str | None, typer.Argument(help="env, meta, PPO, MLPNet, ...; without it, all.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print them as the page docs/KEYS.md.")] = False,
    debug: Debug = False,
) -> None:
    """List spec keys with type, default and meaning, from the code that reads them."""
    from slm_lab.experiment.explain import components
    from slm_lab.spec.key_tables import key_page, key_rows

    known = components()
    chosen = known if component is None else {component: lookup(known, component, "spec keys", "component")}
    if markdown:
        typer.echo(key_page(chosen))
        return
    for name, model in chosen.items():
        typer.echo(f"{name}: {(model.__doc__ or '').strip()}")
        for line in columns([("key", "type", "default", "meaning"), *key_rows(model)]):
            typer.echo(f"  {line}")
        typer.echo("")


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
