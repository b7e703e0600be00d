"""Functions of tensors, compiled ahead of time: libraries on disk, which a later process only has to load."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from loguru import logger
from torch import Tensor, fx

from slm_lab.lib.errors import RunError

KEPT = 300  # libraries in a folder, about 2 MB each; those not used for longest go
Function = Callable[[Sequence[Tensor]], dict[str, Tensor]]


class Source(NamedTuple):
    """What a library is made of: a function that is run once to see what it does, and tensors to run it with."""

    function: Function
    example: Sequence[Tensor]
    notes: dict[str, Any] = {}  # kept with it, as JSON can hold them


class Library:
    """A compiled function: tensors in, tensors by name out. What it writes to is changed in place."""

    def __init__(self, path: Path) -> None:
        # what torch._inductor.aoti_load_package does, without the seconds it takes to import the compiler
        loader = torch._C._aoti.AOTIModelPackageLoader(str(path), "model", False, 1, -1)
        self.notes: dict[str, Any] = json.loads(loader.get_metadata()["slm_lab"])
        self._run, self._used, self._outputs = loader.run, self.notes["used"], self.notes["outputs"]

    def __call__(self, tensors: Sequence[Tensor]) -> dict[str, Tensor]:
        given = [tensors[index] for index in self._used]
        return dict(zip(self._outputs, self._run(given), strict=True))


class Captured:
    """The same on a GPU: compiled in this process, and replayed as a CUDA graph. What it writes to must not move."""

    def __init__(self, source: Source, written: Sequence[Tensor]) -> None:
        graph, self._outputs = trace(source)
        self.notes = source.notes
        for tensor in written:  # else PyTorch makes no graph of a function that writes to its inputs
            torch._dynamo.mark_static_address(tensor)
        self._run = torch.compile(graph, mode="reduce-overhead", dynamic=False, fullgraph=True)

    def __call__(self, tensors: Sequence[Tensor]) -> dict[str, Tensor]:
        # clones, for the next replay writes its results over these
        return {name: found.clone() for name, found in zip(self._outputs, self._run(*tensors), strict=True)}


def compiler_exists() -> bool:
    """Whether there is the C++ compiler that torch uses."""
    return shutil.which("clang++" if sys.platform == "darwin" else "g++") is not None


def library(folder: Path, key: str, make: Callable[[], Source]) -> Library:
    """The library of this key: loaded, or compiled where there is none; several processes compile it once."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{key}.pt2"
    with (folder / f"{key}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # let go with the file, also when its holder dies
        try:
            found = _load(path)
            if found is None:
                _compile(make(), path)
                found = Library(path)
                _prune(folder)
        finally:
            (folder / f"{key}.lock").unlink(missing_ok=True)
    return found


def _load(path: Path) -> Library | None:
    """None where there is none that can be read."""
    if not path.exists():
        return None
    try:
        found = Library(path)
    except Exception as error:  # whatever a damaged file makes torch raise
        logger.warning(f"{path}: cannot be loaded and is compiled again: {error}")
        return None
    os.utime(path)
    return found


def _compile(source: Source, path: Path) -> None:
    start, name = time.monotonic(), path.stem.rpartition("-")[0] or path.stem
    with TemporaryDirectory(dir=path.parent) as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = _package(source, Path(folder) / path.name)
        except Exception as error:  # torch has many kinds
            raise RunError(f"{name} cannot be compiled: {error}; `--compile false` runs without") from error
        os.replace(made, path)
    logger.info(f"compiled {name} in {time.monotonic() - start:.0f} s; from now on it is only loaded")


def _package(source: Source, path: Path) -> str:
    """Compile to a file; which."""
    graph, outputs = trace(source)
    cheapen(graph)
    used = [index for index, node in enumerate(_inputs(graph)) if node.users]
    graph, example = _without_unused(graph), [source.example[index] for index in used]
    notes = json.dumps({**source.notes, "used": used, "outputs": outputs})
    with torch.no_grad():
        exported = torch.export.export(graph, tuple(example))
        return torch._inductor.aoti_compile_and_package(
            exported,
            package_path=str(path),
            inductor_configs={"aot_inductor.metadata": {"slm_lab": notes}},
        )


UPDATE_STATS = torch.ops.aten.batch_norm_update_stats.default


def _batch_stats(x: Tensor, mean: Tensor | None, var: Tensor | None, momentum: float) -> tuple[Tensor, Tensor]:
    """What batch_norm_update_stats gives for [B, C, ...]: a compiled function could call that only through Python."""
    assert mean is None
    assert var is None
    dims = [0, *range(2, x.dim())]
    middle = x.mean(dims, keepdim=True)
    return middle.flatten(), (x - middle).square().mean(dims)


def trace(source: Source) -> tuple[fx.GraphModule, list[str]]:
    """What the function does, as operations of torch on its inputs, and the names of what it gives."""
    names = list[str]()

    def listed(*tensors: Tensor) -> list[Tensor]:
        found = source.function(tensors)
        names[:] = found
        return list(found.values())

    from torch.fx.experimental.proxy_tensor import make_fx  # takes a second, which loading a library need not

    # stand-ins without numbers: nothing is changed by looking, and a tensor that is no input is an error
    traced = make_fx(listed, decomposition_table={UPDATE_STATS: _batch_stats}, tracing_mode="fake")
    graph: fx.GraphModule = traced(*source.example)
    return graph, names


def cheapen(graph: fx.GraphModule) -> None:
    """tanh x as 2 sigmoid(2x) - 1: the same but for the last digit, in less than half the time on a CPU."""
    aten = torch.ops.aten
    for node in list(graph.graph.nodes):
        if node.target is aten.tanh.default:
            with graph.graph.inserting_before(node):
                twice = graph.graph.call_function(aten.mul.Tensor, (node.args[0], 2.0))
                half = graph.graph.call_function(aten.sigmoid.default, (twice,))
                whole = graph.graph.call_function(aten.mul.Tensor, (half, 2.0))
                node.replace_all_uses_with(graph.graph.call_function(aten.sub.Tensor, (whole, 1.0)))
            graph.graph.erase_node(node)
    graph.recompile()


def _inputs(graph: fx.GraphModule) -> list[fx.Node]:
    return [node for node in graph.graph.nodes if node.op == "placeholder"]


def _without_unused(graph: fx.GraphModule) -> fx.GraphModule:
    for node in _inputs(graph):
        if not node.users:
            graph.graph.erase_node(node)
    graph.recompile()
    return graph


def _prune(folder: Path) -> None:
    """Drop the libraries that were not used for longest."""
    newest = sorted(folder.glob("*.pt2"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in newest[KEPT:]:
        path.unlink(missing_ok=True)
