"""Several runs in one graph: their moving averages, under the same names and colours every time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from colorsys import hls_to_rgb
from dataclasses import dataclass, replace
from pathlib import Path

from slm_lab.experiment.analysis import WINDOW, engineering, moving_average
from slm_lab.experiment.finished import Finished
from slm_lab.experiment.plot import COLORS, Curve, average_label, draw, mean_curve
from slm_lab.lib.errors import LabError
from slm_lab.lib.io import make_folder, write_bytes

HSL = {
    "REINFORCE": (45, 80, 55),
    "SARSA": (30, 60, 45),
    "DQN": (175, 55, 45),
    "DDQN+PER": (145, 50, 45),
    "A2C": (220, 65, 55),
    "PPO": (280, 55, 55),
    "SAC": (350, 65, 55),
    "CrossQ": (25, 85, 55),
}
"""Hue, saturation and lightness of each algorithm, in the order of legends."""
SPARE = tuple(reversed(COLORS))  # for algorithms without a colour, and for the second run of one that has it


@dataclass(frozen=True)
class Shown:
    """A run as graphs show it."""

    run: Finished
    label: str


def arranged(runs: Sequence[Finished], labels: Sequence[str] = ()) -> list[Shown]:
    """Runs in the order of legends under labels of their own; as they come where labels are given."""
    check_labels(runs, labels)
    if labels:
        return [Shown(run, label) for run, label in zip(runs, labels, strict=True)]
    order = {algorithm: place for place, algorithm in enumerate(HSL)}
    ordered = sorted(runs, key=lambda run: order.get(run.algorithm, len(order)))
    return [Shown(run, label) for run, label in zip(ordered, _names(ordered), strict=True)]


def check_labels(runs: Sequence[Finished], labels: Sequence[str]) -> None:
    """Raise where labels are given and are not one for each run."""
    if labels and len(labels) != len(runs):
        raise LabError(f"labels: got {len(labels)} for {len(runs)} runs: {', '.join(labels)}; give one for each.")


def _names(runs: Sequence[Finished]) -> list[str]:
    """The algorithm; with the env where envs differ, then the spec, then the folder where two runs share a name."""
    names = [run.algorithm for run in runs]
    if len({run.env_key for run in runs}) > 1:
        names = [f"{name}, {run.env_key}" for name, run in zip(names, runs, strict=True)]
    further: tuple[Callable[[Finished], str], ...] = (lambda run: run.name, lambda run: run.folder.name)
    for more in further:
        counts = Counter(names)
        names = [f"{name}, {more(run)}" if counts[name] > 1 else name for name, run in zip(names, runs, strict=True)]
    return names


def colors(algorithms: Sequence[str]) -> list[str]:
    """A colour for each curve: the algorithm's own for its first, spare ones for all others."""
    chosen, spare = list[str](), 0
    for place, algorithm in enumerate(algorithms):
        if algorithm in HSL and algorithm not in algorithms[:place]:
            chosen.append(hex_color(*HSL[algorithm]))
        else:
            chosen.append(SPARE[spare % len(SPARE)])
            spare += 1
    return chosen


def hex_color(hue: int, saturation: int, lightness: int) -> str:
    """Degrees and two percentages as #rrggbb."""
    rgb = hls_to_rgb(hue / 360, lightness / 100, saturation / 100)
    return "#" + "".join(f"{round(255 * part):02x}" for part in rgb)


def multi_graph(
    runs: Sequence[Finished],
    output: Path,
    title: str = "",
    labels: Sequence[str] = (),
    mix_frames: bool = False,
    legend: bool = True,
) -> Path:
    """Draw the moving averages of runs over frames, each the mean over sessions with its band."""
    shown = arranged(runs, labels)
    if not mix_frames:
        refuse_mixed_frames(runs)
    title = title or runs[0].env
    curves = [
        replace(_curve(one), color=color)
        for one, color in zip(shown, colors([one.run.algorithm for one in shown]), strict=True)
    ]
    image = draw(title, _ylabel(runs), curves, legend="below" if legend else "none")
    return write_graph(output, title, "multi_trial_graph_mean_returns_ma_vs_frames", image)


def _curve(shown: Shown) -> Curve:
    run = shown.run
    frames = [session.frames * run.workers for session in run.sessions]  # of all workers together
    averages = [moving_average(session.returns) for session in run.sessions]
    part = f" ({run.done}/{run.planned} sessions)" if run.done < run.planned else ""
    return replace(mean_curve(frames, averages, shown.label + part), members=())


def _ylabel(runs: Sequence[Finished]) -> str:
    """The window in frames too, where it is the same for all."""
    if len({run.spacing * run.workers for run in runs}) > 1:
        return f"mean return, average of the last {WINDOW} rows"
    return average_label(runs[0].sessions[0].frames * runs[0].workers)


def write_graph(output: Path, title: str, what: str, image: bytes) -> Path:
    """Write a graph under its title, without path prefix and parentheses and with _ for spaces."""
    stem = title.rsplit("/", 1)[-1].replace(" ", "_").replace("(", "").replace(")", "")
    if not stem:
        raise LabError(f"title {title!r}: nothing of it can name a file.")
    make_folder(output)
    path = output / f"{stem}_{what}.png"
    write_bytes(path, image)
    return path


def refuse_mixed_frames(runs: Sequence[Finished]) -> None:
    """Raise where runs were given different numbers of frames: more frames make a better score of the same agent."""
    if len({run.max_frame for run in runs}) > 1:
        budgets = ", ".join(f"{run.folder.name} {engineering(run.max_frame)}" for run in runs)
        raise LabError(f"runs with different max_frame: {budgets}. Add --mix-frames to draw them all the same.")


def warnings(runs: Sequence[Finished]) -> list[str]:
    """What a reader of graphs and tables of these runs must know."""
    notes = [note for run in runs for note in run.notes]
    facts: dict[str, Callable[[Finished], str]] = {
        "envs, whose returns are on different scales": lambda run: run.env_key,
        "spacings of rows, so that moving averages look back over different spans": lambda run: engineering(
            run.spacing
        ),
        "kinds of returns, of evaluation episodes and of training": lambda run: run.kind,
    }
    for what, fact in facts.items():
        values = [fact(run) for run in runs]
        if len(set(values)) > 1:
            notes.append(f"different {what}: {', '.join(dict.fromkeys(values))}.")
    notes += [
        f"{run.folder.name}: its sessions are workers of one agent; a band over them says nothing of other seeds."
        for run in runs
        if run.workers > 1
    ]
    return notes
