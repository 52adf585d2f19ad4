"""The agent's connection to the driver: who is waited for how long, and who speaks for a busy agent."""

from __future__ import annotations

import os
import socket
import threading
import time

import pytest

from tests.node.conftest import PATIENCE_S, launch_spec
from tfos_lab import messages as m
from tfos_lab.node import driver_link, stand_in
from tfos_lab.node.driver_link import GAVE_UP, UNREACHABLE_S, DriverLink, how_ended
from tfos_lab.node.last_heartbeat import LastHeartbeat
from tfos_lab.transport.listener import KeyPair, Listener


class Clock:
    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now


def test_a_driver_that_is_there_is_waited_for_longer_than_one_that_cannot_be_reached(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(driver_link, "time", clock)
    keys = KeyPair.make()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = m.DriverAddress(f"tcp://127.0.0.1:{server.getsockname()[1]}", keys.public, keys.public, keys.secret)
        link = DriverLink(launch_spec(driver=address))
        try:
            assert not link.is_given_up(600.0)
            clock.now += UNREACHABLE_S + 20.0
            assert not link.is_given_up(600.0)
            assert link.is_given_up(5.0)
            server.close()
            clock.now += 20.0
            assert link.is_given_up(600.0)
        finally:
            link.close()


def test_how_an_agent_has_ended_is_a_sentence():
    assert how_ended(-9) == "its agent ended with code -9"
    assert "had not heard of the driver" in how_ended(GAVE_UP)


@pytest.fixture
def listener():
    listener = Listener()
    yield listener
    listener.close()


def test_a_thread_sends_heartbeats_while_the_agent_s_loop_is_busy(monkeypatch, listener):
    monkeypatch.setattr(stand_in, "_BUSY_AFTER_S", 0.2)
    link = DriverLink(launch_spec(driver=listener.address, rank=3))
    try:
        link.send_heartbeat_if_due(spooled_bytes=7)
        senders, deadline = [], time.monotonic() + PATIENCE_S
        with link.long_wait():
            while len(senders) < 3 and time.monotonic() < deadline:
                for item in listener.poll(0.1):
                    senders.append(item.identity)
                    assert m.decode_from_agent(item.data) == m.Heartbeat(rank=3, spooled_bytes=7)
        assert senders[1:3] == [senders[0] + stand_in.SUFFIX] * 2
    finally:
        link.close()


@pytest.fixture
def link(monkeypatch, listener):
    """One whose thread looks often, and calls a loop hung that has computed for a moment; it has sent a heartbeat."""
    monkeypatch.setattr(stand_in, "_LOOK_S", 0.02)
    monkeypatch.setattr(stand_in, "_BUSY_AFTER_S", 0.2)
    monkeypatch.setattr(stand_in, "_SPINS_AFTER_S", 0.1)
    monkeypatch.setattr(stand_in, "_INTERVAL_S", 0.02)
    link = DriverLink(launch_spec(driver=listener.address, rank=3))
    link.send_heartbeat_if_due(spooled_bytes=7)
    yield link
    link.close()


def spin(*, until):
    """Take processor time, in this thread."""
    deadline = time.monotonic() + PATIENCE_S
    while not until() and time.monotonic() < deadline:
        pass


def spin_for(seconds):
    end = time.thread_time() + seconds
    spin(until=lambda: time.thread_time() >= end)


def test_no_thread_sends_heartbeats_for_a_loop_that_spins(link):
    shown, before = LastHeartbeat.of(os.getpid()), 0.0
    while shown.at_s != before:  # the one that was on its way
        before = shown.at_s
        spin_for(0.15)
    spin_for(0.15)
    assert shown.at_s == before


def test_work_that_is_known_to_take_long_is_not_taken_for_spinning(link):
    shown = LastHeartbeat.of(os.getpid())
    with link.long_work():
        spin_for(0.15)
        before = shown.at_s
        spin(until=lambda: shown.at_s > before)
        assert shown.at_s > before


def test_no_thread_sends_heartbeats_for_a_loop_that_waits_for_what_does_not_come(monkeypatch, link):
    monkeypatch.setattr(stand_in, "_IDLE_AFTER_S", 0.05)
    shown, end, is_busy = LastHeartbeat.of(os.getpid()), threading.Event(), stand_in.StandIn._is_busy
    sent, looks = [], []

    def look(self):
        """Note when the last heartbeat was sent, from the look on that tells that there has been enough of a wait."""
        looks.append(is_busy(self))
        if looks[-20:] == [False] * 20:
            sent.append(shown.at_s)
        if len(sent) == 30:
            end.set()
        return looks[-1]

    monkeypatch.setattr(stand_in.StandIn, "_is_busy", look)
    assert end.wait(PATIENCE_S)  # without waking up meanwhile
    assert len(set(sent)) == 1
    before = shown.at_s
    end.clear()
    with link.long_wait():
        deadline = time.monotonic() + PATIENCE_S
        while shown.at_s == before and time.monotonic() < deadline:
            end.wait(0.2)
    assert shown.at_s > before


def received(listener, count):
    found, deadline = [], time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < deadline:
        found += [(item.identity, m.decode_from_agent(item.data)) for item in listener.poll(0.1)]
    return found


def test_a_reservation_is_repeated_until_the_driver_answers(monkeypatch, listener):
    monkeypatch.setattr(driver_link, "HEARTBEAT_S", 0.05)
    reservation = m.Reserve(3, "host", "host:1", 1, "", [])
    link = DriverLink(launch_spec(driver=listener.address, rank=3))
    try:
        link.reserve(reservation)
        time.sleep(0.06)
        link.send_heartbeat_if_due(spooled_bytes=0)
        (identity, first), (_, second), (_, third) = received(listener, 3)
        assert [first, second, third] == [reservation, reservation, m.Heartbeat(rank=3)]
        listener.send(identity, m.encode(m.HeartbeatAck()))
        assert link.socket.poll(PATIENCE_S * 1000)
        assert list(link.receive()) == [m.HeartbeatAck()]
        time.sleep(0.06)
        link.send_heartbeat_if_due(spooled_bytes=5)
        assert [message for _, message in received(listener, 1)] == [m.Heartbeat(rank=3, spooled_bytes=5)]
    finally:
        link.close()


def test_a_node_of_a_large_cluster_sends_its_figures_together_and_before_what_follows_them(listener):
    report = m.Reported(3, 1, None, {"loss": 0.5}, 0.0)
    link = DriverLink(launch_spec(driver=listener.address, rank=3))
    try:
        link.send(report)
        link.share_with(4096)
        link.send(report)
        link.send(m.Activity(3, step=1))
        link.send(m.Drained(3))
        told = [message for _, message in received(listener, 3)]
        assert told == [report, m.Figures(3, [report, m.Activity(3, step=1)]), m.Drained(3)]
    finally:
        link.close()


def test_what_is_held_is_sent_before_the_connection_closes(listener):
    logs = m.Logs(3, 0, [m.LogRecord(0.0, "stdout", b"the last words\n")])
    link = DriverLink(launch_spec(driver=listener.address, rank=3))
    link.send(m.Activity(3))
    link.share_with(4096)
    link.send(logs)
    assert [message for _, message in received(listener, 1)] == [m.Activity(3)]
    closing = threading.Thread(target=link.close)
    closing.start()
    assert [message for _, message in received(listener, 1)] == [m.Figures(3, [logs])]
    closing.join(PATIENCE_S)


def test_a_flood_of_log_follows_what_was_held_before_it(listener):
    few, many = (m.Logs(3, n, [m.LogRecord(0.0, "stdout", b"x" * size)]) for n, size in enumerate((10, 1 << 17)))
    link = DriverLink(launch_spec(driver=listener.address, rank=3))
    try:
        link.send(m.Activity(3))
        link.share_with(4096)
        link.send(few)
        link.send(many)
        assert [message for _, message in received(listener, 3)] == [m.Activity(3), m.Figures(3, [few]), many]
    finally:
        link.close()


def test_a_heartbeat_is_due_every_second(monkeypatch, listener):
    clock = Clock()
    monkeypatch.setattr(driver_link, "time", clock)
    link = DriverLink(launch_spec(driver=listener.address, rank=3))
    try:
        assert link.heartbeat_is_due
        link.send_heartbeat_if_due(spooled_bytes=0)
        assert not link.heartbeat_is_due
        clock.now += 1.0
        assert link.heartbeat_is_due
    finally:
        link.close()
