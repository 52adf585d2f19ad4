"""The control channel: peers with the keys are received, others are rejected before their messages are read."""

from __future__ import annotations

import os
import socket
import threading

import msgspec
import pytest
import zmq
from zmq.utils import monitor

from tfos_lab.errors import ConfigError
from tfos_lab.transport import listener as listener_module
from tfos_lab.transport.link import Link, address_towards
from tfos_lab.transport.listener import PORT_VARIABLE, KeyPair, Listener

PATIENCE_S = 60.0


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


def receive(listener, count=1):
    """Return the next items; fewer than ``count`` if they do not arrive in time."""
    items = []
    for _ in range(int(PATIENCE_S / 0.1)):
        items += listener.poll(0.1)
        if len(items) >= count:
            break
    return items


def connect_with_wrong_keys(listener, *, server_key=None, client=None):
    """Connect with wrong keys; return what the listener received and how the handshake ended."""
    client = client or KeyPair.make()
    context = zmq.Context()
    stranger = context.socket(zmq.DEALER)
    stranger.linger = 0
    stranger.curve_serverkey = (server_key or listener.address.server_key).encode()
    stranger.curve_publickey = client.public.encode()
    stranger.curve_secretkey = client.secret.encode()
    events = stranger.get_monitor_socket()
    stranger.connect(listener.address.endpoint)
    stranger.send(b"let me in")
    received, ends = [], []
    failures = (zmq.EVENT_HANDSHAKE_FAILED_AUTH, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, zmq.EVENT_DISCONNECTED)
    for _ in range(int(PATIENCE_S / 0.05)):
        received += listener.poll(0.05)
        while events.poll(0):
            event = monitor.recv_monitor_message(events)["event"]
            ends += [event] if event in (*failures, zmq.EVENT_HANDSHAKE_SUCCEEDED) else []
        if ends:
            break
    received += listener.poll(0.2)
    stranger.disable_monitor()
    context.destroy()
    return received, ends


def test_an_agent_with_the_keys_is_received_and_answered(listener, link):
    link.send(b"hello")
    assert receive(listener) == [(b"agent/1", b"hello")]
    listener.send(b"agent/1", b"welcome")
    assert link.socket.poll(int(PATIENCE_S * 1000))
    assert list(link.receive()) == [b"welcome"]
    assert list(link.receive()) == []


def test_the_same_can_be_sent_to_all(listener, link):
    link.send(b"hello")
    receive(listener)
    listener.send_to_all([b"agent/1", b"agent/gone", b"agent/1"], b"news")
    received = []
    while len(received) < 2:
        assert link.socket.poll(int(PATIENCE_S * 1000))
        received += link.receive()
    assert received == [b"news", b"news"]


def test_messages_of_an_agent_arrive_in_order(listener, link):
    sent = [str(number).encode() for number in range(1000)]
    for data in sent:
        link.send(data)
    assert [data for _, data in receive(listener, 1000)] == sent


def test_a_stranger_who_knows_the_server_s_key_only_is_dropped(listener):
    received, ends = connect_with_wrong_keys(listener)
    assert received == []
    assert ends
    assert zmq.EVENT_HANDSHAKE_SUCCEEDED not in ends


def test_a_stranger_with_the_client_s_keys_but_the_wrong_server_key_is_dropped(listener):
    client = KeyPair(listener.address.client_public_key, listener.address.client_secret_key)
    received, ends = connect_with_wrong_keys(listener, server_key=KeyPair.make().public, client=client)
    assert received == []
    assert zmq.EVENT_HANDSHAKE_SUCCEEDED not in ends


def test_the_keys_of_another_cluster_are_rejected(listener):
    other = Listener()
    wrong = msgspec.structs.replace(other.address, endpoint=listener.address.endpoint)
    link = Link(wrong, b"agent/9")
    link.send(b"wrong cluster")
    assert list(listener.poll(0.5)) == []
    link.socket.linger = 0
    link.close()
    other.close()


def test_a_peer_that_does_not_speak_zeromq_is_dropped(listener, link):
    host, _, port = listener.address.endpoint.removeprefix("tcp://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as peer:
        peer.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + b"\0" * 1000)
        assert list(listener.poll(0.1)) == []
        link.send(b"still there")
        assert receive(listener) == [(b"agent/1", b"still there")]


def test_a_client_without_any_keys_is_dropped(listener):
    context = zmq.Context()
    stranger = context.socket(zmq.DEALER)
    stranger.linger = 0
    stranger.connect(listener.address.endpoint)
    stranger.send(b"no keys")
    assert list(listener.poll(0.3)) == []
    context.destroy()


def test_a_listener_listens_on_one_interface_only(listener):
    assert listener.address.endpoint.startswith("tcp://127.0.0.1:")


def test_agents_connect_to_the_public_host(listener):
    other = Listener("127.0.0.1", "localhost")
    assert other.address.endpoint.startswith("tcp://localhost:")
    link = Link(other.address, b"agent/2")
    link.send(b"by name")
    assert receive(other) == [(b"agent/2", b"by name")]
    link.close()
    other.close()


def test_every_listener_has_keys_of_its_own(listener):
    other = Listener()
    mine, theirs = listener.address, other.address
    assert mine.server_key != theirs.server_key
    assert mine.client_secret_key != theirs.client_secret_key
    other.close()


def test_a_post_from_another_thread_wakes_the_polling_one(listener):
    thread = threading.Thread(target=listener.post, args=("news",))
    thread.start()
    assert receive(listener) == ["news"]
    thread.join()


def test_posting_to_a_closed_listener_does_nothing():
    listener = Listener()
    listener.close()
    # The next descriptors to be opened reuse its number: they must not be written to.
    reading, writing = os.pipe2(os.O_NONBLOCK)
    others = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(8)]
    listener.post("too late")
    for fd in others:
        with pytest.raises(BlockingIOError):
            os.eventfd_read(fd)
    with pytest.raises(BlockingIOError):
        os.read(reading, 8)
    for fd in (reading, writing, *others):
        os.close(fd)


def test_a_message_to_nobody_is_dropped(listener):
    listener.send(b"nobody", b"hello")


def test_an_agent_that_reconnects_under_its_name_takes_over(listener, link):
    link.send(b"first")
    receive(listener)
    again = Link(listener.address, b"agent/1")
    again.send(b"second")
    assert receive(listener) == [(b"agent/1", b"second")]
    listener.send(b"agent/1", b"to the second")
    assert again.socket.poll(int(PATIENCE_S * 1000))
    assert list(again.receive()) == [b"to the second"]
    again.close()


def test_what_was_sent_before_closing_still_leaves(listener):
    link = Link(listener.address, b"agent/3")
    assert link.socket.linger >= 1000
    # On a busy machine the handshake, which comes first, may take longer.
    link.socket.linger = int(PATIENCE_S * 1000)
    link.send(b"last words")
    closing = threading.Thread(target=link.close)
    closing.start()
    assert receive(listener) == [(b"agent/3", b"last words")]
    closing.join(PATIENCE_S)


def test_the_address_towards_this_machine_is_this_machine():
    assert address_towards("tcp://127.0.0.1:5555") == "127.0.0.1"
    assert address_towards("tcp://localhost:5555") == "127.0.0.1"


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_ipv6_loopback_works():
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


# ---- where the driver listens -------------------------------------------------------------------------------------


def test_a_port_can_be_named_for_firewalls(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as other:
        last = max(sock.getsockname()[1] for sock in (taken, other))
        monkeypatch.setenv(PORT_VARIABLE, str(last))
        with pytest.raises(ConfigError, match=rf"TFOS_SERVER_PORT={last}: none of these ports is free; each cluster"):
            Listener()
    listener = Listener()
    assert listener.address.endpoint == f"tcp://127.0.0.1:{last}"
    monkeypatch.setenv(PORT_VARIABLE, f"{last}-{last + 50}")
    second = Listener()
    assert last < int(second.address.endpoint.rpartition(":")[2]) <= last + 50
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
    monkeypatch.setenv(PORT_VARIABLE, text)
    with pytest.raises(ConfigError, match=f"TFOS_SERVER_PORT={text}: {problem}"):
        Listener()


def test_it_listens_where_a_host_name_leads():
    # As a headless service's name leads to the driver's pod.
    listener = Listener("localhost", "localhost")
    link = Link(listener.address, b"agent/1")
    link.send(b"here")
    assert [item.data for item in receive(listener)] == [b"here"]
    link.close()
    listener.close()


def test_a_listener_says_whether_more_has_come_than_it_has_yielded(listener, monkeypatch):
    monkeypatch.setattr(listener_module, "_AT_ONCE", 2)
    agent = Link(listener.address, b"agent")
    try:
        for number in range(5):
            agent.send(str(number).encode())
        received = 0
        while received < 5:
            count = len(list(listener.poll(PATIENCE_S)))
            assert count <= 2
            assert listener.is_behind == (count == 2)
            received += count
        assert list(listener.poll(0.0)) == []
        assert not listener.is_behind
    finally:
        agent.close()
