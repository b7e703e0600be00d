"""`slm-lab baseline`: what random actions score in an env."""

from __future__ import annotations

from typing import Annotated

import typer

from slm_lab.cli.options import Debug


def baseline(
    envs: Annotated[list[str] | None, typer.Argument(help="Env ids; without any, all known ones anew.")] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="KEY=VALUE", help="Arguments of the env, such as continuous=true."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Measure 100 random episodes of each env and keep mean and deviation: the zero of `strength`.

    The file they are kept in is part of the code: commit it before `bench run`, else records name changed code.
    """
    from slm_lab.experiment.random_score import measure
    from slm_lab.lib import log
    from slm_lab.spec.random_baseline import FILE, entries, entry_key, keep
    from slm_lab.spec.settings import parse_settings

    log.configure("WARNING", None, None)
    kwargs = {setting.key: setting.value for setting in parse_settings(sets or [])}
    for name, given in [(env, kwargs) for env in envs] if envs else entries():
        found = measure(name, given)
        keep(entry_key(name, given), found)
        typer.echo(f"{entry_key(name, given)}: {found['mean']:.2f}, deviation {found['std']:.2f}")
    typer.echo(f"kept in {FILE}")
