"""How long a node holds its figures before it sends them as one message."""

from __future__ import annotations

import pytest

from tfos_lab import messages as m
from tfos_lab.node import figures
from tfos_lab.node.driver_link import HEARTBEAT_S
from tfos_lab.node.figures import FiguresHolder, interval_s

REPORT = m.Reported(0, 1, None, {"loss": 0.5}, 0.0)


class Clock:
    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(figures, "time", clock)
    return clock


def holder_of(nodes):
    holder = FiguresHolder(0)
    holder.share_with(nodes)
    holder.take()
    return holder


def test_a_few_nodes_send_at_once_and_thousands_with_each_heartbeat():
    assert interval_s(1) == interval_s(200) == 0.0
    assert interval_s(1000) == pytest.approx(0.5)
    assert interval_s(4096) > HEARTBEAT_S


def test_nothing_is_held_in_a_small_cluster_nor_what_others_wait_for_in_a_large_one():
    assert not holder_of(4).hold(REPORT)
    assert not holder_of(4096).hold(m.Drained(0))
    assert holder_of(4).take() is None


def test_figures_are_sent_after_their_interval(clock):
    holder = holder_of(4096)
    assert not holder.is_due
    assert holder.hold(REPORT)
    assert not holder.is_due
    clock.now += 2.1
    assert holder.is_due
    assert holder.take() == m.Figures(0, [REPORT])
    assert not holder.is_due


def test_a_heartbeat_waits_for_nothing_and_takes_figures_along(clock):
    holder = holder_of(4096)
    assert holder.hold(REPORT)
    assert holder.hold(m.Heartbeat(0))
    assert holder.is_due
    assert holder.take() == m.Figures(0, [REPORT, m.Heartbeat(0)])


def test_a_great_many_figures_are_not_held_until_their_time(clock):
    holder = holder_of(4096)
    while not holder.is_due:
        assert holder.hold(REPORT)
    assert len(holder.take().told) == 256


def logs(size_bytes):
    return m.Logs(0, 0, [m.LogRecord(0.0, "stdout", b"x" * size_bytes)])


def test_a_few_lines_of_log_wait_for_the_heartbeat_too():
    holder = holder_of(4096)
    assert holder.hold(logs(2_000))
    assert not holder.is_due
    assert holder.hold(m.Heartbeat(0))
    assert holder.take() == m.Figures(0, [logs(2_000), m.Heartbeat(0)])


def test_a_flood_of_log_is_not_held():
    holder = holder_of(4096)
    assert not holder.hold(logs(1 << 17))
    assert not holder_of(4).hold(logs(10))
