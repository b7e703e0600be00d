"""The benchmark suite as data: which algorithm is to reach what on which env, and by which spec."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import Field

from slm_lab.lib.errors import LabError, SpecError, hint, listing
from slm_lab.spec.load import Loaded, load
from slm_lab.spec.overrides import RECORDED
from slm_lab.spec.parse import Float, Int, Model, parse
from slm_lab.spec.schema import Spec
from slm_lab.spec.text import parse_yaml

FOLDER = Path(__file__).parent / "benchmark"
SUITE = FOLDER / "suite.yaml"
CONTINUOUS_LANDER = "LunarLanderContinuous-v3"


class Cell(Model):
    """One row of the suite: an algorithm on an env."""

    family: Literal["classic", "box2d", "mujoco", "atari", "playground"] = Field(description="group of envs")
    env: str = Field(description="env id, as tables show it")
    algorithm: str = Field(description="name of the algorithm in tables")
    file: str = Field(description="spec file, below slm_lab/spec/benchmark")
    name: str = Field(description="spec in it")
    sets: list[str] = Field(default_factory=list, description="-s options that fill its placeholders")
    frames: Int = Field(gt=0, description="budget of a session")
    num_envs: Int = Field(gt=0, description="envs of a session")
    log_frequency: Int = Field(gt=0, description="frames between rows")
    sessions: Int = Field(4, gt=0, description="sessions whose mean is the score")
    target: Float | None = Field(None, description="score to reach")
    best: Float | None = Field(None, description="best published score of SLM-Lab")
    source: Literal["docs", "upstream"] | None = Field(None, description="where `best` was published")

    @property
    def id(self) -> str:
        return f"{self.family}/{self.env}/{self.algorithm}"

    @property
    def slug(self) -> str:
        """A file name."""
        env, algorithm = self.env.replace("/", "-"), self.algorithm.lower().replace("+", "-")
        return f"{env}_{algorithm}"

    def load(self) -> Loaded:
        """The cell's spec; SpecError where it is not made for what the row promises."""
        loaded = load(FOLDER / self.file, self.name, self.sets)
        broken = self._promises(loaded.spec)
        wrong = [f"{key} is {was}, the suite says {wanted}" for key, (was, wanted) in broken.items()]
        if wrong:
            raise SpecError(f"{self.file} {self.name}: {'; '.join(wrong)}.")
        return loaded

    def _promises(self, spec: Spec) -> dict[str, tuple[object, object]]:
        """What of a spec differs from the row: (its value, the row's)."""
        lander = spec.env.name == "LunarLander-v3" and spec.env.kwargs.get("continuous")
        pairs: dict[str, tuple[object, object]] = {
            "env.name": (CONTINUOUS_LANDER if lander else spec.env.name, self.env),
            "env.max_frame": (spec.env.max_frame, self.frames),
            "env.num_envs": (spec.env.num_envs, self.num_envs),
            "meta.log_frequency": (spec.meta.log_frequency, self.log_frequency),
            "meta.max_session": (spec.meta.max_session, self.sessions),
        }
        return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def read_suite(path: Path = SUITE) -> list[Cell]:
    """The rows of a suite file; no two may be the same cell."""
    rows = parse_yaml(path.read_text(), str(path))
    if not isinstance(rows, list):
        raise LabError(f"{path}: expected a list of rows, got a {type(rows).__name__}.")
    cells = [parse(Cell, row, f"{path.name} row {number}", []) for number, row in enumerate(rows, 1)]
    ids = [cell.id for cell in cells]
    twice = sorted({name for name in ids if ids.count(name) > 1})
    if twice:
        raise SpecError(f"{path.name}: more than one row for {', '.join(twice)}.")
    return cells


def choose(cells: Iterable[Cell], family: str | None, algorithm: str | None, env: str | None) -> list[Cell]:
    """The cells that fit all that is given, in any case of letters; LabError where one fits nothing."""
    chosen = list(cells)
    for key, wanted in (("family", family), ("algorithm", algorithm), ("env", env)):
        if wanted is None:
            continue
        known = sorted({str(cell.model_dump()[key]) for cell in chosen})
        chosen = [cell for cell in chosen if str(cell.model_dump()[key]).lower() == wanted.lower()]
        if not chosen:
            raise LabError(
                f"--{key}: nothing in the suite is {wanted!r}.{hint(wanted, known)} Known: {listing(known)}."
            )
    return chosen


def spec_hash(spec: Spec) -> str:
    """A hash of all that decides a spec's numbers: neither what a run records of itself nor what it would search.

    Defaults are left out, so that a key the lab learns later changes no hash; that the code has changed what a default
    means is for `bench verify` to find.
    """
    content = spec.model_dump(mode="json", exclude_defaults=True, exclude={"search": True, "meta": set(RECORDED)})
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
