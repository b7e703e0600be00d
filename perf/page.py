"""docs/PERFORMANCE.md and its graphs, from the results alone: run as `python -m perf.page`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from perf.plots import GRAPHS, draw
from perf.results import FOLDER, CommandResult, Facts, RowResult, Series, read_rows, read_series
from perf.table import command_line, memory_table, table
from slm_lab.lib.io import make_folder, write_bytes, write_text

DOCS = Path(__file__).resolve().parents[1] / "docs"
PLOTS = "plots_perf"
INTRODUCTION = """# Performance

Written by `python -m perf.page` from the files under `perf/results/`; nothing here is typed by hand.
`make perf` measures the table again, `python -m perf --rows 1,4` some of its rows, `python -m perf.growth` the rest.

## Against Stable-Baselines3 and SBX

Frames of training a second: this lab, Stable-Baselines3 (SB3, on PyTorch) and SBX (its kin on JAX) with the same
settings, each in a process of its own, of which one works at a time. All are warmed up first, so that nothing is
compiled while time runs. In a round they take turns, several each: speeds are medians over rounds, ratios are medians
of the ratios within a round, with the least and the largest. SB3 has one thread, SBX both cores, ours one thread where
a row does not name both cores.
"""
MEMORY = """### Memory

Megabytes that the process of each held after its last round.
"""
GROWTH = """## How cost grows

One thread a session; `train` has 50,000 frames a session, too few for `auto` to compile. A replay is filled before
time runs; memory is that of the session's process. The memory of `train` is the most that its processes held together,
pages that they share counted once.
"""
STARTUP = """## Start-up

Median seconds of PPO on CartPole-v1, one session. `command to first row` is the whole command, with the checks and
the files of a run; the others are its largest parts, measured apart.
"""


def page(rows: Sequence[RowResult | CommandResult], series: dict[str, Series]) -> str:
    """The page; rows that were measured on different machines, versions or code stand in tables of their own."""
    parts = [INTRODUCTION]
    for where, found in groupby(rows, key=lambda row: dataclasses.replace(row.facts, day="")):
        parts += _measured(list(found), where)
    if not rows:
        parts.append("Not measured yet.\n")
    if series:
        parts += [GROWTH, *_growth(series)]
    if "startup" in series:
        parts += [STARTUP, _startup(series["startup"])]
    return "\n".join(parts)


def _measured(rows: Sequence[RowResult | CommandResult], where: Facts) -> list[str]:
    compared = [row for row in rows if isinstance(row, RowResult)]
    commands = [command_line(row) + "\n" for row in rows if isinstance(row, CommandResult)]
    rounds = sorted({len(row.speeds["ours"]) for row in compared})
    counted = f"{' or '.join(map(str, rounds))} round{'' if rounds == [1] else 's'} a row. " if rounds else ""
    days = ", ".join(sorted({row.facts.day for row in rows}))
    parts = [table(compared)] if compared else []
    parts += [*commands, f"{counted}Measured on {days}, {_described(where)}\n"]
    return [*parts, MEMORY, memory_table(compared)] if compared else parts


def _described(where: Facts) -> str:
    machine = where.machine
    versions = ", ".join(f"{name} {version}" for name, version in where.versions.items())
    return (
        f"code at {where.commit}, {machine['processor']}, {machine['cores']} cores, {machine['memory_gb']} GB, "
        f"{machine['system']}, {machine['cpu_capability']}; {versions}."
    )


def _growth(series: dict[str, Series]) -> list[str]:
    parts = list[str]()
    for graph in GRAPHS:
        if graph.series not in series:
            continue
        header = [graph.xlabel, *(f"{graph.ylabel}, {label}" for label in graph.lines.values())]
        lines = [header, ["---"] * len(header)]
        for point in series[graph.series].points:
            lines.append([f"{point[graph.x]:,.0f}", *(_number(point[value]) for value in graph.lines)])
        parts.append(f"### {graph.title}\n\n![{graph.title}]({PLOTS}/{graph.file}.png)\n")
        parts.append("\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n")
    wheres = {found.facts.commit: found.facts for found in series.values()}
    return [*parts, *(f"Measured on {where.day}, {_described(where)}\n" for where in wheres.values())]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _startup(series: Series) -> str:
    lines = [["Part", "Seconds"], ["---", "---"], *([part, f"{spent:.2f}"] for part, spent in series.points[0].items())]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


def write_page(results: Path = FOLDER, docs: Path = DOCS) -> list[Path]:
    """Write the page and a graph for each series that was measured; which files."""
    series, written = read_series(results), list[Path]()
    for graph in GRAPHS:
        if graph.series in series:
            make_folder(docs / PLOTS)
            written.append(docs / PLOTS / f"{graph.file}.png")
            write_bytes(written[-1], draw(graph, series[graph.series]))
    written.append(docs / "PERFORMANCE.md")
    write_text(written[-1], page(read_rows(results), series))
    return written


if __name__ == "__main__":
    print(*write_page(), sep="\n")
