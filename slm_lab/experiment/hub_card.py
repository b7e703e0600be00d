"""The card of a run on the hub: what was run, what all its sessions came to, how to load it."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from slm_lab.experiment.analysis import engineering
from slm_lab.experiment.bench_status import shown
from slm_lab.experiment.finished import Finished, described, read, trials
from slm_lab.experiment.statistics import interval, mean
from slm_lab.lib.errors import LabError

SCORES = ("search_score", "validated_score", "low", "high")  # columns of the table of validated settings
CURVE = "mean_returns_ma_vs_frames"


def card(folder: Path, repo: str) -> str:
    """The text of a run's README.md on the hub; an error where the folder holds no run."""
    found = trials(folder) if folder.is_dir() else []
    run = described(folder, found[0] if found else 0)
    name = folder.resolve().name
    parts = [f"# {name}\n", _facts(run), _validation(run) if run.search else _results(run), _picture(run)]
    return "\n".join([*(part for part in parts if part), _loading(name, repo, run.search)])


def _facts(run: Finished) -> str:
    """What was run."""
    sessions = _count(len(trials(run.folder)), "trial") if run.search else _count(run.planned, "session")
    rows = [
        ("", ""),
        ("Spec", run.name),
        ("Algorithm", run.algorithm),
        ("Env", run.env_key),
        ("Frames", f"{engineering(run.session_frames)} a session, {sessions}"),
        ("Mode", "search" if run.search else run.mode),
    ]
    meta = run.spec.get("meta", {})
    sha = meta.get("git_sha", "unknown")
    if sha != "unknown":
        dirty = meta.get("record", {}).get("git_dirty")
        rows.append(("Code", f"commit {sha}" + (", changed" if dirty else "")))
    return _table(rows)


def _results(run: Finished) -> str:
    """The score of all sessions, or why there is none."""
    try:
        run = read(run.folder, run.paths.trial)
    except LabError:
        return "**Incomplete**: nothing is logged yet, so there is no score.\n"
    if run.done < run.planned:
        return f"**Incomplete**: {run.done} of {run.planned} sessions reached their last frame, so there is no score.\n"
    score = interval(mean, {run.env_key: run.scores})
    among = f"the mean over all {run.planned} sessions with its 95 % bootstrap interval"
    bounds = f" [{shown(score.low)}, {shown(score.high)}], {among}" if run.planned > 1 else ", of its only session"
    kind = "evaluations" if run.kind == "eval" else "training returns"
    told = f"Score: **{shown(score.value)}**{bounds}. A session's score is the mean of its last 100 rows of {kind}.\n"
    rows = [("Session", "Score"), *((str(one.session), shown(one.score)) for one in run.sessions)]
    return f"{told}\n{_table(rows)}"


def _validation(run: Finished) -> str:
    """A search is no result; only settings that were trained again have a score that counts."""
    told = "**A search, not a result**: the best of many trials is good by luck too."
    rows = _read_table(run.paths.validation_table) if run.paths.validation_table.is_file() else []
    if len(rows) < 2:
        return f"{told} None of its settings was validated, so no score is shown.\n"
    return f"{told} These settings were trained again, on seeds that the search did not use:\n\n{_table(rows)}"


def _read_table(path: Path) -> list[list[str]]:
    """The rows of a table, its header first, with names and scores as one reads them."""
    with path.open(newline="") as file:
        header, *rows = list(csv.reader(file)) or [[]]
    names = [column.replace("_", " ") for column in header]
    return [names, *([_cell(*cell) for cell in zip(header, row, strict=True)] for row in rows)]


def _cell(column: str, text: str) -> str:
    return shown(float(text or "nan")) if column in SCORES else text


def _picture(run: Finished) -> str:
    """The learning curve, or what a search gave, where it was drawn."""
    graph = run.paths.experiment_graph if run.search else run.paths.trial_graph(CURVE)
    alt = "Trials" if run.search else "Mean return over frames"
    return f"![{alt}](graph/{quote(graph.name)})\n" if graph.is_file() else ""


def _loading(name: str, repo: str, search: bool) -> str:
    lines = ["## Load it\n", "```bash", f"export HF_REPO={repo}", f"slm-lab pull {name}"]
    if search:
        return "\n".join([*lines, "```\n"])
    lines += [f"slm-lab enjoy data/{name}", "```\n", "```python", "import slm_lab\n"]
    return "\n".join([*lines, f'agent = slm_lab.load("data/{name}")', "action = agent.act(obs)", "```\n"])


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _table(rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]) + "\n"
