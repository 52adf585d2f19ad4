"""Times of nodes whose clocks are off."""

from __future__ import annotations

import pytest

from tfos_lab.engine.state.node_clock import NodeClock


@pytest.mark.parametrize("ahead_s", [120.0, -120.0, 40_000.0])
def test_a_clock_that_is_off_is_told_in_the_driver_s_time(ahead_s):
    clock = NodeClock()
    assert clock.to_driver_s(1000.0 + ahead_s, 1000.0) == 1000.0
    # This message was under way for a while; that one is as quick as the first.
    assert clock.to_driver_s(1010.0 + ahead_s, 1013.0) == 1010.0
    assert clock.to_driver_s(1020.0 + ahead_s, 1020.0) == 1020.0


def test_a_clock_that_agrees_is_believed_though_messages_take_time():
    clock = NodeClock()
    assert [clock.to_driver_s(1000.0, 1003.0), clock.to_driver_s(1001.0, 1001.5)] == [1000.0, 1001.0]
    assert clock.to_driver_s(1010.0, 1060.0) == 1010.0  # the driver was asleep


def test_a_clock_that_was_never_set_is_left_alone():
    assert NodeClock().to_driver_s(1000.0, 2_000_000.0) == 1000.0


def test_a_first_message_that_came_late_is_corrected_by_the_next():
    clock = NodeClock()
    assert clock.to_driver_s(1000.0, 1030.0) == 1030.0
    assert clock.to_driver_s(1031.0, 1031.0) == 1031.0
