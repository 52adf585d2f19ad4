"""Silence counts only while the driver would have heard a node."""

from __future__ import annotations

import pytest

from tfos_lab.engine.state.silence import BEHIND_SHARE, LONGEST_TICK_S, Backlog, Silence


def ticking(silence, start_s, seconds):
    """Let time pass as the server does; return the time."""
    for number in range(1, round(seconds * 5) + 1):
        silence.tick(start_s + number / 5)
    return start_s + seconds


def silent(silence, limit_s=0.0):
    return {rank: round(seconds, 1) for rank, seconds in silence.longer_than(limit_s)}


def test_a_node_is_silent_from_its_last_message_on():
    silence = Silence(3)
    silence.broken_by(0, 100.0)
    silence.broken_by(1, 100.0)
    now_s = ticking(silence, 100.0, 2.0)
    silence.broken_by(1, now_s)
    ticking(silence, now_s, 3.0)
    assert silent(silence) == {0: 5.0, 1: 3.0}
    assert silent(silence, 4.5) == {0: 5.0}


@pytest.mark.parametrize("jump_s", [3600.0, 2.0, -3600.0])
def test_a_pause_of_the_driver_and_a_clock_that_is_set_do_not_count(jump_s):
    silence = Silence(1)
    silence.broken_by(0, 100.0)
    now_s = ticking(silence, 100.0, 1.0) + jump_s
    silence.tick(now_s)
    ticking(silence, now_s, 1.0)
    (seconds,) = silent(silence).values()
    assert 2.0 <= seconds <= 2.0 + LONGEST_TICK_S


def test_a_pause_is_told_while_it_lasts_and_for_a_moment_afterwards():
    silence = Silence(1)
    silence.broken_by(0, 100.0)
    now_s = ticking(silence, 100.0, 20.0)
    assert silence.pause_s(now_s + 0.2) == 0.0
    assert silence.pause_s(now_s + 75.0) == 75.0
    silence.tick(now_s + 75.0)
    assert silence.pause_s(now_s + 75.1) == 75.0
    now_s = ticking(silence, now_s + 75.0, 12.0)
    assert silence.pause_s(now_s) == 0.0


def test_while_the_driver_is_behind_with_reading_time_counts_less():
    silence = Silence(1)
    silence.broken_by(0, 100.0)
    for number in range(1, 51):
        silence.tick(100.0 + number / 5, behind=True)
    assert silent(silence) == {0: 10.0 * BEHIND_SHARE}
    ticking(silence, 110.0, 4.0)
    assert silent(silence, 4.5) == {0: 4.0 + 10.0 * BEHIND_SHARE}


def test_the_driver_is_behind_only_if_it_was_never_through_since_the_last_tick():
    backlog = Backlog()
    for _ in range(3):
        backlog.note(is_behind=True)
    assert backlog.take()
    for is_behind in (True, False, True, True):
        backlog.note(is_behind=is_behind)
    assert not backlog.take()
    backlog.note(is_behind=True)
    assert backlog.take()
