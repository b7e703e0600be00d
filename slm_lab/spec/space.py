"""The search space of a spec: which values a search draws, and the spec that a draw makes.

A drawn value is a plain number or an index, which every sampler can handle; `value` turns it into what the spec holds:
an item of a list, a multiple of a step, a normally distributed number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal

from slm_lab.lib.errors import SpecError, hint
from slm_lab.spec.load import dump, from_mapping
from slm_lab.spec.overrides import LISTED
from slm_lab.spec.parse import show
from slm_lab.spec.schema import Spec
from slm_lab.spec.tree import Tree

Check = Callable[[Spec], object]  # raises a SpecError where a spec cannot be run
TAIL = 1e-3  # of a normal distribution, left out at each end: no draw is then infinitely far away
NUMBERS = {
    "uniform": 2,
    "quniform": 3,
    "loguniform": 2,
    "qloguniform": 3,
    "randn": 2,
    "qrandn": 3,
    "randint": 2,
    "qrandint": 3,
    "lograndint": 2,
    "qlograndint": 3,
}
SPACES = ("choice", *NUMBERS, "grid_search")
DEAD = {
    "agent.algorithm.clip_eps": "agent.algorithm.clip_eps_spec.start_val",
    "agent.algorithm.entropy_coef": "agent.algorithm.entropy_coef_spec.start_val",
    "agent.net.clip_grad": "agent.net.clip_grad_val",
    "agent.net.lr_decay_frequency": "agent.net.lr_scheduler_spec.frame",
    "agent.net.lr_anneal_timestep": "agent.net.lr_scheduler_spec.frame",
    "agent.agent.training_batch_iter": "agent.algorithm.training_batch_iter",
}
"""Paths that public specs search and nothing reads, with the one that is meant: they warn instead of failing."""


@dataclass(frozen=True)
class Range:
    """What a sampler draws: a number between two, both included; an index where `kind` is choice."""

    kind: Literal["float", "int", "choice"]
    low: float
    high: float
    log: bool = False


@dataclass(frozen=True)
class Dimension:
    """One searched value: its path in the spec, the name of its space and that space's arguments."""

    path: str
    space: str
    args: tuple[Any, ...]

    @property
    def range(self) -> Range:
        """What is drawn for it."""
        if self.space == "choice":
            return Range("choice", 0, len(self.args) - 1)
        low, high, *rest = self.args
        step = rest[0] if rest else 1
        if self.space in ("randn", "qrandn"):
            return Range("float", TAIL, 1 - TAIL)
        if self.space in ("quniform", "qrandint"):
            return Range("int", *self._multiples(low, high, step))
        if self.space == "qlograndint":
            return Range("float", low, high, log=True)
        if self.space in ("randint", "lograndint"):
            return Range("int", low, high - 1, log=self.space == "lograndint")
        return Range("float", low, high, log="log" in self.space)

    def value(self, drawn: float) -> Any:
        """What the spec holds for a draw."""
        if self.space == "choice":
            return self.args[int(drawn)]
        low, high, *rest = self.args
        if self.space in ("randn", "qrandn"):
            drawn = NormalDist(low, high).inv_cdf(drawn)
            return _rounded(round(drawn / rest[0]) * rest[0]) if rest else drawn
        if self.space in ("quniform", "qrandint"):
            return self._number(drawn * rest[0])
        if self.space in ("qloguniform", "qlograndint"):
            first, last = self._multiples(low, high, rest[0])
            return self._number(min(max(round(drawn / rest[0]), first), last) * rest[0])
        return int(drawn) if "int" in self.space else float(drawn)

    def samples(self) -> Iterator[Any]:
        """Values that a check of the spec tries: the ends of the space, or all items; the mean where it has no end."""
        if self.space == "choice":
            yield from self.args
        elif self.space in ("randn", "qrandn"):
            yield self.value(0.5)
        else:
            yield from (self.value(self.range.low), self.value(self.range.high))

    def _number(self, value: float) -> float | int:
        return round(value) if "int" in self.space else _rounded(value)

    @staticmethod
    def _multiples(low: float, high: float, step: float) -> tuple[int, int]:
        """The first and the last multiple of a step between two numbers, as counts; rounding errors do not cost one."""
        return math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)


def _rounded(value: float) -> float:
    """A multiple of a step without the dust of its multiplication: 0.3, not 0.30000000000000004."""
    return float(f"{value:.12g}")


@dataclass(frozen=True)
class Space:
    """All that a search varies."""

    dimensions: tuple[Dimension, ...]

    def values(self, drawn: Mapping[str, float]) -> dict[str, Any]:
        """Path -> value of a draw."""
        return {dimension.path: dimension.value(drawn[dimension.path]) for dimension in self.dimensions}


def parse_space(spec: Spec, notes: list[str], check: Check) -> Space:
    """The space of a spec: each of its ends and items makes a spec that can be read and that `check` lets pass."""
    flat = dict(_flat(spec.search))
    if not flat:
        example = '{"agent.algorithm.gamma__uniform": [0.95, 0.999]}'
        raise SpecError(f"search: this spec has no search space; add one such as {example}.")
    found = dict[str, Dimension]()
    for key, args in flat.items():
        dimension = _dimension(key, args)
        if dimension.path in DEAD and not _read(spec, dimension, check):
            notes.append(f"search.{key}: nothing reads {dimension.path}; ignored. Meant: {DEAD[dimension.path]}?")
        elif dimension.path in found:
            raise SpecError(f"search.{key}: {dimension.path} is searched twice.")
        else:
            found[dimension.path] = dimension
    if not found:
        raise SpecError("search: nothing reads any of its keys.")
    for dimension in found.values():
        for value in dimension.samples():
            with_values(spec, {dimension.path: value}, check)
    return Space(tuple(found.values()))


def with_values(spec: Spec, values: Mapping[str, Any], check: Check) -> Spec:
    """The spec with values at dotted paths, without its search space."""
    tree = dump(spec) | {"search": {}}
    for path, value in values.items():
        _put(tree, path, value)
    try:
        drawn_spec = from_mapping(tree, spec.name).spec
        check(drawn_spec)
    except SpecError as error:
        drawn = ", ".join(f"{path} = {value!r}" for path, value in values.items())
        raise SpecError(f"search, with {drawn}:\n{error}") from None
    return drawn_spec


def _put(tree: Tree, path: str, value: Any) -> None:
    """Set a value; mappings on the way that are missing or null are made."""
    *parents, last = path.split(".")
    node = tree
    for part in parents:
        if node.get(part) is None:
            node[part] = {}
        if not isinstance(node[part], dict):
            raise SpecError(f"search.{path}: {part!r} holds {show(node[part])}, so nothing can be set below it.")
        node = node[part]
    node[last] = value


def _read(spec: Spec, dimension: Dimension, check: Check) -> bool:
    """Whether something reads a path of a spec."""
    try:
        with_values(spec, {dimension.path: next(dimension.samples())}, check)
    except SpecError:
        return False
    return True


def _flat(node: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Keys of nested mappings joined by dots."""
    for key, item in node.items():
        if isinstance(item, Mapping) and "__" not in key:
            yield from _flat(item, f"{above}{key}.")
        else:
            yield f"{above}{key}", item


def _dimension(key: str, args: Any) -> Dimension:
    path, mark, space = key.rpartition("__")
    path = LISTED.sub(r"\1\2.", path)
    if not mark or space not in SPACES:
        near = hint(space, SPACES) if mark else ""
        raise SpecError(
            f"search.{key}: a key must end in `__` and a space, like {path or key}__uniform.{near} "
            f"Known: {', '.join(SPACES)}."
        )
    if not isinstance(args, list):
        raise SpecError(f"search.{key}: got {show(args)}; allowed: a list of arguments.")
    if space in ("choice", "grid_search"):
        if not args:
            raise SpecError(f"search.{key}: an empty list; allowed: one item or more.")
        return Dimension(path, "choice", tuple(args))
    return Dimension(path, space, _numbers(key, space, args))


def _numbers(key: str, space: str, args: list[Any]) -> tuple[float, ...]:
    """Arguments of a space of numbers, in order and in bounds."""
    count = NUMBERS[space]
    numbers = [_number(arg) for arg in args]
    shape = "[mean, deviation" if "randn" in space else "[low, high"
    shape += ", step]" if count == 3 else "]"
    if len(numbers) != count or None in numbers:
        raise SpecError(f"search.{key}: got {show(args)}; allowed: {shape}, all numbers.")
    low, high, *step = (number for number in numbers if number is not None)
    if "randn" in space:
        if high <= 0 or (step and step[0] <= 0):
            raise SpecError(f"search.{key}: got {show(args)}; allowed: {shape} with deviation and step above 0.")
        return (low, high, *step)
    if not low < high or ("log" in space and low <= 0) or (step and not 0 < step[0] <= high - low):
        above = "0 < low" if "log" in space else "low"
        width = ", 0 < step <= high - low" if step else ""
        raise SpecError(f"search.{key}: got {show(args)}; allowed: {shape} with {above} < high{width}.")
    if "int" in space and any(number != int(number) for number in (low, high, *step)):
        raise SpecError(f"search.{key}: got {show(args)}; allowed: {shape}, all whole numbers.")
    return tuple(int(number) if "int" in space else number for number in (low, high, *step))


def _number(value: Any) -> float | None:
    """A finite number, also as text (`1e-4` is text in some YAML); None for anything else."""
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) else None
