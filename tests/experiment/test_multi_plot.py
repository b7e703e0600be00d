import io
import struct
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from result_folders import saved_spec, write_run

from slm_lab.experiment import multi_plot
from slm_lab.experiment.aggregate import aggregate, aggregate_graphs
from slm_lab.experiment.finished import read
from slm_lab.experiment.multi_plot import HSL, arranged, colors, hex_color, multi_graph, warnings
from slm_lab.experiment.plot import COLORS, Curve, draw
from slm_lab.lib.errors import LabError
from slm_lab.spec.random_baseline import baseline

FOUR = (1.0, 2.0, 3.0, 6.0)


def run_of(folder, algorithm="PPO", returns=(FOUR, FOUR), name="x", env=None, meta=None, **agent):
    meta = {"max_session": len(returns), **(meta or {})}
    return read(write_run(folder, returns, saved_spec(name, algorithm, env, meta, **agent)))


@pytest.fixture
def drawn(monkeypatch):
    """What graphs were asked for: title, label of the axis, curves and options."""
    calls = []

    def draw(title, ylabel, curves, **options):
        calls.append((title, ylabel, curves, options))
        return b"image"

    monkeypatch.setattr(multi_plot, "draw", draw)
    return calls


def test_fixed_colours_are_those_of_their_hsl_values():
    assert hex_color(0, 100, 50) == "#ff0000"
    assert hex_color(120, 100, 25) == "#008000"
    # PPO 280/55/55: chroma (1 - |1.1 - 1|) * 0.55 = 0.495, so parts lie between 0.55 -+ 0.2475;
    # 280 degrees are 2/3 of the way from blue to magenta: red 0.3025 + 2/3 * 0.495 = 0.6325
    assert hex_color(*HSL["PPO"]) == f"#{round(255 * 0.6325):02x}{round(255 * 0.3025):02x}{round(255 * 0.7975):02x}"


def test_an_algorithm_keeps_its_colour_whoever_stands_beside_it():
    assert colors(["SAC", "PPO"])[1] == colors(["PPO"])[0] == hex_color(280, 55, 55)


def test_others_and_second_runs_take_spare_colours():
    own = hex_color(280, 55, 55)
    assert colors(["PPO", "Mine", "PPO"]) == [own, COLORS[-1], COLORS[-2]]
    assert len(set(colors(["PPO"] * 9))) == 9


def test_runs_stand_in_the_order_of_legends_with_unknown_ones_last(tmp_path):
    algorithms = ("CrossQ", "Mine", "PPO", "ActorCritic", "SARSA", "Reinforce", "SoftActorCritic", "DQN")
    runs = [run_of(tmp_path / name, name) for name in algorithms]
    labels = [shown.label for shown in arranged(runs)]
    assert labels == ["REINFORCE", "SARSA", "DQN", "A2C", "PPO", "SAC", "CrossQ", "Mine"]


def test_given_labels_keep_the_given_order(tmp_path):
    runs = [run_of(tmp_path / name, name) for name in ("SoftActorCritic", "Reinforce")]
    assert [(shown.run, shown.label) for shown in arranged(runs, ["b", "a"])] == [(runs[0], "b"), (runs[1], "a")]
    with pytest.raises(LabError, match="labels: got 1 for 2 runs: b; give one for each"):
        arranged(runs, ["b"])


def test_runs_of_one_algorithm_are_told_apart_by_spec_and_then_by_folder(tmp_path):
    runs = [run_of(tmp_path / name, name=name[0]) for name in ("a1", "b1", "b2")] + [run_of(tmp_path / "s", "SARSA")]
    assert [shown.label for shown in arranged(runs)] == ["SARSA", "PPO, a", "PPO, b, b1", "PPO, b, b2"]


def test_runs_of_different_envs_name_them(tmp_path):
    runs = [run_of(tmp_path / "a"), run_of(tmp_path / "b", env={"name": "Acrobot-v1"})]
    assert [shown.label for shown in arranged(runs)] == ["PPO, CartPole-v1", "PPO, Acrobot-v1"]
    assert warnings(runs) == [
        "different envs, whose returns are on different scales: CartPole-v1, Acrobot-v1.",
    ]


def test_a_graph_shows_the_mean_over_sessions_of_the_moving_average(tmp_path, drawn):
    path = multi_graph([run_of(tmp_path / "a", returns=(FOUR, (3.0, 4.0, 5.0, 8.0)))], tmp_path / "out")
    ((title, ylabel, (curve,), options),) = drawn
    assert path == tmp_path / "out/CartPole-v1_multi_trial_graph_mean_returns_ma_vs_frames.png"
    assert path.read_bytes() == b"image"
    assert (title, ylabel) == ("CartPole-v1", "mean return, average of the last 100 rows = 10k frames")
    assert curve.frames.tolist() == [100, 200, 300, 400]
    # the sessions average 1, 1.5, 2, 3 and 3, 3.5, 4, 5
    assert curve.values.tolist() == [2, 2.5, 3, 4]
    assert [bound.tolist() for bound in curve.band] == [[1, 1.5, 2, 3], [3, 3.5, 4, 5]]
    assert (curve.label, curve.color, curve.members) == ("PPO", hex_color(280, 55, 55), ())
    assert options == {"legend": "below"}


def test_sessions_that_are_missing_are_part_of_the_label(tmp_path, drawn):
    multi_graph([run_of(tmp_path / "a", returns=(FOUR, (1.0,)))], tmp_path, legend=False)
    assert [curve.label for curve in drawn[0][2]] == ["PPO (1/2 sessions)"]
    assert drawn[0][3] == {"legend": "none"}


def test_frames_of_workers_are_counted_together(tmp_path, drawn):
    run = run_of(tmp_path / "a", env={"max_frame": 800}, meta={"distributed": "synced"})
    multi_graph([run], tmp_path)
    assert drawn[0][2][0].frames.tolist() == [200, 400, 600, 800]
    assert warnings([run]) == [
        "a: its sessions are workers of one agent; a band over them says nothing of other seeds."
    ]


@pytest.mark.parametrize(
    ("title", "stem"),
    [("ALE/Pong-v5", "Pong-v5"), ("Lunar Lander (hard)", "Lunar_Lander_hard"), ("a b c", "a_b_c")],
)
def test_the_file_is_named_after_the_title(tmp_path, drawn, title, stem):
    path = multi_graph([run_of(tmp_path / "a")], tmp_path, title)
    assert path.name == f"{stem}_multi_trial_graph_mean_returns_ma_vs_frames.png"
    assert drawn[0][0] == title


def test_a_title_of_which_nothing_is_left_is_refused(tmp_path, drawn):
    with pytest.raises(LabError, match=r"title 'a/\(\)': nothing of it can name a file"):
        multi_graph([run_of(tmp_path / "a")], tmp_path, "a/()")


def test_different_budgets_are_refused_unless_told(tmp_path, drawn):
    runs = [run_of(tmp_path / "a"), run_of(tmp_path / "b", env={"max_frame": 300})]
    with pytest.raises(LabError, match=r"different max_frame: a 400, b 300\. Add --mix-frames"):
        multi_graph(runs, tmp_path)
    multi_graph(runs, tmp_path, mix_frames=True)
    assert len(drawn) == 1


def test_rows_that_stand_apart_differently_are_told_and_leave_the_axis(tmp_path, drawn):
    runs = [run_of(tmp_path / "a"), run_of(tmp_path / "b", meta={"log_frequency": 50})]
    multi_graph(runs, tmp_path)
    assert drawn[0][1] == "mean return, average of the last 100 rows"
    assert warnings(runs) == [
        "different spacings of rows, so that moving averages look back over different spans: 100, 50."
    ]


def test_a_curve_is_drawn_in_its_own_colour():
    red, line = "#ff0000", np.arange(3.0)
    curves = [Curve("a", line, line, color=red), Curve("b", line, 2 * line)]
    assert (255, 0, 0) in pixels(draw("x", "y", curves))
    assert (255, 0, 0) not in pixels(draw("x", "y", [replace(curve, color=None) for curve in curves]))


def pixels(image):
    """The colours of a picture."""
    picture = Image.open(io.BytesIO(image)).convert("RGB")
    return {color for _, color in picture.getcolors(picture.width * picture.height)}


def test_the_graph_is_a_png(tmp_path):
    runs = [run_of(tmp_path / "a"), run_of(tmp_path / "b", "SARSA")]
    image = multi_graph(runs, tmp_path).read_bytes()
    assert struct.unpack(">II", image[16:24]) == (1000, 1000)
    assert image != multi_graph(runs, tmp_path, legend=False).read_bytes()


ZERO = {env: baseline(env, {}) or 0.0 for env in ("CartPole-v1", "Acrobot-v1")}  # what random actions score


def cell(folder, algorithm, env, *scores):
    """A run whose sessions score so much above random actions."""
    returns = [(ZERO[env] + score,) * 4 for score in scores]
    return run_of(folder / f"{algorithm}_{env}", algorithm, returns, env={"name": env})


def family(folder):
    return [
        cell(folder, "PPO", "CartPole-v1", 10, 30),  # mean 20, the best of this env
        cell(folder, "PPO", "Acrobot-v1", 50, 50),
        cell(folder, "Reinforce", "CartPole-v1", 5, 15),
        cell(folder, "Reinforce", "Acrobot-v1", 100, 100),  # the best of this env
    ]


def test_scores_are_measured_from_random_actions_to_the_best_mean_of_each_env(tmp_path):
    first, second = aggregate(family(tmp_path))
    assert (first.label, second.label) == ("REINFORCE", "PPO")
    # REINFORCE 5/20, 15/20, 1, 1 and PPO 10/20, 30/20, 0.5, 0.5
    assert first.iqm.value == pytest.approx((0.75 + 1) / 2)
    assert second.iqm.value == pytest.approx((0.5 + 0.5) / 2)
    assert first.median.value == pytest.approx((0.5 + 1) / 2)
    assert second.gap.value == pytest.approx(1 - (0.5 + 1 + 0.5 + 0.5) / 4)
    assert second.median == pytest.approx((0.75, 0.5, 1))  # CartPole's sessions drawn anew: 0.5 to 1.5
    assert second.color == hex_color(280, 55, 55)


def test_profiles_reach_from_the_lowest_to_the_highest_score(tmp_path):
    first, second = aggregate(family(tmp_path))
    assert (first.profile.taus[0], first.profile.taus[-1]) == pytest.approx((0, 1.5))
    at_0_6 = np.searchsorted(first.profile.taus, 0.6)
    assert (first.profile.share[at_0_6], second.profile.share[at_0_6]) == (0.75, 0.25)


def test_labels_say_which_runs_belong_together(tmp_path):
    found = aggregate(family(tmp_path), ["new", "new", "old", "old"])
    assert [one.label for one in found] == ["new", "old"]


def test_averages_are_drawn_as_two_graphs(tmp_path):
    paths = aggregate_graphs(aggregate(family(tmp_path)), tmp_path / "out", "Classic (two)")
    assert [path.name for path in paths] == ["Classic_two_aggregate_scores.png", "Classic_two_performance_profile.png"]
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in paths)


def test_a_hole_in_the_table_is_refused(tmp_path):
    with pytest.raises(LabError, match="there is no run of PPO in Acrobot-v1"):
        aggregate([run for run in family(tmp_path) if run.folder.name != "PPO_Acrobot-v1"])


def test_two_runs_in_one_cell_are_refused(tmp_path):
    runs = [cell(tmp_path / name, "PPO", "CartPole-v1", 1) for name in "ab"]
    with pytest.raises(LabError, match=r"PPO has two runs of CartPole-v1: .* Tell them apart with labels"):
        aggregate(runs)


def test_budgets_must_agree_within_an_env_only(tmp_path):
    ppo, sarsa = cell(tmp_path, "PPO", "CartPole-v1", 1), cell(tmp_path, "SARSA", "CartPole-v1", 2)
    longer = run_of(tmp_path / "b", "SARSA", ((40.0,) * 4,), env={"max_frame": 450})
    acrobot = run_of(tmp_path / "c", "PPO", ((-90.0,) * 4,), env={"name": "Acrobot-v1", "max_frame": 450})
    assert len(aggregate([ppo, sarsa])) == 2
    assert len(aggregate([ppo, acrobot])) == 1
    with pytest.raises(LabError, match="different max_frame"):
        aggregate([ppo, longer])
    assert len(aggregate([ppo, longer], mix_frames=True)) == 2


@pytest.mark.parametrize(
    ("env", "returns", "message"),
    [
        ("Unmeasured-v0", (5.0,) * 4, "nobody measured what random actions score"),
        ("CartPole-v1", (20.0,) * 4, r"no run scores more than random actions \(2\d\.\d+\)"),
        ("CartPole-v1", (float("nan"),) * 4, "a session has no score"),
    ],
)
def test_an_env_without_a_scale_is_refused(tmp_path, env, returns, message):
    with pytest.raises(LabError, match=message):
        aggregate([run_of(tmp_path / "a", returns=(returns,), env={"name": env})])
