"""The benchmark page and its plots: everything in them comes from the records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np

from slm_lab.experiment.bench_record import Record
from slm_lab.experiment.bench_status import RULE, Judged, shown
from slm_lab.experiment.multi_plot import colors
from slm_lab.experiment.plot import Curve, draw, mean_curve
from slm_lab.experiment.progress import duration
from slm_lab.experiment.statistics import interval, mean
from slm_lab.lib.io import make_folder, write_bytes, write_text

TITLES = {
    "classic": "Classic control",
    "box2d": "Box2D",
    "mujoco": "MuJoCo",
    "atari": "Atari",
    "playground": "MuJoCo Playground",
}
HEADER = (
    "Algorithm",
    "Score [95 %]",
    "Sessions",
    "Evaluation",
    "Target",
    "Published",
    "Result",
    "Time",
    "Spec",
    "Code",
)
INTRODUCTION = f"""# Benchmarks

Written by `slm-lab bench report` from the records under `results/`; nothing here is typed by hand.
`slm-lab bench status` prints the same matrix, `slm-lab bench run --env ENV --algorithm ALGORITHM` runs a row that is
not recorded, and `slm-lab bench verify` trains the first frames of each row again and compares them with the record.
[METHOD.md](METHOD.md) tells what is run and recorded, and how to repeat a row.

{RULE}

- *Score*: mean over all sessions, with its 95 % bootstrap interval; *Sessions*: the score of each. Training returns,
  of a policy that still explores.
- *Evaluation*: mean of 100 episodes of each session's last policy, by its most likely actions.
- *Target* and *Published*: what is to be reached, and the best score SLM-Lab published for the cell.
- *Time*: of the longest session. *Code*: the commit; `+` where it had been changed.
"""


def page(judged: Sequence[Judged], plots: str) -> str:
    """The page; `plots` is where its pictures lie, seen from it."""
    parts = [INTRODUCTION, _summary(judged)]
    for family, items in groupby(judged, key=lambda item: item.cell.family):
        parts.append(f"## {TITLES[family]}\n")
        left_out = list[str]()
        for env, cells in groupby(items, key=lambda item: item.cell.env):
            found = list(cells)
            if any(item.record for item in found):
                parts.append(_section(env, found, plots))
            else:
                left_out.append(env)
        if left_out:
            parts.append(f"Not run: {', '.join(left_out)}.\n")
    return "\n".join(parts)


def _summary(judged: Sequence[Judged]) -> str:
    """How many cells of each family stand how."""
    kinds = list(dict.fromkeys(item.verdict for item in judged))
    rows = [("Family", "Cells", *kinds)]
    for family, items in groupby(judged, key=lambda item: item.cell.family):
        verdicts = [item.verdict for item in items]
        rows.append((TITLES[family], str(len(verdicts)), *(str(verdicts.count(kind)) for kind in kinds)))
    return _table(rows)


def _section(env: str, cells: Sequence[Judged], plots: str) -> str:
    first = cells[0].cell
    settings = f"{first.frames:,} frames, {first.num_envs} envs, a row every {first.log_frequency:,} frames."
    alike = {(item.cell.frames, item.cell.num_envs, item.cell.log_frequency) for item in cells}
    lines = [f"### {env}\n", settings if len(alike) == 1 else "Frames differ between algorithms: see the specs.", ""]
    lines.append(_table([HEADER, *(_row(item) for item in cells)]))
    lines.append(f"![{env}]({plots}/{plot_name(env)})\n")
    return "\n".join(lines)


def _row(item: Judged) -> tuple[str, ...]:
    cell, record = item.cell, item.record
    spec = f"[{cell.name}](../slm_lab/spec/benchmark/{cell.file})"
    verdict = item.verdict + (f" ({item.note})" if item.note else "")
    known = shown(cell.target), shown(cell.best), verdict
    if record is None:
        return (cell.algorithm, "-", "-", "-", *known, "-", spec, "-")
    sessions = [record.sessions[key] for key in sorted(record.sessions, key=int)]
    returns = np.array([np.mean(session.evaluation) for session in sessions])
    return (
        cell.algorithm,
        _with_interval(record),
        ", ".join(shown(score) for score in record.scores),
        shown(float(returns.mean())),
        *known,
        duration(max(session.wall_t for session in sessions)),
        spec,
        ", ".join(dict.fromkeys(session.commit[:7] + ("" if session.clean else "+") for session in sessions)),
    )


def _with_interval(record: Record) -> str:
    if not record.complete:
        return "-"
    found = interval(mean, {record.env: np.array(record.scores)})
    return f"**{shown(found.value)}** [{shown(found.low)}, {shown(found.high)}]"


def _table(rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]) + "\n"


def plot_name(env: str) -> str:
    return f"{env.replace('/', '-')}.png"


def env_plot(env: str, cells: Sequence[Judged]) -> bytes:
    """The learning curves of an env's recorded cells as one picture."""
    found = [(item.cell.algorithm, item.record) for item in cells if item.record]
    curves = list[Curve]()
    for (algorithm, record), color in zip(found, colors([name for name, _ in found]), strict=True):
        series = [record.sessions[key].curve for key in sorted(record.sessions, key=int)]
        frames, returns = ([np.array(curve[key], float) for curve in series] for key in ("frame", "total_reward"))
        curves.append(replace(mean_curve(frames, returns, algorithm), color=color, members=()))
    return draw(env, "mean return of the last 100 episodes", curves, legend="below")


def write_report(judged: Sequence[Judged], docs: Path) -> list[Path]:
    """Write BENCHMARKS.md and a plot for each env that has a record; which files."""
    written, folder = list[Path](), docs / "plots"
    make_folder(folder)
    for env, cells in groupby(judged, key=lambda item: item.cell.env):
        found = list(cells)
        if any(item.record for item in found):
            write_bytes(folder / plot_name(env), env_plot(env, found))
            written.append(folder / plot_name(env))
    write_text(docs / "BENCHMARKS.md", page(judged, folder.name))
    return [*written, docs / "BENCHMARKS.md"]
