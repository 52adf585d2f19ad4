"""Progress and the time that is left, from views at made-up times."""

from __future__ import annotations

import pytest

from tfos_lab.engine.diagnosis.progress import TimeLeft, progress_of
from tfos_lab.engine.state.events import FeedView, NodeView


def node(name="worker:0", **fields):
    job, _, index = name.partition(":")
    return NodeView(name, job, int(index), is_chief=False, **fields)


def test_steps_of_those_who_report_them_say_how_far_training_is():
    nodes = [node("ps:0"), node("chief:0", step=30, total_steps=60), node("worker:0", step=20, total_steps=80)]
    assert progress_of(nodes) == pytest.approx((0.5 + 0.25) / 2)
    assert progress_of([node(step=5)]) is None
    assert progress_of([node("worker:0"), node("worker:1", total_steps=8)]) == 0.0


def test_rows_say_it_once_all_have_arrived():
    nodes = [node("worker:0", rows=150), node("worker:1", rows=50)]
    feed = FeedView(rows={"worker:0": 100, "worker:1": 100}, epochs=2, complete=True)
    assert progress_of(nodes, [feed]) == 0.5
    assert progress_of(nodes, [FeedView(rows=feed.rows, epochs=2)]) is None
    assert progress_of(nodes, [FeedView(kind="stream", rows=feed.rows, complete=True)]) is None


def test_the_time_left_follows_the_speed_of_the_last_half_minute():
    left = TimeLeft()
    assert left.note(0.0, 100.0) is None
    for second in range(60):  # a slow start
        left.note(0.0, 100.0 + second)
    for second in range(41):
        seconds = left.note(0.01 * second, 160.0 + second)
    assert seconds == pytest.approx(60.0, abs=2.0)
    assert left.note(1.0, 300.0) == 0.0


def test_the_time_left_is_not_told_too_soon_nor_across_a_restart():
    left = TimeLeft()
    assert [left.note(0.1, 0.0), left.note(0.2, 1.0)] == [None, None]
    assert left.note(0.3, 3.0) == pytest.approx(10.5)
    assert left.note(0.1, 4.0) is None
    assert left.note(None, 5.0) is None
    assert left.note(0.5, 6.0) is None
