"""The table of speeds: medians over rounds, ratios of the same round, and whether they are what was asked for."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from perf.results import CommandResult, RowResult

COLUMNS = {"ours": "Ours", "sb3": "SB3", "sb3_2": "SB3, 2 threads", "sbx": "SBX"}
RATIOS = {"sb3": "Ours / SB3", "sbx": "Ours / SBX"}


def table(rows: Sequence[RowResult]) -> str:
    """The rows as a table in Markdown; frames a second."""
    header = ["", "Training", "Settings", *COLUMNS.values(), *RATIOS.values()]
    lines = [header, ["---"] * len(header), *(_cells(row) for row in rows)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


def _cells(row: RowResult) -> list[str]:
    speeds = [f"{statistics.median(row.speeds[name]):,.0f}" if name in row.speeds else "-" for name in COLUMNS]
    ratios = [_judged(ratios_to(row, name), row.asked.get(name)) if name in row.speeds else "-" for name in RATIOS]
    return [str(row.number), row.title, row.settings, *speeds, *ratios]


def ratios_to(row: RowResult, other: str) -> list[float]:
    """How many times as fast ours was, in each round."""
    return [mine / theirs for mine, theirs in zip(row.speeds["ours"], row.speeds[other], strict=True)]


def _judged(ratios: Sequence[float], asked: float | None) -> str:
    """The median with the range over rounds, and whether it is what was asked for."""
    found = statistics.median(ratios)
    span = f" [{min(ratios):.2f}, {max(ratios):.2f}]" if len(ratios) > 1 else ""
    if asked is None:
        return f"{found:.2f}{span}"
    return f"**{found:.2f}**{span} ({'met' if found >= asked else 'below'}: {asked:g} asked)"


def command_line(row: CommandResult) -> str:
    """The row of a whole command as a sentence."""
    verdict = "met" if row.seconds <= row.asked else "missed"
    found = f"**{row.seconds:.1f} s** ({verdict}: at most {row.asked:g} s asked)"
    return f"{row.number}. {row.title}, {row.settings}: {found}."


def memory_table(rows: Sequence[RowResult]) -> str:
    """Megabytes that each process held at the end, as a table in Markdown."""
    lines = [["", "Training", *COLUMNS.values()], ["---"] * (2 + len(COLUMNS))]
    for row in rows:
        held = [f"{row.memory_mb[name]:,.0f}" if name in row.memory_mb else "-" for name in COLUMNS]
        lines.append([str(row.number), row.title, *held])
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"
