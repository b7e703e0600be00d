"""`slm-lab bench`: the benchmark suite, run, shown, reported and verified."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slm_lab.cli.options import SIGNAL_CODES, Debug
from slm_lab.lib.errors import LabError, RunError

if TYPE_CHECKING:
    from slm_lab.spec.suite import Cell

app = typer.Typer(no_args_is_help=True, help="Run the benchmark suite and write its page from recorded results.")

Family = Annotated[str | None, typer.Option(help="Only this family: classic, box2d, mujoco, atari or playground.")]
Algorithm = Annotated[str | None, typer.Option("--algorithm", "--algo", help="Only this algorithm.")]
Env = Annotated[str | None, typer.Option(help="Only this env.")]
Results = Annotated[Path, typer.Option(help="Where records are kept.")]
RESULTS = Path("results")
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(text: str) -> float:
    """`90m`, `1.5h` or `1h30m` in seconds."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise LabError(f"--time-budget: got {text!r}; allowed: a time such as 30s, 90m, 2h or 1h30m.")
    return sum(float(number) * UNITS[unit] for number, unit in parts)


@app.command()
def status(
    family: Family = None,
    algorithm: Algorithm = None,
    env: Env = None,
    results: Results = RESULTS,
    debug: Debug = False,
) -> None:
    """Show how each cell stands: beaten, met, below, recorded, drifted, incomplete, refused or not run."""
    from slm_lab.experiment.bench_status import judge, matrix
    from slm_lab.spec.suite import choose, read_suite

    cells = choose(read_suite(), family, algorithm, env)
    typer.echo(matrix([judge(cell, results) for cell in cells]))


@app.command()
def run(
    family: Family = None,
    algorithm: Algorithm = None,
    env: Env = None,
    time_budget: Annotated[str | None, typer.Option(help="Stop after this long, with checkpoints: 90m, 2h.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Sessions at once; one a core unless set.")] = None,
    results: Results = RESULTS,
    data_dir: Annotated[Path, typer.Option(help="Where runs are written.")] = Path("data/bench"),
    debug: Debug = False,
) -> None:
    """Run what is not recorded yet, cheapest first. Stopped or killed, the next call goes on where it was."""
    from rich.console import Console

    from slm_lab.lib import log
    from slm_lab.spec.suite import choose, read_suite

    cells = choose(read_suite(), family, algorithm, env)
    limit = None if time_budget is None else seconds(time_budget)
    console = Console(stderr=True)
    with console.status("loading torch"):  # which takes seconds
        from slm_lab.experiment.bench_line import Line
        from slm_lab.experiment.bench_run import Bench
        from slm_lab.experiment.bench_status import judge, matrix
        from slm_lab.experiment.control import RunOptions
    with Line(console) as line:
        log.configure("INFO", None, console if line.live is not None else None)
        bench = Bench(cells, results, RunOptions(data_dir, jobs), line)
        complete = bench.run(limit)
    typer.echo(matrix([judge(cell, results) for cell in cells]))
    if bench.failures:
        raise RunError("\n".join(bench.failures))
    if not complete:
        typer.echo(f"stopped ({bench.stop.reason}); the same command goes on")
        raise typer.Exit(SIGNAL_CODES.get(bench.stop.reason, 0))


@app.command()
def report(
    results: Results = RESULTS,
    docs: Annotated[Path, typer.Option(help="Where the page and its plots go.")] = Path("docs"),
    debug: Debug = False,
) -> None:
    """Write BENCHMARKS.md and one plot an env from the records."""
    from slm_lab.experiment.bench_report import write_report
    from slm_lab.experiment.bench_status import judge
    from slm_lab.spec.suite import read_suite

    for path in write_report([judge(cell, results) for cell in read_suite()], docs):
        typer.echo(path)


@app.command()
def verify(
    family: Family = None,
    algorithm: Algorithm = None,
    env: Env = None,
    results: Results = RESULTS,
    debug: Debug = False,
) -> None:
    """Train the first frames of each recorded cell again, compare, and note the outcome in its record.

    A difference on another processor or with other versions is told and not noted.
    """
    from slm_lab.experiment.bench_status import counted
    from slm_lab.lib import log
    from slm_lab.spec.suite import choose, read_suite

    cells = choose(read_suite(), family, algorithm, env)
    log.configure("WARNING", None, None)
    codes = [code for cell in cells if (code := _verify(cell, results)) is not None]
    if not codes:
        raise LabError(
            f"{results}: no record of what was asked for, {counted(len(cells))}; `slm-lab bench run` makes it."
        )
    raise typer.Exit(1 if 1 in codes else max(codes))


def _verify(cell: Cell, results: Path) -> int | None:
    """Say what came of a cell's record: 0 identical, 1 differs, 2 cannot be told; None where there is no record."""
    from slm_lab.experiment.bench_verify import verify_cell

    try:
        found = verify_cell(cell, results)
    except LabError as error:  # the others go on
        typer.echo(f"{cell.id}: cannot be verified: {error}", err=True)
        return 2
    if found is None:
        return None
    rows = f"{found.rows} row{'s' * (found.rows != 1)}"
    if not found.lines:
        typer.echo(f"{cell.id}: identical: {rows}, {found.frames} frames")
        return 0
    typer.echo(f"{cell.id}: differs in {len(found.lines)} of {rows}")
    for line in found.told():
        typer.echo(f"  {line}")
    if found.foreign:
        typer.echo("  these can be the reason as well as the code: the record is left as it is")
    return 1
