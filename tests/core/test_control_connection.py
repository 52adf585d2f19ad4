"""The control connection: nodes have the token of their start; of others, nothing is read but a token's length.

The bounds on what strangers cost are those of docs/security.md.
"""

import contextlib
import os
import select
import socket
import ssl
import threading
from pathlib import Path

import pytest

from tests.support.eventually import PATIENCE_S, eventually
from tests.support.hostile_peers import attacking, open_descriptors, resident_bytes
from tfos_lab.core.certificates import make_identities
from tfos_lab.core.link import Link, address_towards, knock_of
from tfos_lab.core.listener import Listener
from tfos_lab.core.messages import DriverAddress
from tfos_lab.errors import ConfigError

MOST_STRANGERS = 128
MOST_BYTES = 50_000_000


@pytest.fixture
def listener():
    listener = Listener()
    yield listener
    listener.close()


@pytest.fixture
def link(listener):
    link = Link(listener.address)
    yield link
    link.close()


@pytest.fixture
def echoing(listener):
    """The listener, which answers each message with the same, on a thread."""
    over = threading.Event()

    def echo():
        while not over.is_set():
            for connection, data in listener.poll(0.1):
                if data is not None:
                    listener.send(connection, data)

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


def data_of(listener, count=1):
    return [item.data for item in receive(listener, count)]


def answer_to(link):
    """Return the next frames, sending meanwhile what still waits."""
    frames = []

    def come():
        select.select([link], [link] if link.has_unsent else [], [], PATIENCE_S)
        link.flush()
        frames.extend(link.receive())
        return frames

    eventually(come)
    return frames


def assert_answers(link, data=b"hello"):
    link.send(data)
    assert answer_to(link) == [data]


def port_of(listener):
    return int(listener.address.endpoint.rpartition(":")[2])


# ---- with the token -------------------------------------------------------------------------------------------------


def test_a_node_with_the_token_is_received_in_order_and_answered(listener, link):
    sent = [str(number).encode() for number in range(1000)]
    for data in sent:
        link.send(data)
    items = receive(listener, 1000)
    assert [item.data for item in items] == sent
    connection = items[0].connection
    listener.send(connection + 1, b"hello")
    listener.send(connection, b"welcome")
    assert answer_to(link) == [b"welcome"]
    listener.send_to_all([connection, connection + 1], b"news")
    assert answer_to(link) == [b"news"]


def test_what_others_say_comes_behind_what_has_come_and_so_does_the_end(listener, link):
    link.send(b"last words")
    (said,) = receive(listener)
    link.close()
    assert receive(listener) == [(said.connection, None)]
    listener.post("it has gone")
    assert receive(listener) == ["it has gone"]


def test_a_node_hears_of_the_end_after_what_was_sent_before(listener, link):
    link.send(b"here")
    (here,) = receive(listener)
    for number in range(100):
        listener.send(here.connection, str(number).encode())
    listener.close()
    frames = []
    eventually(lambda: frames.extend(link.receive()) or link.is_over)
    assert frames == [str(number).encode() for number in range(100)]


def test_starts_of_one_kernel_share_a_port_and_each_hears_its_own_nodes_only(listener, link):
    other = Listener()
    assert port_of(other) == port_of(listener)
    theirs = Link(other.address)
    theirs.send(b"theirs")
    link.send(b"ours")
    assert (data_of(listener), data_of(other)) == ([b"ours"], [b"theirs"])
    listener.close()
    theirs.send(b"still theirs")
    assert data_of(other) == [b"still theirs"]
    theirs.close()
    other.close()


def test_large_messages_arrive_whole_both_ways(echoing):
    link = Link(echoing.address)
    for size in (0, (1 << 16) - 4, 1 << 16, 5_000_000):
        assert b"".join([link.send(data := os.urandom(size)) or b"", *answer_to(link)]) == data
    link.close()


def test_a_node_that_reads_no_more_is_let_go(listener, link):
    link.send(b"here")
    (here,) = receive(listener)
    blob = bytes(1 << 22)
    for _ in range(30):
        listener.send(here.connection, blob)
    assert receive(listener) == [(here.connection, None)]


# ---- without it -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["made up", "of a start that is over"])
def test_a_token_is_good_for_one_start_only(listener, link, token):
    over = Listener()
    over.close()
    token = os.urandom(32) if token == "made up" else over.address.token
    with pytest.raises((ConnectionResetError, ssl.SSLEOFError)):
        Link(DriverAddress(listener.address.endpoint, listener.address.certificate, token))
    link.send(b"still there")
    assert data_of(listener) == [b"still there"]


def test_who_has_seen_a_node_knock_gets_no_further(listener, link):
    """All that can be seen of a token on the network."""
    with socket.create_connection(("127.0.0.1", port_of(listener))) as sock:
        sock.sendall(knock_of(listener.address.token))
        context = ssl.create_default_context(cadata=listener.address.certificate)
        context.check_hostname = False
        with context.wrap_socket(sock) as peer:
            peer.sendall(os.urandom(32) + b"let me in")
            with contextlib.suppress(ConnectionResetError):
                assert peer.recv(1) == b""
    link.send(b"still there")
    assert data_of(listener) == [b"still there"]


def test_a_node_shows_its_token_to_none_but_its_driver(listener, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as impostor:
        endpoint = f"tcp://127.0.0.1:{impostor.getsockname()[1]}"
        shown = []
        thread = threading.Thread(target=lambda: shown.append(serve_as_another(impostor, tmp_path)))
        thread.start()
        with pytest.raises(ssl.SSLCertVerificationError):
            Link(DriverAddress(endpoint, listener.address.certificate, b"t" * 32), patience_s=0.0)
        thread.join()
    assert shown == [b""]


def serve_as_another(server, folder):
    """Take a connection with a certificate of one's own; return what the node has shown."""
    identity = make_identities().nodes
    (folder / "own.pem").write_bytes(identity.certificate + identity.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "own.pem")
    connection, _ = server.accept()
    with connection, contextlib.suppress(OSError):
        assert len(connection.recv(16, socket.MSG_WAITALL)) == 16
        return context.wrap_socket(connection, server_side=True).recv(32)
    return b""


@pytest.mark.parametrize(("kind", "connections"), [("flood", 6), ("hello again", 400)])
def test_strangers_cannot_move_the_memory_while_nodes_are_answered(echoing, kind, connections):
    settled = Link(echoing.address)
    assert_answers(settled, b"x" * 100_000)
    before, most = resident_bytes(), 0
    with attacking(kind, "127.0.0.1", port_of(echoing), connections=connections) as attack:
        assert attack.stdout.readline()  # it has opened all of them once
        for _ in range(100):
            most = max(most, resident_bytes() - before)
            assert_answers(settled)
        late = Link(echoing.address)
        assert_answers(late)
    late.close()
    settled.close()
    assert most < MOST_BYTES


def test_half_open_connections_take_few_descriptors_and_no_node_is_closed_for_them(echoing):
    links = [Link(echoing.address) for _ in range(MOST_STRANGERS // 8)]
    for link in links:
        assert_answers(link)
    before = open_descriptors()
    peers = [socket.create_connection(("127.0.0.1", port_of(echoing))) for _ in range(3 * MOST_STRANGERS)]
    eventually(lambda: sum(is_closed(peer) for peer in peers) >= len(peers) - MOST_STRANGERS)
    eventually(lambda: open_descriptors() <= before + len(peers) + MOST_STRANGERS)
    late = Link(echoing.address)
    for link in (*links, late):
        assert_answers(link)
        link.close()
    for peer in peers:
        peer.close()


def test_a_node_that_has_knocked_is_heard_however_many_come_behind_it(listener):
    """They come while the driver is busy, so that it takes all of them at once."""
    nodes, go_on = [], threading.Event()
    listener._loop.call_soon_threadsafe(go_on.wait)
    node = threading.Thread(target=lambda: nodes.append(Link(listener.address)))
    node.start()
    eventually(lambda: any(waiting for waiting, _ in connections_of(port_of(listener))))
    peers = [socket.create_connection(("127.0.0.1", port_of(listener))) for _ in range(2 * MOST_STRANGERS)]
    go_on.set()
    node.join()
    nodes[0].send(b"heard")
    assert data_of(listener) == [b"heard"]
    for peer in (*peers, *nodes):
        peer.close()


def connections_of(port):
    """Return the server's ends of a port's connections: how many bytes wait to be read, and whether it has taken it."""
    lines = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    established = (line for line in lines if line[3] == "01" and int(line[1].split(":")[1], 16) == port)
    return [(int(line[4].split(":")[1], 16), line[9] != "0") for line in established]


def is_closed(peer):
    """Whether the other end has closed a connection."""
    with contextlib.suppress(BlockingIOError):
        while peer.recv(4096, socket.MSG_DONTWAIT):
            pass
        return True
    return False


def test_all_nodes_of_a_large_cluster_may_come_at_once():
    nodes = MOST_STRANGERS + 40
    listener, peers = Listener(nodes=nodes), []
    try:
        peers = [socket.create_connection(("127.0.0.1", port_of(listener))) for _ in range(nodes)]
        eventually(lambda: sum(is_taken for _, is_taken in connections_of(port_of(listener))) == nodes)
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
        link = Link(other.address)
        link.send(b"by name")
        assert data_of(other) == [b"by name"]
        assert address_towards(other.address.endpoint) == "127.0.0.1"
        link.close()
        other.close()


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_ipv6_works():
    try:
        listener = Listener("::1")
    except OSError:
        pytest.skip("IPv6 is switched off on this machine")
    link = Link(listener.address)
    link.send(b"six")
    assert listener.address.endpoint.startswith("tcp://[::1]:")
    assert data_of(listener) == [b"six"]
    assert address_towards(listener.address.endpoint) == "::1"
    link.close()
    listener.close()


def test_a_port_can_be_named_for_firewalls(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as other:
        last = max(sock.getsockname()[1] for sock in (taken, other))
        monkeypatch.setenv("TFOS_SERVER_PORT", str(last))
        with pytest.raises(ConfigError, match=rf"TFOS_SERVER_PORT={last}: none of these ports is free; each kernel"):
            Listener()
    listener = Listener()
    assert listener.address.endpoint == f"tcp://127.0.0.1:{last}"
    monkeypatch.setenv("TFOS_SERVER_PORT", f"{last}-{last + 50}")
    second = Listener()
    assert port_of(second) == last, "a kernel takes one port for all its clusters"
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
