"""Peers without the keys: what they can take of a listener's memory and descriptors, while those with keys go on."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from pathlib import Path

import pytest

from tests.support.hostile_peers import attacking, resident_bytes
from tfos_lab.transport.link import MAX_FRAME_BYTES, Link
from tfos_lab.transport.listener import Listener
from tfos_lab.transport.unproven import MAX_UNPROVEN

PATIENCE_S = 60.0
MOST_BYTES = 50_000_000


@pytest.fixture
def listener():
    listener = Listener()
    yield listener
    listener.close()


@pytest.fixture
def echoing(listener):
    """The listener, which answers each message with the same, on a thread."""
    over = threading.Event()

    def echo():
        while not over.is_set():
            for item in listener.poll(0.1):
                listener.send(item.identity, item.data)

    thread = threading.Thread(target=echo)
    thread.start()
    yield listener
    over.set()
    thread.join()


def port_of(listener):
    return int(listener.address.endpoint.rpartition(":")[2])


def open_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def assert_answers(link, data=b"hello"):
    link.send(data)
    assert link.socket.poll(PATIENCE_S * 1000)
    assert list(link.receive()) == [data]


@pytest.mark.parametrize(("kind", "connections"), [("huge frame", 6), ("small frame", 400), ("garbage", 20)])
def test_strangers_cannot_move_the_memory(echoing, kind, connections):
    settled = Link(echoing.address, b"settled")
    assert_answers(settled, b"x" * MAX_FRAME_BYTES)
    before = resident_bytes()
    most = 0
    with attacking(kind, "127.0.0.1", port_of(echoing), connections=connections) as attack:
        assert attack.stdout.readline()  # it has opened all of them once
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            most = max(most, resident_bytes() - before)
            assert_answers(settled)
        late = Link(echoing.address, b"late")
        assert_answers(late)
    late.close()
    settled.close()
    assert most < MOST_BYTES


def test_half_open_connections_take_few_descriptors(echoing):
    settled = Link(echoing.address, b"settled")
    assert_answers(settled)
    before = open_descriptors()
    peers = [socket.create_connection(("127.0.0.1", port_of(echoing))) for _ in range(3 * MAX_UNPROVEN)]
    end = time.monotonic() + PATIENCE_S
    while open_descriptors() > before + len(peers) + MAX_UNPROVEN:
        assert time.monotonic() < end, "half-open connections are not closed"
        time.sleep(0.01)
    assert_answers(settled)
    late = Link(echoing.address, b"late")
    assert_answers(late)
    for link in (late, settled):
        link.close()
    for peer in peers:
        peer.close()


def test_peers_with_the_keys_are_not_counted(echoing):
    links = [Link(echoing.address, f"agent/{number}".encode()) for number in range(MAX_UNPROVEN // 8)]
    for link in links:
        assert_answers(link)
    peers = [socket.create_connection(("127.0.0.1", port_of(echoing))) for _ in range(2 * MAX_UNPROVEN)]
    for link in links:
        assert_answers(link)
        link.close()
    for peer in peers:
        peer.close()


def test_a_message_larger_than_a_frame_arrives_whole(echoing):
    link = Link(echoing.address, b"agent/1")
    for size in (MAX_FRAME_BYTES - 64, MAX_FRAME_BYTES - 63, 5 * MAX_FRAME_BYTES):
        assert_answers(link, os.urandom(size))
    link.close()


def test_a_descriptor_that_is_another_s_by_now_is_left_alone(listener):
    ours, theirs = socket.socketpair()
    strangers = socket.create_server(("127.0.0.1", 0))
    listener._unproven._accepted = {
        descriptor: number for number, descriptor in enumerate([ours.fileno(), strangers.fileno(), 9999])
    }
    listener._unproven._close_some(port_of(listener))
    assert listener._unproven._accepted == {}
    theirs.sendall(b"still open")
    assert ours.recv(100) == b"still open"
    for one in (ours, theirs, strangers):
        one.close()


def test_a_descriptor_that_is_a_file_by_now_costs_none(listener, tmp_path):
    with (tmp_path / "file").open("w") as file:
        before = open_descriptors()
        listener._unproven._accepted = {file.fileno(): 0}
        listener._unproven._close_some(port_of(listener))
        assert open_descriptors() == before
        file.write("still open")


def is_closed(peer):
    """Whether the other end has closed a connection."""
    with contextlib.suppress(BlockingIOError):
        while data := peer.recv(4096, socket.MSG_DONTWAIT):
            assert data
        return True
    return False


def test_all_nodes_of_a_large_cluster_may_come_at_once():
    nodes = MAX_UNPROVEN + 40
    listener = Listener(nodes=nodes)
    peers = []
    try:
        before = open_descriptors()
        peers = [socket.create_connection(("127.0.0.1", port_of(listener))) for _ in range(nodes)]
        end = time.monotonic() + PATIENCE_S
        while open_descriptors() < before + 2 * nodes:
            assert time.monotonic() < end, "not all were accepted"
            assert list(listener.poll(0.05)) == []
        assert list(listener.poll(0.05)) == []
        assert not any(is_closed(peer) for peer in peers)
    finally:
        for peer in peers:
            peer.close()
        listener.close()
