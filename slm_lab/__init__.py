"""SLM-Lab: from a spec to a trained, resumable, repeatable run.

From Python: `slm_lab.run(spec)` trains, `slm_lab.load(folder).act(obs)` asks a trained agent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slm_lab.experiment.control import RunOptions, RunResult
    from slm_lab.experiment.policy import TrainedAgent


def run(
    spec: Mapping[str, Any] | str | Path,
    name: str | None = None,
    mode: str = "train",
    sets: Sequence[str] = (),
    options: RunOptions | None = None,
) -> RunResult:
    """Run a spec: a mapping with agent, env and meta, or a spec file with the `name` of one in it."""
    from slm_lab.experiment.run import run as run_spec  # torch takes seconds to import

    return run_spec(spec, name, mode, sets, options)


def load(folder: str | Path) -> TrainedAgent:
    """The best agent of a run folder; `load(folder).act(obs)` is its action, ready for env.step."""
    from slm_lab.experiment.policy import TrainedAgent  # torch takes seconds to import

    return TrainedAgent(Path(folder))
