"""Schedules as pure functions of the frame."""

from __future__ import annotations

import math
from typing import Any

import pytest

from slm_lab.spec.parse import parse
from slm_lab.spec.schema import Schedule


def schedule_of(**keys: Any) -> Schedule:
    return parse(Schedule, keys, "schedule", [])


def test_no_decay_keeps_the_start_value_whatever_the_end_value() -> None:
    schedule = schedule_of(name="no_decay", start_val=0.2, end_val=0.9, start_step=10, end_step=20)
    assert [schedule(frame) for frame in (0, 10, 15, 20, 999)] == [0.2] * 5
    assert schedule.final == 0.2


def test_a_schedule_with_only_a_start_value_is_constant() -> None:
    assert schedule_of(start_val=0.3)(10**9) == 0.3
    ramp = schedule_of(name="linear_decay", start_val=0.3, start_step=0, end_step=100)
    assert [ramp(frame) for frame in (0, 50, 200)] == [0.3, 0.3, 0.3]


def test_linear_decay_is_flat_before_and_after_its_ramp() -> None:
    schedule = schedule_of(name="linear_decay", start_val=1.0, end_val=0.5, start_step=100, end_step=300)
    expected = {0: 1.0, 99: 1.0, 100: 1.0, 150: 0.875, 200: 0.75, 299: 0.5025, 300: 0.5, 301: 0.5, 10**9: 0.5}
    for frame, value in expected.items():
        assert schedule(frame) == pytest.approx(value, abs=1e-12), frame
    assert schedule.final == 0.5


def test_an_end_value_of_zero_is_reached() -> None:
    schedule = schedule_of(name="linear_decay", start_val=0.01, end_val=0, end_step=1000)
    assert schedule(500) == pytest.approx(0.005)
    assert schedule(1000) == 0.0
    assert schedule.final == 0.0


def test_linear_decay_may_rise() -> None:
    schedule = schedule_of(name="linear_decay", start_val=0.1, end_val=0.2, start_step=0, end_step=100)
    assert schedule(0) == 0.1
    assert schedule(25) == pytest.approx(0.125)
    assert schedule(100) == 0.2


def test_rate_decay_loses_a_tenth_each_twentieth_of_the_way() -> None:
    schedule = schedule_of(name="rate_decay", start_val=1.0, end_val=0.2, start_step=1000, end_step=3000)
    assert schedule(999) == 1.0
    assert schedule(1000) == 1.0
    assert schedule(1100) == pytest.approx(0.9)
    assert schedule(1200) == pytest.approx(0.81)
    assert schedule(2000) == pytest.approx(0.9**10)  # 0.349
    assert schedule(2900) == 0.2  # 0.9 ** 19 = 0.135 lies below the end value
    assert schedule(3000) == 0.2
    assert schedule(9999) == 0.2


def test_rate_decay_to_zero_ends_at_zero() -> None:
    schedule = schedule_of(name="rate_decay", start_val=1.0, end_val=0.0, end_step=20)
    assert schedule(19) == pytest.approx(0.9**19)
    assert schedule(20) == 0.0


def test_periodic_decay_swings_around_the_middle_ever_less() -> None:
    schedule = schedule_of(name="periodic_decay", start_val=1.0, end_val=0.0, start_step=0, end_step=100)
    assert schedule(0) == 1.0
    assert schedule(50) == pytest.approx(0.5 * (1 + math.cos(30.0) * 0.5))
    assert all(0.0 <= schedule(frame) <= 1.0 for frame in range(101))
    assert schedule(100) == 0.0


@pytest.mark.parametrize("name", ["linear_decay", "rate_decay", "periodic_decay"])
def test_a_ramp_without_length_jumps_to_its_end_value(name: str) -> None:
    schedule = schedule_of(name=name, start_val=1.0, end_val=0.5, start_step=10, end_step=10)
    assert [schedule(frame) for frame in (9, 10, 11)] == [1.0, 0.5, 0.5]
    assert schedule.final == 0.5
