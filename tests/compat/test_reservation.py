"""`reservation`: who knows the secret registers and learns of the others; nobody else is listened to."""

from __future__ import annotations

import pickle
import socket
import struct
import threading
import time

import pytest

from tfos_lab.compat import message_socket, reservation, util
from tfos_lab.compat.reservation import Client, Reservations, Server


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    for name in (reservation.TFOS_SERVER_HOST, reservation.TFOS_SERVER_PORT, message_socket.SECRET_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def start():
    servers = []

    def start(count):
        servers.append(Server(count))
        return servers[-1], servers[-1].start()

    yield start
    for server in servers:
        server.stop()


def test_reservations_are_done_when_all_are_there():
    reservations = Reservations(2)
    assert (reservations.done(), reservations.remaining(), reservations.get()) == (False, 2, [])
    reservations.add({"node": 1})
    assert (reservations.done(), reservations.remaining()) == (False, 1)
    reservations.add({"node": 2})
    assert (reservations.done(), reservations.remaining()) == (True, 0)
    assert reservations.get() == [{"node": 1}, {"node": 2}]


def test_a_client_registers_and_gets_all(start):
    server, address = start(1)
    client = Client(address)
    assert client.register({"node": 1, "key": b"\x00", "parts": [1, None]}) == "OK"
    assert client.get_reservations() == [{"node": 1, "key": b"\x00", "parts": [1, None]}]
    assert client.await_reservations() == server.await_reservations(None) == client.get_reservations()
    assert client.request_stop() == "OK"
    assert server.done
    client.close()


def test_clients_wait_for_one_another(start):
    server, address = start(4)
    found = []

    def register(number):
        client = Client(address)
        client.register({"node": number})
        found.append(sorted(each["node"] for each in client.await_reservations()))
        client.close()

    threads = [threading.Thread(target=register, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    assert len(server.await_reservations(None, timeout=30)) == 4
    for thread in threads:
        thread.join()
    assert found == [[0, 1, 2, 3]] * 4


def test_waiting_ends_in_time_and_with_an_error():
    server = Server(2)
    with pytest.raises(TimeoutError, match="after 0 s 2 of 2 reservations are missing"):
        server.await_reservations(None, timeout=0)
    with pytest.raises(RuntimeError, match="a node failed"):
        server.await_reservations(None, {"error": "a node failed"})


def test_no_reservation_is_none_to_wait_for():
    with pytest.raises(AssertionError, match="count=0: at least one"):
        Server(0)


# ---- addresses ------------------------------------------------------------------------------------------------------


def test_the_environment_names_host_and_ports(monkeypatch):
    server = Server(1)
    assert (server.get_server_ip(), server.get_server_ports()) == (util.get_ip_address(), [0])
    monkeypatch.setenv("TFOS_SERVER_HOST", "my_host")
    monkeypatch.setenv("TFOS_SERVER_PORT", "9997-9999")
    assert (server.get_server_ip(), server.get_server_ports()) == ("my_host", [9997, 9998, 9999])
    monkeypatch.setenv("TFOS_SERVER_PORT", "8888")
    assert server.get_server_ports() == [8888]
    for invalid in ("1-2-3", "many", "8888-"):
        monkeypatch.setenv("TFOS_SERVER_PORT", invalid)
        with pytest.raises(ValueError, match="Invalid TFOS_SERVER_PORT"):
            server.get_server_ports()


def test_the_first_free_port_is_taken(monkeypatch):
    taken = Server(1).start_listening_socket()
    port = taken.getsockname()[1]
    monkeypatch.setenv("TFOS_SERVER_PORT", str(port))
    with taken, pytest.raises(OSError, match=f"no port of .{port}. is free"):
        Server(1).start_listening_socket()
    with Server(1).start_listening_socket() as listener:
        assert listener.getsockname()[1] == port


def test_a_host_that_is_not_this_one_is_listened_for_everywhere(monkeypatch, start):
    monkeypatch.setenv("TFOS_SERVER_HOST", "seen.from.outside.invalid")
    _, (host, port) = start(1)
    assert host == "seen.from.outside.invalid"
    client = Client(("127.0.0.1", port))
    assert client.register({}) == "OK"
    client.close()


# ---- the secret -----------------------------------------------------------------------------------------------------


def _raw(address):
    sock = socket.create_connection(address)
    sock.settimeout(5)
    return sock


def test_who_does_not_know_the_secret_is_not_listened_to(start):
    server, address = start(1)
    with _raw(address) as sock:
        assert len(sock.recv(100)) == 32
        message = pickle.dumps({"type": "REG", "data": 1})
        sock.sendall(struct.pack(">I", len(message)) + message + b"\x00" * 32)
        with pytest.raises(ConnectionError):
            assert sock.recv(1) or _closed()
    assert server.reservations.get() == []


def _closed():
    raise ConnectionError


def test_a_message_that_was_changed_on_its_way_ends_the_connection(start, monkeypatch):
    server, address = start(1)
    client = Client(address)
    client._key = b"another"
    with pytest.raises(ConnectionError):
        client.register({"node": 1})
    assert server.reservations.get() == []
    client.close()


def test_the_environment_gives_the_secret_to_other_hosts(start, monkeypatch):
    monkeypatch.setenv(message_socket.SECRET_VARIABLE, "shared")
    _, address = start(1)
    client = Client(address)
    assert client.register(1) == "OK"
    client.close()
    monkeypatch.setenv(message_socket.SECRET_VARIABLE, "another")
    with pytest.raises(ConnectionError, match="does not accept this secret"):
        Client(address)


def test_a_client_without_the_secret_says_where_to_get_it(start):
    _, address = start(1)
    message_socket.forget_secret(address[1], b"another's")
    Client(address).close()
    message_socket._secret_file(address[1]).unlink()
    with pytest.raises(PermissionError, match="TFOS_SERVER_SECRET"):
        Client(address)


def test_the_secret_is_in_a_file_of_this_user_only_and_goes_with_the_server():
    server = Server(1)
    path = message_socket._secret_file(server.start()[1])
    assert path.stat().st_mode & 0o777 == 0o600
    server.stop()
    deadline = time.monotonic() + 60.0
    while path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_objects_are_no_messages(start):
    _, address = start(1)
    client = Client(address)
    with pytest.raises(TypeError):
        client.register(object())
    client.close()
