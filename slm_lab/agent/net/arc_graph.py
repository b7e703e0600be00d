"""The graph of an arc: its spec, and its places in the order they are computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

from pydantic import Field

from slm_lab.lib.errors import SpecError, hint
from slm_lab.spec.parse import Model

REUSE = "~"


class GraphSpec(Model):
    """How modules are joined. `name~tag` is the module `name` once more, with the same parameters."""

    input: str | list[str] = Field(description="name of the input, or names")
    modules: dict[str, str | list[str | list[str]] | dict[str, str | list[str]]] = Field(
        description="what goes into each module: inputs or modules in order, or by the names of its arguments"
    )
    output: str | list[str] | dict[str, str] = Field(description="what comes out: a name, a list or names by key")

    @property
    def inputs(self) -> list[str]:
        return [self.input] if isinstance(self.input, str) else self.input

    @property
    def outputs(self) -> list[str]:
        return list(_flat([self.output] if isinstance(self.output, str) else self.output))


class ArcSpec(Model):
    """A net in TorchArc's format."""

    modules: dict[str, dict[str, Any]] = Field(
        description="modules by name: {Layer: arguments}, {Sequential: [layers]} or {compact: {layer, postlayer}}"
    )
    graph: GraphSpec = Field(description="how they are joined")


class Node(NamedTuple):
    """A place in the graph: which module stands there and what goes into it."""

    name: str
    module: str
    args: list[Any]  # names, or lists of names
    kwargs: dict[str, Any]

    def given(self, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Its arguments, of all that is there so far."""
        return [_get(values, arg) for arg in self.args], {key: _get(values, arg) for key, arg in self.kwargs.items()}


def _get(values: Mapping[str, Any], name: str | list[str]) -> Any:
    return values[name] if isinstance(name, str) else [values[part] for part in name]


def _flat(names: Iterable[Any] | Mapping[str, Any]) -> Iterable[str]:
    for name in names.values() if isinstance(names, Mapping) else names:
        yield from [name] if isinstance(name, str) else name


def nodes_of(spec: ArcSpec, path: str) -> list[Node]:
    """The graph's places, each after what goes into it; what cannot be a graph is a SpecError."""
    nodes = dict[str, Node]()
    for name, given in spec.graph.modules.items():
        module, where = name.partition(REUSE)[0], f"{path}.graph.modules.{name}"
        if module not in spec.modules:
            known = f"{hint(module, spec.modules)} Known: {', '.join(spec.modules)}."
            raise SpecError(f"{where}: no module {module!r}.{known}")
        if name in spec.graph.inputs:
            raise SpecError(f"{where}: an input has this name too.")
        kwargs = given if isinstance(given, dict) else {}
        args = [given] if isinstance(given, str) else given if isinstance(given, list) else []
        nodes[name] = Node(name, module, list(args), dict(kwargs))
    sources = {name: list(_flat([*node.args, *node.kwargs.values()])) for name, node in nodes.items()}
    _check_names(spec.graph, sources, path)
    try:
        order = [name for name in TopologicalSorter(sources).static_order() if name in nodes]
    except CycleError as error:
        round_trip = " -> ".join(error.args[1])
        raise SpecError(f"{path}.graph.modules: they go round in a circle: {round_trip}.") from None
    _check_use(spec, sources, path)
    return [nodes[name] for name in order]


def _check_names(graph: GraphSpec, sources: Mapping[str, list[str]], path: str) -> None:
    """Every name stands for an input or for a place in the graph."""
    known = [*graph.inputs, *sources]
    places = {**{f"modules.{name}": names for name, names in sources.items()}, "output": graph.outputs}
    for place, names in places.items():
        if not names:
            raise SpecError(f"{path}.graph.{place}: it is empty; allowed: {', '.join(known)}.")
        for name in names:
            if name not in known:
                near = f"{hint(name, known)} Known: {', '.join(known)}."
                raise SpecError(f"{path}.graph.{place}: neither an input nor a module here is called {name!r}.{near}")


def _check_use(spec: ArcSpec, sources: Mapping[str, list[str]], path: str) -> None:
    """Nothing is there in vain: what the output does not need would be learnt by nothing."""
    needed, pending = set[str](), spec.graph.outputs
    while pending:
        name = pending.pop()
        if name not in needed:
            needed.add(name)
            pending += sources.get(name, [])
    for name in sources:
        if name not in needed:
            raise SpecError(f"{path}.graph.modules.{name}: the output does not need it.")
    for name in spec.graph.inputs:
        if name not in needed:
            raise SpecError(f"{path}.graph.input: {name!r} goes into nothing.")
    used = {name.partition(REUSE)[0] for name in sources}
    for name in spec.modules:
        if name not in used:
            raise SpecError(f"{path}.modules.{name}: it has no place in {path}.graph.modules.")
