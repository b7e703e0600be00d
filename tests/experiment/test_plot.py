import math
import struct
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from slm_lab.experiment.analysis import session_metrics, trial_metrics
from slm_lab.experiment.paths import Paths
from slm_lab.experiment.plot import Curve, draw, mean_curve, session_graphs, trial_graphs

NAN = math.nan


@pytest.fixture
def paths(tmp_path):
    made = Paths(tmp_path, "x")
    made.make_folders()
    return made


def table(rows, **columns):
    frames = np.arange(1, rows + 1) * 500.0
    return pd.DataFrame({"total_reward": frames / 10, "frame": frames, "opt_step": frames, **columns})


def local(*tables):
    return trial_metrics([session_metrics(df, 0) for df in tables], len(tables))["local"]


def size(png):
    """Width and height, from the header every PNG starts with."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", png[16:24])


def test_a_graph_is_a_png_of_1000_by_1000():
    assert size(draw("x", "mean return", [Curve("a", np.arange(3.0), np.arange(3.0))])) == (1000, 1000)


def test_a_session_draws_returns_and_the_columns_it_has(paths):
    drawn = session_graphs(table(4, loss=0.1, entropy=0.2, lr=0.3), "x", paths.for_session(0), "train")
    assert [path.name for path in drawn] == [
        f"x_t0_s0_session_graph_train_{what}.png"
        for what in ("mean_returns_vs_frames", "mean_returns_ma_vs_frames", "loss_vs_frame", "entropy_vs_frame")
    ]
    assert sorted(drawn) == sorted((paths.predir / "graph").iterdir())
    assert all(size(path.read_bytes()) == (1000, 1000) for path in drawn)


def test_the_moving_average_has_a_graph_of_its_own(paths):
    raw, average = session_graphs(table(4), "x", paths.for_session(0), "eval")
    assert raw.name == "x_t0_s0_session_graph_eval_mean_returns_vs_frames.png"
    assert raw.read_bytes() != average.read_bytes()


@pytest.mark.parametrize("df", [pd.DataFrame(), table(3, total_reward=NAN), table(1)], ids=["empty", "nan", "one row"])
def test_a_session_with_little_to_show_still_gets_its_graphs(paths, df):
    assert all(path.is_file() for path in session_graphs(df, "x", paths.for_session(0), "train"))
    trial_graphs(local(df), "x", paths, extra=True)
    trial_graphs(local(df, table(2)), "x", paths, extra=True)


def test_a_trial_without_sessions_draws_empty_axes(paths):
    assert len(trial_graphs(local(), "x", paths, extra=True)) == 9


def test_an_empty_graph_says_so_instead_of_showing_a_line():
    frames = np.arange(3.0)
    nothing = draw("x", "y", [Curve("a", frames, np.full(3, NAN))])
    assert nothing == draw("x", "y", [])
    assert nothing != draw("x", "y", [Curve("a", frames, np.zeros(3))])


def test_a_trial_draws_its_returns_twice_with_a_copy_beside_the_spec(paths):
    names = [f"x_t0_trial_graph_mean_returns{average}_vs_frames.png" for average in ("", "_ma")]
    drawn = trial_graphs(local(table(5), table(5)), "x", paths)
    assert drawn == [folder / name for name in names for folder in (paths.predir / "graph", paths.predir)]
    assert drawn[0].read_bytes() == drawn[1].read_bytes() != drawn[2].read_bytes()


def test_a_trial_draws_its_other_metrics_when_asked(paths):
    trial_graphs(local(table(5), table(5)), "x", paths, extra=True)
    others = ("strengths", "sample_efficiencies", "training_efficiencies", "stabilities", "consistencies")
    assert all(paths.trial_graph(f"{metric}_vs_frames").is_file() for metric in others)


def test_metrics_read_back_from_json_are_drawn_the_same(paths):
    metrics = local(table(3), table(3, total_reward=[NAN, 1.0, 2.0]))
    before = [path.read_bytes() for path in trial_graphs(metrics, "x", paths)]
    metrics["mean_returns"] = [[50.0, 100.0, 150.0], [None, 1.0, 2.0]]
    assert [path.read_bytes() for path in trial_graphs(metrics, "x", paths)] == before


def test_sessions_are_averaged_on_the_frames_they_share():
    curve = mean_curve([[100, 200, 300], [200, 300, 400, 500]], [[1, 2, 3], [4, 5, 6, 7]])
    assert curve.frames.tolist() == [200, 300]
    assert curve.values.tolist() == [(2 + 4) / 2, (3 + 5) / 2]
    assert [bound.tolist() for bound in curve.band] == [[2, 3], [4, 5]]
    assert [len(frames) for frames, _ in curve.members] == [3, 4]  # the single lines keep their length


def test_a_nan_leaves_the_mean_to_the_other_sessions():
    curve = mean_curve([[1, 2], [1, 2]], [[NAN, 2], [NAN, NAN]])
    assert curve.values == pytest.approx([NAN, 2], nan_ok=True)


def test_a_session_without_rows_does_not_empty_the_graph():
    curve = mean_curve([[1, 2], []], [[3, 4], []])
    assert curve.values.tolist() == [3, 4]
    assert curve.band is None


def test_importing_the_graphs_loads_neither_matplotlib_nor_torch():
    code = (
        "import sys; from slm_lab.experiment import plot, progress; from slm_lab.spec import random_baseline;"
        "print({'matplotlib', 'torch', 'gymnasium', 'scipy'} & sys.modules.keys())"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"set()\n"


def test_drawing_leaves_pyplot_unloaded():
    code = (
        "import sys; from slm_lab.experiment.plot import draw; draw('x', 'y', []);"
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
