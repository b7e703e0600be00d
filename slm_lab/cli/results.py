"""`slm-lab plot`, `plot-list`, `retro` and `compare`: look at runs that are there. None of them needs torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slm_lab.cli.options import Debug, say
from slm_lab.lib.columns import columns
from slm_lab.lib.errors import LabError

if TYPE_CHECKING:
    from slm_lab.experiment.aggregate import Aggregate

DataDir = Annotated[Path, typer.Option("--data-dir", "--data-folder", "-d", help="The folder that runs are in.")]


def plot(
    folders: Annotated[str, typer.Option("--folders", "-f", help="Run folders: names in --data-dir, or paths: a,b,c.")],
    title: Annotated[
        str, typer.Option("--title", "-t", help="Title and start of the file name; the env unless set.")
    ] = "",
    labels: Annotated[
        str, typer.Option("--labels", "--legends", "-l", help="A label for each run, in order: x,y,z.")
    ] = "",
    data_dir: DataDir = Path("data"),
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder that graphs go to.")] = Path("docs/plots"),
    legend: Annotated[bool, typer.Option(help="Explain the curves below the graph.")] = True,
    mix_frames: Annotated[bool, typer.Option("--mix-frames", help="Allow runs with different max_frame.")] = False,
    aggregate: Annotated[
        bool, typer.Option("--aggregate", help="Average algorithms over several envs; runs with one label go together.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Draw several runs in one graph, or with --aggregate what algorithms come to over several envs."""
    from slm_lab.experiment.aggregate import aggregate as averages
    from slm_lab.experiment.aggregate import aggregate_graphs
    from slm_lab.experiment.finished import find_run, read_result
    from slm_lab.experiment.multi_plot import multi_graph, warnings

    names = _listed(folders)
    if not names:
        raise LabError("--folders: name at least one run; `slm-lab plot-list` shows what there is.")
    runs = [read_result(find_run(name, data_dir)) for name in names]
    if aggregate:
        found = averages(runs, _listed(labels), mix_frames)
        envs = len({run.env_key for run in runs})
        say(note for run in runs for note in run.notes)
        for line in _averages_table(found):
            typer.echo(line)
        drawn = aggregate_graphs(found, output, title or f"{envs} env{'s' * (envs > 1)}")
    else:
        drawn = [multi_graph(runs, output, title, _listed(labels), mix_frames, legend)]
        say(warnings(runs))
    for path in drawn:
        typer.echo(path)


def _averages_table(found: list[Aggregate]) -> list[str]:
    rows = [("normalised score", "interquartile mean", "median over envs", "optimality gap")]
    for one in found:
        cells = [f"{value:.3f} ({low:.3f} to {high:.3f})" for value, low, high in (one.iqm, one.median, one.gap)]
        rows.append((one.label, cells[0], cells[1], cells[2]))
    return columns(rows)


def plot_list(data_dir: DataDir = Path("data"), debug: Debug = False) -> None:
    """List run folders with env, algorithm, frames, sessions and score."""
    from slm_lab.experiment.finished import run_folders

    rows = [_list_row(folder) for folder in run_folders(data_dir)]
    if not rows:
        bench = data_dir / "bench"
        there = f" Those of the benchmark suite: -d {bench}." if bench.is_dir() and run_folders(bench) else ""
        raise LabError(f"{data_dir}: no runs in this folder.{there}")
    for line in columns([("run", "env", "algorithm", "frames", "sessions", "total_reward_ma"), *rows]):
        typer.echo(line)


def _list_row(folder: Path) -> tuple[str, str, str, str, str, str]:
    """A line of the list, from the saved spec and the small copy of the trial's metrics beside it."""
    from slm_lab.experiment.analysis import engineering, format_number
    from slm_lab.experiment.finished import described
    from slm_lab.lib.io import read_json

    try:
        run = described(folder)
        path = run.paths.beside_spec(run.paths.trial_scalar)
        scalar = read_json(path) if path.exists() else {}
        frame, score = scalar.get("frame"), scalar.get("total_reward_ma")
    except LabError as error:
        return folder.name, f"cannot be read: {error}", "", "", "", ""
    done = scalar.get("sessions_done", run.planned) if frame and frame + run.spacing > run.session_frames else 0
    sessions = "search" if run.search else f"{done}/{run.planned}"
    shown = "-" if score is None else format_number("total_reward_ma", float(score))
    return folder.name, run.env_key, run.algorithm, engineering(run.max_frame), sessions, shown


def retro(
    folder: Annotated[Path, typer.Argument(help="A run folder.")],
    log_extra: Annotated[bool, typer.Option(help="Also draw strength, efficiencies, stability, consistency.")] = False,
    debug: Debug = False,
) -> None:
    """Compute metrics and graphs of a run again from its tables, which are only read."""
    from slm_lab.experiment.retro import retro as recompute

    done = recompute(folder, log_extra)
    say(done.notes)
    for path in done.written:
        typer.echo(path)
    for line in done.lines:
        typer.echo(line)


def compare(
    a: Annotated[str, typer.Argument(help="A run folder: a name in --data-dir, or a path.")],
    b: Annotated[str, typer.Argument(help="Another one.")],
    data_dir: DataDir = Path("data"),
    debug: Debug = False,
) -> None:
    """Compare two runs: settings, scores with intervals, and the spec keys in which they differ."""
    from slm_lab.experiment.compare import compare as report
    from slm_lab.experiment.finished import find_run, read_result

    left, right = (read_result(find_run(name, data_dir)) for name in (a, b))
    say([*left.notes, *right.notes])
    typer.echo(report(left, right))


def _listed(text: str) -> list[str]:
    """The parts of a list such as a,b,c."""
    return [part.strip() for part in text.split(",") if part.strip()]
