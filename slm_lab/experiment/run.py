"""One way in for the command line and for Python: a spec and a mode become a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slm_lab.experiment.cluster import reach, require_ray
from slm_lab.experiment.control import RunOptions, RunResult, resume, start
from slm_lab.lib import log
from slm_lab.lib.errors import LabError, hint
from slm_lab.spec.load import Loaded, from_mapping, load, spec_names
from slm_lab.spec.schema import Spec

MODES = ("dev", "train", "search", "enjoy")


def parse_mode(text: str) -> tuple[str, str | None]:
    """`train@latest` -> ("train", "latest"); unknown words are errors."""
    mode, at, target = text.partition("@")
    if mode not in MODES:
        known = "dev, train, search, train@latest, train@DIR, search@latest, search@DIR, enjoy@SPEC"
        raise LabError(f"mode: unknown mode {text!r}.{hint(mode, MODES)} Known: {known}.")
    if at and not target:
        raise LabError(f"mode: {text!r} names nothing after `@`; expected e.g. {mode}@latest or {mode}@data/FOLDER.")
    if mode == "enjoy" and not target:
        raise LabError("mode: `enjoy` needs a trained run: enjoy@data/FOLDER/NAME_t0_spec.json.")
    return mode, target or None


def run(
    spec: Mapping[str, Any] | str | Path,
    name: str | None = None,
    mode: str = "train",
    sets: Sequence[str] = (),
    options: RunOptions | None = None,
) -> RunResult:
    """Run a spec in mode dev, train or search, or continue a run with e.g. train@latest or search@DIR."""
    options = options or RunOptions()
    word, target = parse_mode(mode)
    log.checked(options.log_level)  # before anything is written
    if word == "enjoy":
        raise LabError("mode: to watch a trained agent from Python use slm_lab.load(folder).act(obs).")
    loaded = _loaded(spec, name, sets)
    if options.ray_address is not None:
        _check_spread(loaded.spec, word, options.ray_address)

    def logging(file: Path | None, console: Any) -> None:
        log.configure(options.log_level, file, console)

    if word == "search":
        require_ray()
        from slm_lab.experiment.search import search  # imports Ray, which is installed only where it is wanted

        return search(loaded, target, options, logging)
    if target is None:
        return start(loaded, word, options, logging)
    return resume(loaded, word, target, options, logging)


def _check_spread(spec: Spec, mode: str, address: str) -> None:
    """Raise where a run cannot be spread over a cluster, before anything is written."""
    if mode != "search" and spec.workers > 1:
        raise LabError("--ray-address: workers of meta.distributed share memory, so they stay on one machine.")
    reach(address)


def _loaded(spec: Mapping[str, Any] | str | Path, name: str | None, sets: Sequence[str]) -> Loaded:
    if isinstance(spec, Mapping):
        return from_mapping(spec, name or str(spec.get("name", "spec")), sets)
    if name is None:
        names = spec_names(spec)
        if len(names) != 1:
            raise LabError(f"{spec}: holds {len(names)} specs; say which one. Known: {', '.join(names)}.")
        name = names[0]
    return load(spec, name, sets)
