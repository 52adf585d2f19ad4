"""The step clock counts what is taken, and knows how long the last steps have taken."""

from __future__ import annotations

import pytest

from tfos_lab.node.activity import steps
from tfos_lab.node.activity.steps import StepClock


@pytest.fixture
def clock(monkeypatch):
    """A clock on a time that the test sets: ``clock.now``."""
    clock = StepClock()
    clock.now = 0.0
    monkeypatch.setattr(steps.time, "perf_counter", lambda: clock.now)
    return clock


def test_a_clock_that_nobody_ticks_knows_nothing(clock):
    assert clock.read() == (None, None)


def test_batches_are_steps_and_the_median_leaves_slow_ones_out(clock):
    for seconds in (0.0, 9.0, 0.1, 0.1, 0.1, 2.0):
        clock.now += seconds
        clock.take_batch()
    assert clock.read() == (6, pytest.approx(0.1))


def test_only_the_last_seconds_count_but_of_long_steps_the_last_ones(clock):
    for _ in range(40):
        clock.now += 0.1
        clock.take_batch()
    for _ in range(12):
        clock.now += 1.0
        clock.take_batch()
    assert clock.read() == (52, pytest.approx(1.0))
    clock.now += 60.0
    clock.take_batch()
    assert clock.read()[1] == pytest.approx(1.0)


def test_reports_are_steps_where_there_are_no_batches(clock):
    for step in (10, 20, 20, 40):
        clock.now += 5.0
        clock.report(step)
    step, step_s = clock.read()
    assert step == 40
    assert step_s == pytest.approx(0.5)


def test_batches_that_tensorflow_fetches_by_itself_are_steps_too(clock):
    for taken in (0, 1, 5, 5, 9):
        clock.fetch(taken)
        clock.now += 1.0
    step, step_s = clock.read()
    assert step == 9
    assert step_s == pytest.approx(0.375)
    clock.take_batch()
    assert clock.read()[0] == 1


def test_batches_go_before_reports_until_they_end(clock):
    clock.take_batch()
    clock.report(100)
    assert clock.read()[0] == 1
    clock.now += 60.0
    clock.report(101)
    assert clock.read()[0] == 101


def test_reports_that_begin_anew_are_steps_of_another_loop(clock):
    clock.report(50)
    clock.now += 1.0
    clock.report(1)
    assert clock.read() == (1, None)


def test_another_function_begins_with_nothing(clock):
    clock.take_batch()
    clock.start()
    assert clock.read() == (None, None)
