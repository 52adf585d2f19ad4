"""Reports that come faster than the notebook takes them: the newest are sent, the last one always, and it is told."""

from __future__ import annotations

import threading

import pytest

from tfos_lab import messages as m
from tfos_lab.node.context import report_rate
from tfos_lab.node.context.report_rate import BURST, ReportRate

PATIENCE_S = 60.0


class Rig:
    def __init__(self, nodes=2):
        self.sent, self.has_sent = [], threading.Event()
        self.rate = ReportRate(self.send, nodes)

    def send(self, report):
        self.sent.append(report.step)
        self.has_sent.set()

    def report(self, step):
        self.rate.take(m.Reported(rank=0, step=step, total_steps=None, metrics={}, time_s=0.0))


@pytest.fixture
def clock(monkeypatch):
    """The seconds that the bucket sees; held reports wait for `flush`."""
    now = [0.0]
    monkeypatch.setattr(report_rate.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(report_rate, "_HELD_S", 3600.0)
    return now


def test_reports_that_come_at_a_moderate_rate_are_all_sent(clock, capsys):
    rig = Rig()
    for step in range(5000):
        clock[0] += 0.002
        rig.report(step)
    assert rig.sent == list(range(5000))
    assert capsys.readouterr().err == ""


def test_of_a_flood_the_first_are_sent_then_one_at_a_time_and_the_last(clock, capsys):
    rig = Rig()
    for step in range(100_000):
        clock[0] += 1e-5
        rig.report(step)
    rig.rate.flush()
    assert rig.sent[:BURST] == list(range(BURST))
    assert 1900 <= len(rig.sent) <= 2020
    assert rig.sent[-1] == 99_999
    assert rig.sent == sorted(rig.sent)
    assert len(rig.sent) + rig.rate.left_out == 100_000
    assert capsys.readouterr().err.count("ctx.report is called more than 1,000 times a second on this node") == 1


@pytest.mark.parametrize(("nodes", "per_s"), [(1, 1000), (20, 1000), (256, 78), (4096, 5), (100_000, 5)])
def test_many_nodes_report_less_often_each(clock, nodes, per_s):
    rig = Rig(nodes)
    for step in range(BURST + 10):
        rig.report(step)
    clock[0] += 1.0
    for step in range(2000):
        rig.report(10_000 + step)
    assert len([step for step in rig.sent if step >= 10_000]) == per_s


def test_a_report_that_was_held_back_is_sent_if_no_other_comes(monkeypatch):
    monkeypatch.setattr(report_rate, "_OF_ALL_PER_S", 0.0)
    monkeypatch.setattr(report_rate, "_LEAST_PER_S", 1e-9)
    monkeypatch.setattr(report_rate, "BURST", 0)
    rig = Rig()
    rig.report(1)
    assert rig.has_sent.wait(PATIENCE_S)
    rig.rate.flush()
    assert rig.sent == [1]
