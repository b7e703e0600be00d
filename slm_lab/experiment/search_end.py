"""What a search leaves behind: its table and graphs, the best specs as files to run; models of the others go."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console

from slm_lab.experiment.paths import Paths
from slm_lab.experiment.search_record import Drawn, SearchRecord
from slm_lab.experiment.search_results import summarise
from slm_lab.experiment.search_trial import readable
from slm_lab.experiment.search_view import trial_table
from slm_lab.lib.io import make_folder, write_json
from slm_lab.spec.load import dump
from slm_lab.spec.overrides import RECORDED
from slm_lab.spec.random_baseline import baseline
from slm_lab.spec.schema import Spec
from slm_lab.spec.space import with_values
from slm_lab.spec.tree import Tree

BEST = 3  # specs written as files, where nobody asks for more


def conclude(
    spec: Spec, paths: Paths, record: SearchRecord, keep: int, best: int, extra: bool, console: Console | None = None
) -> None:
    """Write table, graphs and best specs of a search as far as it came, and show its trials."""
    console = Console() if console is None else console
    ranked = record.ranked()
    if not ranked:
        return  # stopped before anything was drawn
    summarise(paths, ranked, spec.meta.max_session, baseline(spec.env.name, spec.env.kwargs) or 0.0, extra)
    best_specs(spec, paths, ranked, max(best, BEST))
    prune(paths, ranked, keep)
    console.print(trial_table(spec.name, ranked))
    console.out(f"files: {paths.predir}", highlight=False)


def best_specs(spec: Spec, paths: Paths, ranked: list[Drawn], count: int) -> None:
    """Write the best specs, each as a file to run on seeds that the search did not use."""
    for rank, trial in enumerate([trial for trial in ranked if not trial.rank[0]][:count], 1):
        name = f"{spec.name}_top{rank}"
        make_folder(paths.best_spec(rank).parent)
        reason = (
            f"trial {trial.trial} of the search in {paths.predir.name}: rank {rank}, total_reward_ma {trial.score:.2f}"
        )
        reason += "; random_seed is one that the search did not use"
        write_json(paths.best_spec(rank), {"_why": {name: {"agent": reason}}, name: _ready(spec, trial)})


def _ready(spec: Spec, trial: Drawn) -> Tree:
    """The spec of a trial as a person would write it: no record, no search, other seeds."""
    tree = dump(with_values(spec, trial.values, readable))
    kept = {key: value for key, value in tree["meta"].items() if key not in (*RECORDED, "search_scheduler")}
    kept["random_seed"] = spec.meta.random_seed + 1
    return {"agent": tree["agent"], "env": tree["env"], "meta": kept}


def prune(paths: Paths, ranked: list[Drawn], keep: int) -> None:
    """Drop model files of all but the best trials; those of trials that still run stay."""
    for trial in ranked[keep:]:
        if trial.status != "running":
            own = replace(paths, trial=trial.trial)
            for path in own.trial_files():
                if path.parent == paths.models:
                    path.unlink()
