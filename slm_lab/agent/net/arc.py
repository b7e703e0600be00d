"""Nets written down in TorchArc's format: modules by name, each a layer or a row of them, and a graph of these."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from slm_lab.agent.net.arc_graph import ArcSpec, GraphSpec, Node, nodes_of
from slm_lab.agent.net.arc_layers import LAYERS, OWN, Lazy
from slm_lab.agent.net.base import Chain
from slm_lab.lib.errors import SpecError, hint
from slm_lab.spec.parse import Model, parse, show
from slm_lab.spec.settings import typed
from slm_lab.types import Shape

ROWS = 2  # of the batch that finds the shapes: one would not tell rows from features


class CompactLayer(Model):
    """One kind of layer, several times."""

    type: str = Field(description="name of the layer")
    keys: list[str] = Field(description="names of the arguments that differ")
    args: list[Any] = Field(description="their values for each layer; one value, or a list of them")


class CompactSpec(Model):
    """A row of layers of one kind, with the same layers around each."""

    prelayer: list[Any] = Field([], description="layers before each")
    layer: CompactLayer = Field(description="the layers themselves")
    postlayer: list[Any] = Field([], description="layers after each")


class Block(Chain):
    """A row of layers, and where it was written."""

    def __init__(self, layers: Iterable[nn.Module], path: str) -> None:
        super().__init__(*layers)
        self.path = path


class Arc(nn.Module):
    """forward: tensors [B, ...] by the graph's inputs -> one tensor, a tuple or a dict, as its output says."""

    def __init__(self, blocks: Mapping[str, nn.Module], nodes: Sequence[Node], graph: GraphSpec, path: str) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks.values())  # they may have names that torch does not take for modules
        self.places = {name: place for place, name in enumerate(blocks)}
        self.nodes, self.output, self.path = nodes, graph.output, path

    def forward(self, **values: Any) -> Any:
        blocks = list(self.blocks)
        for node in self.nodes:
            args, kwargs = node.given(values)
            values[node.name] = blocks[self.places[node.module]].forward(*args, **kwargs)
        return self.result(values)

    def result(self, values: Mapping[str, Any]) -> Any:
        """What the graph gives, of all that was computed."""
        if isinstance(self.output, str):
            return values[self.output]
        if isinstance(self.output, list):
            return tuple(values[name] for name in self.output)
        return {key: values[name] for key, name in self.output.items()}


def build(arc: ArcSpec | Mapping[str, Any], path: str = "agent.net.arc") -> Arc:
    """The module an arc describes; `path` is where a spec holds it. Lazy layers wait for `settle`."""
    spec = arc if isinstance(arc, ArcSpec) else parse(ArcSpec, arc, path, [])
    nodes = nodes_of(spec, path)
    blocks = {name: _module(entry, f"{path}.modules.{name}") for name, entry in spec.modules.items()}
    return Arc(blocks, nodes, spec.graph, path)


def _module(entry: Any, path: str) -> nn.Module:
    """A layer, or a row of them."""
    if not isinstance(entry, Mapping) or len(entry) != 1:
        raise SpecError(f"{path}: got {show(entry)}; allowed: one layer and its arguments, e.g. {{ReLU: null}}.")
    [(name, value)] = entry.items()
    if name == "compact":
        return _compact(parse(CompactSpec, value, f"{path}.compact", []), f"{path}.compact")
    if name != "Sequential":
        return _layer(name, value, path)
    if not isinstance(value, list) or not value:
        raise SpecError(f"{path}.Sequential: got {show(value)}; allowed: a list of layers.")
    layers = [_module(layer, f"{path}.Sequential[{i}]") for i, layer in enumerate(value)]
    return Block(layers, f"{path}.Sequential")


def _compact(spec: CompactSpec, path: str) -> Block:
    layers, keys = list[nn.Module](), spec.layer.keys
    for i, given in enumerate(spec.layer.args):
        values = given if isinstance(given, list) else [given]
        if len(values) != len(keys):
            wanted = f"{len(keys)} values, for {', '.join(keys)}"
            raise SpecError(f"{path}.layer.args[{i}]: got {show(given)}; allowed: {wanted}.")
        layers += [_module(layer, f"{path}.prelayer[{j}]") for j, layer in enumerate(spec.prelayer)]
        layers.append(_layer(spec.layer.type, dict(zip(keys, values, strict=True)), f"{path}.layer"))
        layers += [_module(layer, f"{path}.postlayer[{j}]") for j, layer in enumerate(spec.postlayer)]
    return Block(layers, path)


def _layer(name: Any, arguments: Any, path: str) -> nn.Module:
    if name not in LAYERS:
        known = f"Known: the layers of torch.nn, Sequential, compact, {', '.join(OWN)}."
        near = hint(str(name), [*LAYERS, "Sequential", "compact"])
        raise SpecError(f"{path}: unknown layer {name!r}.{near} {known}")
    if arguments is not None and not isinstance(arguments, Mapping):
        raise SpecError(f"{path}.{name}: got {show(arguments)}; allowed: a mapping of arguments, or null.")
    make = LAYERS[name]
    try:
        return make(**_numbers(arguments or {}))
    except SpecError as error:
        raise SpecError(f"{path}.{name}.{error}") from None
    except Exception as error:  # whatever a layer has to say
        raise SpecError(f"{path}.{name}: {_reason(error)}. It takes: {', '.join(_arguments(make))}.") from None


def _numbers(value: Any) -> Any:
    """Arguments with numbers for texts that are numbers, and whole numbers where they can be."""
    if isinstance(value, Mapping):
        return {key: _numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_numbers(item) for item in value]
    number = typed(value) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int | float):
        return value
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _arguments(make: Callable[..., nn.Module]) -> list[str]:
    found = inspect.signature(make).parameters.values()
    return [str(part.replace(annotation=part.empty)) for part in found if part.name not in ("device", "dtype")]


def _reason(error: Exception) -> str:
    """The first line of what torch says, without its full stop."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


@torch.no_grad()
def settle(arc: Arc, shapes: Mapping[str, Shape]) -> Any:
    """Give lazy layers their shapes by one pass of `ROWS` rows; what comes out of it. `shapes`: of one row, by input.

    What a layer cannot take is a SpecError. Running statistics stay as they are.
    """
    arc.eval()
    values: dict[str, Any] = {name: torch.ones(ROWS, *shape) for name, shape in shapes.items()}
    for node in arc.nodes:
        args, kwargs = node.given(values)
        place, where = arc.places[node.module], f"{arc.path}.modules.{node.module}"
        arc.blocks[place], values[node.name] = _settled(arc.blocks[place], args, kwargs, where)
    arc.train()
    return arc.result(values)


def _settled(layer: nn.Module, args: list[Any], kwargs: Mapping[str, Any], path: str) -> tuple[nn.Module, Any]:
    """A module with its shapes, and what it gives; layer by layer, for errors that say which."""
    if isinstance(layer, Block):
        if kwargs or len(args) != 1:
            given = len(args) + len(kwargs)
            raise SpecError(
                f"{path}: a row of layers takes a list of one input, not {given}; a merge makes one of several."
            )
        [x] = args
        for i, part in enumerate(layer):
            layer[i], x = _settled(part, [x], {}, f"{layer.path}[{i}]")
        return layer, x
    try:
        made = layer.made(args[0]).eval() if isinstance(layer, Lazy) else layer
        return made, made(*args, **kwargs)  # by its hooks: those of torch's lazy layers find their shapes
    except Exception as error:  # whatever a layer has to say
        named = f"{type(layer).__name__}({layer.extra_repr()})"
        came = ", ".join(_shape([*args, *kwargs.values()]))
        raise SpecError(f"{path}: {named} does not take {came} ({ROWS} rows): {_reason(error)}.") from None


def _shape(values: Iterable[Any]) -> Iterable[str]:
    for value in values:
        if isinstance(value, Tensor):
            yield str(list(value.shape))
        elif isinstance(value, list | tuple):
            yield f"({', '.join(_shape(value))})"
        else:
            yield type(value).__name__
