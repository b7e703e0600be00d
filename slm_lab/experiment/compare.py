"""Two runs side by side: whether they were given the same, which scores more and how sure that is, and what differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from slm_lab.experiment.analysis import format_number
from slm_lab.experiment.finished import Finished
from slm_lab.experiment.statistics import Interval, improvement, mean_difference
from slm_lab.lib.columns import columns
from slm_lab.lib.errors import LabError
from slm_lab.spec.load import difference, from_mapping
from slm_lab.spec.overrides import RECORDED
from slm_lab.spec.schema import MetaSpec
from slm_lab.spec.tree import text_of

FEW = 10  # sessions below which a bootstrap interval is clearly too narrow
SETTINGS: dict[str, Callable[[Finished], Any]] = {
    "env": lambda run: run.env_key,
    "max_frame": lambda run: run.max_frame,
    "num_envs": lambda run: run.num_envs,
    "log_frequency": lambda run: run.log_frequency,
    "sessions": lambda run: len(run.sessions),
    "score from": lambda run: "evaluation" if run.kind == "eval" else "training",
}


def compare(a: Finished, b: Finished) -> str:
    """A report in plain text; differences are B less A."""
    same = a.env_key == b.env_key
    parts = [
        _settings(a, b),
        _scores(a, b),
        _difference(a, b)
        if same
        else "different envs: their scores are on different scales, so no difference is given",
        _spec_keys(a.spec, b.spec),
    ]
    return "\n\n".join(parts)


def _settings(a: Finished, b: Finished) -> str:
    values = [(name, str(fact(a)), str(fact(b))) for name, fact in SETTINGS.items()]
    rows = [("", "A", "B", ""), ("run", a.folder.name, b.folder.name, ""), ("algorithm", a.algorithm, b.algorithm, "")]
    rows += [(name, left, right, "" if left == right else "differs") for name, left, right in values]
    differing = [name for name, left, right in values if left != right]
    verdict = f"settings differ: {', '.join(differing)}" if differing else "same settings"
    return "\n".join([*columns(rows), verdict])


def _scores(a: Finished, b: Finished) -> str:
    """total_reward_ma of both, and of each of their sessions."""
    rows = [("total_reward_ma", "mean", "sessions")]
    for name, run in (("A", a), ("B", b)):
        shown = [format_number("total_reward_ma", score) for score in run.scores]
        rows.append((name, format_number("total_reward_ma", float(run.scores.mean())), " ".join(shown)))
    return "\n".join(columns(rows))


def _difference(a: Finished, b: Finished) -> str:
    left, right = {a.env_key: a.scores}, {b.env_key: b.scores}
    rows = [
        ("B - A", *_shown(mean_difference(right, left), "total_reward_ma")),
        ("probability that a session of B scores more", *_shown(improvement(right, left), "probability")),
    ]
    lines = columns(rows)
    fewest = min(len(a.scores), len(b.scores))
    if fewest == 1:
        lines.append("one session says nothing of how scores vary: the intervals are too narrow by an unknown amount")
    elif fewest < FEW:
        lines.append(f"intervals are percentile bootstraps, which are too narrow for {fewest} sessions")
    if a.workers > 1 or b.workers > 1:
        lines.append("workers of one agent are not independent: intervals over them say nothing of other seeds")
    return "\n".join(lines)


def _shown(interval: Interval, key: str) -> tuple[str, str]:
    value, low, high = (format_number(key, number) for number in interval)
    return value, f"95 % interval {low} to {high}"


def _spec_keys(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    lines = differences(a, b)
    if not lines:
        return "the specs are the same"
    return "\n".join(["spec keys that differ, A -> B:", *(f"  {line}" for line in lines)])


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """A line `path: a -> b` for each value that differs, but for names, the search space and what runs record."""
    try:  # with every default, where both are specs of this lab: a key that is unset is its default
        return difference(from_mapping(a, "spec").spec, from_mapping(b, "spec").spec)
    except LabError:
        return list(_plain_differences(dict(_flat(_compared(a))), dict(_flat(_compared(b)))))


def _plain_differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[str]:
    for path in {**a, **b}:
        left, right = (text_of(side[path]) if path in side else "unset" for side in (a, b))
        if left != right:
            yield f"{path}: {left} -> {right}"


def _compared(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A spec without what differs between any two runs; SLM-Lab 4's lists of one are what they hold."""
    sections = {key: value for key, value in spec.items() if key not in ("name", "search")}
    sections = {key: value[0] if _listed(key, value) else value for key, value in sections.items()}
    recorded = (*RECORDED, *MetaSpec.inert)
    if isinstance(sections.get("meta"), Mapping):
        sections["meta"] = {key: value for key, value in sections["meta"].items() if key not in recorded}
    return sections


def _listed(key: str, value: Any) -> bool:
    return key in ("agent", "env") and isinstance(value, list) and len(value) == 1


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that is not a mapping, with its dotted path; an empty mapping is a value."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _flat(item, f"{path}.{key}".lstrip("."))
    else:
        yield path, value
