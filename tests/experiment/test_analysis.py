import math

import numpy as np
import pandas as pd
import pytest

from slm_lab.experiment.analysis import (
    SESSION_SCALARS,
    better,
    bootstrap_band,
    engineering,
    format_number,
    log_block,
    moving_average,
    session_metrics,
    trial_line,
    trial_metrics,
)

NAN = math.nan
FRAMES, OPT_STEPS = (100, 200, 300, 400), (0, 10, 20, 30)
FIRST, SECOND = (20, 40, 30, 60), (14, 38, 44, 40)  # less the baseline of 10: (10, 30, 20, 50) and (4, 28, 34, 30)


def table(returns, frames=FRAMES, opt_steps=OPT_STEPS):
    rows = len(returns)
    return pd.DataFrame({"total_reward": returns, "frame": frames[:rows], "opt_step": opt_steps[:rows]})


def measured(*sessions, planned=None):
    return trial_metrics([session_metrics(table(s), 10) for s in sessions], planned or len(sessions))


def test_session_scalars_follow_their_definitions():
    assert session_metrics(table(FIRST), 10)["scalar"] == pytest.approx(
        {
            "total_reward_ma": (20 + 40 + 30 + 60) / 4,
            "strength": (10 + 30 + 20 + 50) / 4,
            "max_strength": 50,
            "final_strength": 50,
            "sample_efficiency": (10 / 100 + 30 / 200 + 20 / 300 + 50 / 400) / 110,
            "training_efficiency": (30 / 10 + 20 / 20 + 50 / 30) / 110,  # 10 / 0 leaves the numerator only
            "stability": 1 - 10 / (10 + 30 + 20),
        }
    )


def test_session_scalars_equal_the_published_example():
    first, second = session_metrics(table(FIRST), 10)["scalar"], session_metrics(table(SECOND), 10)["scalar"]
    assert list(first.values()) == pytest.approx([37.5, 27.5, 50, 50, 0.00401515, 0.05151515, 0.83333333], abs=5e-9)
    assert list(second.values()) == pytest.approx([34, 24, 34, 30, 0.00383681, 0.05729167, 0.93939394], abs=5e-9)


def test_trial_scalars_equal_the_published_example_in_its_order():
    scalar = measured(FIRST, SECOND)["scalar"]
    assert list(scalar) == ["frame", *SESSION_SCALARS, "consistency"]
    expected = [400, 35.75, 25.75, 42, 40, 0.00392598, 0.05440341, 0.88636364, 0.42333039]
    assert list(scalar.values()) == pytest.approx(expected, abs=5e-9)


def test_a_nan_row_is_skipped_in_every_sum():
    scalar = measured(FIRST, (NAN, 38, 44, 40))["scalar"]
    assert scalar["total_reward_ma"] == pytest.approx((37.5 + (38 + 44 + 40) / 3) / 2)  # 39.083333
    assert scalar["strength"] == pytest.approx((27.5 + (28 + 34 + 30) / 3) / 2)  # 29.083333
    assert scalar["training_efficiency"] == pytest.approx(0.05564888, abs=5e-9)
    assert scalar["stability"] == pytest.approx((1 - 10 / 60 + 1 - 4 / (28 + 34)) / 2)  # .8844086
    assert scalar["consistency"] == pytest.approx(0.51970105, abs=5e-9)


def test_a_nan_row_takes_its_place_in_the_window_of_the_score():
    returns = [1000.0] + [NAN] * 50 + [7.0] * 50  # the window of 100 rows no longer reaches the first
    frames = tuple(range(1, 102))
    assert session_metrics(table(returns, frames, frames), 0)["scalar"]["total_reward_ma"] == 7


def test_the_last_row_alone_decides_the_final_strength_even_when_it_is_nan():
    scalar = session_metrics(table((20, 40, NAN)), 10)["scalar"]
    assert math.isnan(scalar["final_strength"])
    assert scalar["max_strength"] == 30


def test_session_series_have_a_value_for_every_row():
    local = session_metrics(table(FIRST), 10)["local"]
    assert list(local) == [
        "mean_returns",
        "strengths",
        "sample_efficiencies",
        "training_efficiencies",
        "stabilities",
        "frames",
        "opt_steps",
    ]
    assert local["mean_returns"] == [20, 40, 30, 60]
    assert local["strengths"] == [10, 30, 20, 50]
    assert local["sample_efficiencies"] == pytest.approx(
        [0.1 / 10, (0.1 + 0.15) / 40, (0.1 + 0.15 + 20 / 300) / 60, (0.1 + 0.15 + 20 / 300 + 50 / 400) / 110]
    )
    assert local["training_efficiencies"] == pytest.approx([0, 3 / 40, 4 / 60, (4 + 50 / 30) / 110])
    assert local["stabilities"] == pytest.approx([NAN, 1, 1 - 10 / 30, 1], nan_ok=True)
    assert (local["frames"], local["opt_steps"]) == ([100, 200, 300, 400], [0, 10, 20, 30])


def test_trial_series_are_one_per_session_and_consistency_is_one_for_all():
    local = measured(FIRST, SECOND)["local"]
    assert local["strengths"] == [[10, 30, 20, 50], [4, 28, 34, 30]]
    assert local["frames"] == [[100, 200, 300, 400]] * 2
    half_gap = 2 / math.sqrt(2)  # the deviation of two numbers d apart, with ddof 1, is d / sqrt(2)
    expected = [1 - half_gap * d / m for d, m in ((6, 7), (2, 29), (14, 27), (20, 40))]
    assert local["consistencies"] == pytest.approx(expected)


def test_consistency_looks_at_the_rows_the_shortest_session_has():
    assert len(measured(FIRST, SECOND[:2])["local"]["consistencies"]) == 2
    expected = 1 - math.sqrt(2) * (6 + 2) / (7 + 29)
    assert measured(FIRST, SECOND[:2])["scalar"]["consistency"] == pytest.approx(expected)


def test_one_planned_session_is_consistent_and_one_survivor_of_four_is_unknown():
    assert measured(FIRST)["scalar"]["consistency"] == 1
    assert measured(FIRST)["local"]["consistencies"] == [1, 1, 1, 1]
    assert math.isnan(measured(FIRST, planned=4)["scalar"]["consistency"])


def test_an_incomplete_trial_says_so_in_its_scalars_and_a_complete_one_keeps_its_shape():
    scalar = measured(FIRST, SECOND, planned=4)["scalar"]
    assert (scalar["sessions_done"], scalar["sessions_planned"]) == (2, 4)
    assert not any("sessions" in key for key in measured(FIRST, SECOND)["scalar"])


def test_a_session_without_a_score_leaves_no_mean_that_hides_it():
    assert math.isnan(measured(FIRST, (NAN, NAN))["scalar"]["total_reward_ma"])


def test_no_rows_give_nan_everywhere():
    for empty in (pd.DataFrame(), table(())):
        metrics = session_metrics(empty, 10)
        assert all(math.isnan(value) for value in metrics["scalar"].values())
        assert set(map(tuple, metrics["local"].values())) == {()}
        assert all(math.isnan(value) for value in trial_metrics([metrics], 1)["scalar"].values())


def test_no_sessions_give_nan_everywhere():
    metrics = trial_metrics([], 2)
    assert math.isnan(metrics["scalar"]["frame"])
    assert math.isnan(metrics["scalar"]["consistency"])
    assert metrics["local"]["mean_returns"] == []


def test_one_row_gives_all_but_stability():
    scalar = session_metrics(table((20,)), 10)["scalar"]
    assert (scalar["total_reward_ma"], scalar["strength"], scalar["sample_efficiency"]) == (20, 10, 0.1 / 10)
    assert math.isnan(scalar["stability"])


def test_two_rows_give_everything():
    scalar = session_metrics(table((40, 20)), 10)["scalar"]
    assert scalar["stability"] == pytest.approx(1 - 20 / 30)
    assert scalar["training_efficiency"] == pytest.approx((10 / 10) / 40)


def test_a_zero_sum_of_strengths_gives_nan_and_not_infinity():
    scalar = session_metrics(table((0, 20)), 10)["scalar"]  # strengths -10 and 10
    assert scalar["strength"] == 0
    assert math.isnan(scalar["sample_efficiency"])
    assert math.isnan(scalar["training_efficiency"])
    assert math.isnan(measured((10, 10), (10, 10))["scalar"]["consistency"])


def test_moving_average_looks_back_over_its_window():
    assert moving_average([1, 2, 3, 4], window=2) == pytest.approx([1, 1.5, 2.5, 3.5])
    assert moving_average([NAN, 2, NAN, NAN, 5], window=2) == pytest.approx([NAN, 2, 2, NAN, 5], nan_ok=True)
    assert len(moving_average([])) == 0


def test_moving_average_looks_back_over_100_rows_unless_told():
    assert moving_average(np.arange(1, 201))[[0, 99, 199]] == pytest.approx([1, 50.5, 150.5])


def test_nan_never_beats_a_number_and_any_number_beats_nan():
    assert better(2, 1)
    assert better(2, 2)
    assert not better(1, 2)
    assert not better(NAN, -math.inf)
    assert not better(NAN, NAN)
    assert better(-math.inf, NAN)


def test_the_band_of_one_session_is_its_line():
    low, high = bootstrap_band([[1.0, NAN, 3.0]])
    assert low == pytest.approx([1, NAN, 3], nan_ok=True)
    assert high == pytest.approx([1, NAN, 3], nan_ok=True)


def test_the_band_of_two_sessions_spans_them():
    # a resample of two is (a, a) or (b, b) once in four times each, far more often than 2.5 %
    low, high = bootstrap_band([[0.0, 5.0, NAN], [10.0, 5.0, NAN]])
    assert low == pytest.approx([0, 5, NAN], nan_ok=True)
    assert high == pytest.approx([10, 5, NAN], nan_ok=True)


def test_the_band_of_many_sessions_is_near_two_standard_errors():
    values = np.random.default_rng(1).normal(size=(400, 1))
    low, high = bootstrap_band(values)
    error = 1.96 * values.std() / math.sqrt(400)
    assert low[0] == pytest.approx(values.mean() - error, abs=0.01)
    assert high[0] == pytest.approx(values.mean() + error, abs=0.01)
    narrow_low, narrow_high = bootstrap_band(values, level=0.5)
    assert low[0] < narrow_low[0] < narrow_high[0] < high[0]


def test_the_band_skips_a_session_where_it_is_nan():
    low, high = bootstrap_band([[1.0], [NAN], [NAN]])
    assert (low[0], high[0]) == (1, 1)


def test_the_band_repeats_and_leaves_numpys_own_generator_alone():
    state = np.random.get_state()[1].copy()
    values = np.random.default_rng(0).normal(size=(5, 3))
    assert np.array_equal(bootstrap_band(values, seed=3), bootstrap_band(values, seed=3))
    assert not np.array_equal(bootstrap_band(values, seed=3), bootstrap_band(values, seed=4))
    assert np.array_equal(np.random.get_state()[1], state)


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("loss", NAN, "nan"),
        ("frame", NAN, "nan"),
        ("frame", 10_000_000, "1.00e+07"),
        ("total_reward", 21.0, "21.00"),
        ("total_reward_ma", -499.186, "-499.19"),
        ("loss", 0.000123456, "0.0001235"),
        ("fps", 1234.567, "1235"),
        ("t", 50.0, "50"),
        ("opt_step", 1234567, "1.23457e+06"),
        ("loss", -math.inf, "-inf"),
    ],
)
def test_numbers_are_shown_by_their_key(key, value, shown):
    assert format_number(key, value) == shown


def test_counts_are_shown_in_thousands():
    shown = [engineering(value) for value in (0, 999, 50_000, 1_250_000, -2000, 1e9, NAN)]
    assert shown == ["0", "999", "50k", "1.25M", "-2k", "1G", "nan"]


def test_the_trial_line_has_the_shape_that_scripts_look_for():
    scalar = measured(FIRST, SECOND)["scalar"]
    assert trial_line(scalar, done=2, planned=2) == (
        "trial_metrics: frame:4.00e+02 | total_reward_ma:35.75 | strength:25.75 | max_strength:42 | final_strength:40"
        " | sample_efficiency:0.003926 | training_efficiency:0.0544 | stability:0.8864 | consistency:0.4233"
    )


def test_the_trial_line_marks_an_incomplete_trial_at_its_end():
    scalar = measured(FIRST, SECOND, planned=4)["scalar"]
    line = trial_line(scalar, done=2, planned=4)
    assert line == trial_line(scalar, done=4, planned=4) + " | sessions:2/4"
    assert "sessions_done" not in line


def test_the_log_block_puts_four_items_on_a_line_in_columns():
    row = {"total_reward": 20.0, "loss": NAN, "fps": 10, "frame": 500, "wall_t": 3, "lr": 3e-4}
    prefix, first, second = log_block("Trial 0 session 1 x_t0_s1 [train]", row).split("\n")
    assert prefix == "Trial 0 session 1 x_t0_s1 [train]"
    assert first.split() == ["total_reward:20.00", "loss:nan", "fps:10", "frame:5.00e+02"]
    assert second.split() == ["wall_t:3", "lr:0.0003"]
    assert first.index("loss") == second.index("lr")


def test_the_band_of_a_long_run_is_the_same_in_every_part():
    series = np.tile([[1.0], [2.0], [6.0]], 2500)
    low, high = bootstrap_band(series)
    assert np.unique(low).tolist() == [low[0]]
    assert np.unique(high).tolist() == [high[0]]
    assert 1 <= low[0] < 3 < high[0] <= 6
