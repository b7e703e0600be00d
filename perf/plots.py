"""Graphs of how cost grows, in the style of the lab's other graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perf.results import Series
from slm_lab.experiment.analysis import engineering
from slm_lab.experiment.plot import COLORS, INCHES, dress, new_figure, png


@dataclass(frozen=True)
class Graph:
    """One graph of a series: which values of its points, and how the axes are named; `lines` are labels by value."""

    file: str
    series: str
    title: str
    x: str
    xlabel: str
    ylabel: str
    lines: dict[str, str]
    log_x: bool = True


GRAPHS = (
    Graph("envs", "envs", "PPO CartPole-v1: envs", "num_envs", "envs", "frames a second", {"speed": "ours"}),
    Graph(
        "width", "width", "PPO CartPole-v1: net width", "width", "units a layer", "frames a second", {"speed": "ours"}
    ),
    Graph(
        "sessions",
        "sessions",
        "train: sessions",
        "sessions",
        "sessions",
        "seconds",
        {"seconds": "wall time"},
        log_x=False,
    ),
    Graph(
        "session_memory",
        "sessions",
        "train: memory",
        "sessions",
        "sessions",
        "megabytes",
        {"memory_mb": "all processes together"},
        log_x=False,
    ),
    Graph(
        "replay_speed",
        "replay",
        "DQN CartPole-v1: full replay",
        "size",
        "transitions held",
        "frames a second",
        {"uniform_speed": "Replay", "prioritized_speed": "PrioritizedReplay"},
    ),
    Graph(
        "replay_memory",
        "replay",
        "DQN CartPole-v1: memory of a session",
        "size",
        "transitions held",
        "megabytes",
        {"uniform_memory_mb": "Replay", "prioritized_memory_mb": "PrioritizedReplay"},
    ),
)


def draw(graph: Graph, series: Series) -> bytes:
    """The graph as PNG bytes."""
    figure = new_figure(INCHES, INCHES)
    axes = figure.add_subplot()
    dress(axes, graph.title, graph.ylabel, graph.xlabel)
    xs = column(series, graph.x)
    for (value, label), color in zip(graph.lines.items(), COLORS, strict=False):
        axes.plot(xs, column(series, value), color=color, linewidth=1.2, marker="o", markersize=3, label=label)
    if graph.log_x:
        axes.set_xscale("log")
    axes.set_xticks(xs, [engineering(x) for x in xs])
    axes.set_xticks([], minor=True)
    axes.set_ylim(bottom=0)
    if len(graph.lines) > 1:
        axes.legend(loc="best", fontsize=8, framealpha=0.8, edgecolor="0.9")
    return png(figure)


def column(series: Series, name: str) -> Sequence[float]:
    return [point[name] for point in series.points]
