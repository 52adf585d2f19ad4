"""How often a node sends its log."""

from __future__ import annotations

import pytest

from tfos_lab.node.logs.sender import LogSender, interval_s
from tfos_lab.node.logs.spool import LogSpool


def test_a_few_nodes_send_at_once_and_thousands_take_turns():
    assert interval_s(1) == interval_s(64) == 0.02
    assert interval_s(4096) == pytest.approx(1.024)


@pytest.fixture
def spool(tmp_path):
    spool = LogSpool(tmp_path / "log")
    yield spool
    spool.close()


def test_one_of_thousands_sends_with_its_heartbeat_what_has_come_since_the_last_one(spool):
    sent = []
    sender = LogSender(0, spool, sent.append)
    sender.share_with(1 << 30)
    spool.append("stdout", b"first\n")
    sender.send_due(at_once=True)
    spool.append("stdout", b"second\n")
    sender.send_due()
    assert [logs.sequence for logs in sent] == [0]
    sender.send_due(at_once=True)
    sender.send_due(at_once=True)
    assert [record.data for logs in sent for record in logs.records] == [b"first\n", b"second\n"]


def test_what_the_driver_has_not_acknowledged_stays_bounded_however_it_is_sent(spool):
    sent = []
    sender = LogSender(0, spool, sent.append)
    for number in range(20):
        spool.append("stdout", f"line {number}\n".encode())
        sender.send_due(at_once=True)
    assert len(sent) == 8
