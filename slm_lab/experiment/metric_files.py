"""What a session and a trial leave behind as metrics; the same files, whoever computes them."""

from __future__ import annotations

from pathlib import Path

from slm_lab.experiment import analysis
from slm_lab.experiment.paths import Kind, Paths
from slm_lab.experiment.plot import trial_graphs
from slm_lab.lib.io import write_json


def write_session(paths: Paths, kind: Kind, metrics: analysis.SessionMetrics) -> list[Path]:
    """The metrics of one of a session's tables."""
    scalar, full = paths.session_scalar(kind), paths.session_metrics(kind)
    write_json(scalar, metrics["scalar"])
    write_json(full, metrics)  # last: the trial takes it for the end of the session
    return [scalar, full]


def write_trial(paths: Paths, spec_name: str, metrics: analysis.TrialMetrics, extra_graphs: bool) -> list[Path]:
    """The metrics and graphs of a trial."""
    write_json(paths.trial_metrics, metrics)
    graphs = trial_graphs(metrics["local"], spec_name, paths, extra_graphs)
    # the copy beside the spec comes last: it says that all of this is there
    copies = [paths.trial_scalar, paths.beside_spec(paths.trial_scalar)]
    for path in copies:
        write_json(path, metrics["scalar"])
    return [paths.trial_metrics, *graphs, *copies]
