"""The control connection: nodes have the keys of their cluster; others are rejected before their messages are read.

The bounds on what strangers cost are those of docs/security.md.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from pathlib import Path

import pytest
import zmq
from zmq.utils import monitor

from tests.support.eventually import PATIENCE_S, eventually
from tests.support.hostile_peers import attacking, resident_bytes
from tfos_lab.errors import ConfigError
from tfos_lab.transport.link import Link, address_towards
from tfos_lab.transport.listener import Listener

MOST_FRAME_BYTES = 1 << 16
MOST_UNPROVEN = 128
MOST_BYTES = 50_000_000


@pytest.fixture
def listener():
    listener = Listener()
    yield listener
    listener.close()


@pytest.fixture
def link(listener):
    link = Link(listener.address, b"agent/1")
    yield link
    link.close()


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


def receive(listener, count=1):
    """Return the next items."""
    items = []

    def come():
        items.extend(listener.poll(0.1))
        return len(items) >= count

    eventually(come)
    return items


def answer_to(link):
    assert link.socket.poll(PATIENCE_S * 1000)
    return list(link.receive())


def assert_answers(link, data=b"hello"):
    link.send(data)
    assert answer_to(link) == [data]


def port_of(listener):
    return int(listener.address.endpoint.rpartition(":")[2])


def open_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


# ---- with the keys --------------------------------------------------------------------------------------------------


def test_a_node_with_the_keys_is_received_in_order_and_answered(listener, link):
    sent = [str(number).encode() for number in range(1000)]
    for data in sent:
        link.send(data)
    assert receive(listener, 1000) == [(b"agent/1", data) for data in sent]
    listener.send(b"nobody", b"hello")
    listener.send(b"agent/1", b"welcome")
    assert answer_to(link) == [b"welcome"]
    listener.send_to_all([b"agent/1", b"agent/gone"], b"news")
    assert answer_to(link) == [b"news"]


def test_a_node_that_connects_again_under_its_name_takes_over(listener, link):
    link.send(b"first")
    receive(listener)
    again = Link(listener.address, b"agent/1")
    again.send(b"second")
    assert receive(listener) == [(b"agent/1", b"second")]
    listener.send(b"agent/1", b"to the second")
    assert answer_to(again) == [b"to the second"]
    again.close()


def test_a_message_larger_than_a_frame_arrives_whole(echoing):
    link = Link(echoing.address, b"agent/1")
    for size in (MOST_FRAME_BYTES - 64, MOST_FRAME_BYTES - 63, 5 * MOST_FRAME_BYTES):
        assert_answers(link, os.urandom(size))
    link.close()


# ---- without them ---------------------------------------------------------------------------------------------------


def end_of_handshake(listener, *, server_key, public, secret):
    """Connect with these keys, or without any; return what the listener received and how the handshake ended."""
    context = zmq.Context()
    stranger = context.socket(zmq.DEALER)
    stranger.linger = 0
    if public:
        stranger.curve_serverkey = server_key.encode()
        stranger.curve_publickey = public.encode()
        stranger.curve_secretkey = secret.encode()
    events = stranger.get_monitor_socket()
    stranger.connect(listener.address.endpoint)
    stranger.send(b"let me in")
    received, ends = [], []
    ended = (
        zmq.EVENT_HANDSHAKE_SUCCEEDED,
        zmq.EVENT_HANDSHAKE_FAILED_AUTH,
        zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
        zmq.EVENT_DISCONNECTED,
    )

    def over():
        received.extend(listener.poll(0.05))
        while events.poll(0):
            event = monitor.recv_monitor_message(events)["event"]
            ends.extend([event] if event in ended else [])
        return ends

    eventually(over)
    stranger.disable_monitor()
    context.destroy()
    return received, ends


@pytest.mark.parametrize("stranger", ["without keys", "knows the server's key", "has a node's keys", "another cluster"])
def test_a_stranger_is_rejected_in_the_handshake_and_nothing_of_it_is_read(listener, link, stranger):
    other, mine = Listener(), listener.address
    theirs = other.address
    assert (mine.server_key, mine.client_secret_key) != (theirs.server_key, theirs.client_secret_key)
    keys = {
        "without keys": ("", "", ""),
        "knows the server's key": (mine.server_key, theirs.client_public_key, theirs.client_secret_key),
        "has a node's keys": (theirs.server_key, mine.client_public_key, mine.client_secret_key),
        "another cluster": (theirs.server_key, theirs.client_public_key, theirs.client_secret_key),
    }[stranger]
    received, ends = end_of_handshake(listener, **dict(zip(("server_key", "public", "secret"), keys, strict=True)))
    assert received == []
    assert zmq.EVENT_HANDSHAKE_SUCCEEDED not in ends
    link.send(b"still there")
    assert receive(listener) == [(b"agent/1", b"still there")]
    other.close()


@pytest.mark.parametrize(("kind", "connections"), [("huge frame", 6), ("small frame", 400), ("garbage", 20)])
def test_strangers_cannot_move_the_memory_while_nodes_are_answered(echoing, kind, connections):
    settled = Link(echoing.address, b"settled")
    assert_answers(settled, b"x" * MOST_FRAME_BYTES)
    before, most = resident_bytes(), 0
    with attacking(kind, "127.0.0.1", port_of(echoing), connections=connections) as attack:
        assert attack.stdout.readline()  # it has opened all of them once
        for _ in range(100):
            most = max(most, resident_bytes() - before)
            assert_answers(settled)
        late = Link(echoing.address, b"late")
        assert_answers(late)
    late.close()
    settled.close()
    assert most < MOST_BYTES


def test_half_open_connections_take_few_descriptors_and_no_node_is_closed_for_them(echoing):
    links = [Link(echoing.address, f"agent/{number}".encode()) for number in range(MOST_UNPROVEN // 8)]
    for link in links:
        assert_answers(link)
    before = open_descriptors()
    peers = [socket.create_connection(("127.0.0.1", port_of(echoing))) for _ in range(3 * MOST_UNPROVEN)]
    eventually(lambda: sum(is_closed(peer) for peer in peers) >= len(peers) - MOST_UNPROVEN)
    eventually(lambda: open_descriptors() <= before + len(peers) + MOST_UNPROVEN)
    late = Link(echoing.address, b"late")
    for link in (*links, late):
        assert_answers(link)
        link.close()
    for peer in peers:
        peer.close()


def is_closed(peer):
    """Whether the other end has closed a connection."""
    with contextlib.suppress(BlockingIOError):
        while peer.recv(4096, socket.MSG_DONTWAIT):
            pass
        return True
    return False


def test_all_nodes_of_a_large_cluster_may_come_at_once():
    nodes = MOST_UNPROVEN + 40
    listener, peers = Listener(nodes=nodes), []
    try:
        before = open_descriptors()
        peers = [socket.create_connection(("127.0.0.1", port_of(listener))) for _ in range(nodes)]
        eventually(lambda: [*listener.poll(0.05)] == [] and open_descriptors() >= before + 2 * nodes)
        assert not any(is_closed(peer) for peer in peers)
    finally:
        for peer in peers:
            peer.close()
        listener.close()


# ---- where the driver listens ---------------------------------------------------------------------------------------


def test_it_listens_on_one_interface_only_and_nodes_connect_to_the_public_host(listener):
    assert listener.address.endpoint.startswith("tcp://127.0.0.1:")
    # As a headless service's name leads to the driver's pod.
    for bind in ("127.0.0.1", "localhost"):
        other = Listener(bind, "localhost")
        assert other.address.endpoint.startswith("tcp://localhost:")
        link = Link(other.address, b"agent/2")
        link.send(b"by name")
        assert receive(other) == [(b"agent/2", b"by name")]
        assert address_towards(other.address.endpoint) == "127.0.0.1"
        link.close()
        other.close()


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_ipv6_works():
    try:
        listener = Listener("::1")
    except zmq.ZMQError:
        pytest.skip("IPv6 is switched off on this machine")
    link = Link(listener.address, b"agent/6")
    link.send(b"six")
    assert listener.address.endpoint.startswith("tcp://[::1]:")
    assert receive(listener) == [(b"agent/6", b"six")]
    assert address_towards(listener.address.endpoint) == "::1"
    link.close()
    listener.close()


def test_a_port_can_be_named_for_firewalls(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as other:
        last = max(sock.getsockname()[1] for sock in (taken, other))
        monkeypatch.setenv("TFOS_SERVER_PORT", str(last))
        with pytest.raises(ConfigError, match=rf"TFOS_SERVER_PORT={last}: none of these ports is free; each cluster"):
            Listener()
    listener = Listener()
    assert listener.address.endpoint == f"tcp://127.0.0.1:{last}"
    monkeypatch.setenv("TFOS_SERVER_PORT", f"{last}-{last + 50}")
    second = Listener()
    assert last < port_of(second) <= last + 50
    second.close()
    listener.close()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("https", "is neither a port such as 8888 nor a range such as 9990-9999"),
        ("-9999", "is neither a port"),
        ("9999-9990", "ports go from 1 to 65535, the smaller one first"),
        ("70000", "ports go from 1 to 65535"),
    ],
)
def test_what_is_no_port_is_refused(monkeypatch, text, problem):
    monkeypatch.setenv("TFOS_SERVER_PORT", text)
    with pytest.raises(ConfigError, match=f"TFOS_SERVER_PORT={text}: {problem}"):
        Listener()
