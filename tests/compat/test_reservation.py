"""`reservation`: who knows the secret registers and learns of the others; nobody else is listened to."""

import pickle
import socket
import struct
import tempfile
import threading
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tfos_lab.compat import util
from tfos_lab.compat.reservation import Client, Server


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    for name in ("HOST", "PORT", "SECRET"):
        monkeypatch.delenv(f"TFOS_SERVER_{name}", raising=False)


@pytest.fixture
def start():
    servers = []

    def start(count):
        servers.append(Server(count))
        return servers[-1], servers[-1].start()

    yield start
    for server in servers:
        server.stop()


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


def secret_of(port):
    """Return the file of a server's secret, in the folder of this user."""
    (path,) = Path(tempfile.gettempdir()).glob(f"tfos_lab-*/reservation-{port}.secret")
    return path


def is_closed(sock):
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True


def test_who_does_not_know_the_secret_is_not_listened_to(start):
    server, address = start(1)
    with socket.create_connection(address) as sock:
        sock.settimeout(60)
        assert len(sock.recv(100)) == 32
        message = pickle.dumps({"type": "REG", "data": 1})
        sock.sendall(struct.pack(">I", len(message)) + message + b"\x00" * 32)
        assert is_closed(sock)
    assert server.reservations.get() == []


class Changing(threading.Thread):
    """Passes on what a client and a server say, and changes one bit of what the client says after it was welcomed."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._address = address
        self.port = self._listener.getsockname()[1]

    def run(self):
        client, _ = self._listener.accept()
        with self._listener, client, socket.create_connection(self._address) as server:
            client.sendall(server.recv(32, socket.MSG_WAITALL))
            server.sendall(client.recv(32, socket.MSG_WAITALL))
            client.sendall(server.recv(32, socket.MSG_WAITALL))
            message = bytearray(client.recv(1000))
            message[-1] ^= 1
            server.sendall(message)
            client.sendall(server.recv(1000))


def test_a_message_that_was_changed_on_its_way_ends_the_connection(start, monkeypatch):
    monkeypatch.setenv("TFOS_SERVER_SECRET", "shared")
    server, address = start(1)
    changing = Changing(address)
    changing.start()
    client = Client(("127.0.0.1", changing.port))
    with pytest.raises(ConnectionError):
        client.register({"node": 1})
    assert server.reservations.get() == []
    client.close()
    changing.join()


def test_the_environment_gives_the_secret_to_other_hosts(start, monkeypatch):
    monkeypatch.setenv("TFOS_SERVER_SECRET", "shared")
    _, address = start(1)
    client = Client(address)
    assert client.register(1) == "OK"
    with pytest.raises(TypeError):
        client.register(object())  # objects are no messages
    client.close()
    monkeypatch.setenv("TFOS_SERVER_SECRET", "another")
    with pytest.raises(ConnectionError, match="does not accept this secret"):
        Client(address)


def test_the_secret_is_in_a_file_of_this_user_only_and_goes_with_the_server():
    server = Server(1)
    address = server.start()
    path = secret_of(address[1])
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    aside = path.rename(path.with_suffix(".aside"))
    with pytest.raises(PermissionError, match="TFOS_SERVER_SECRET"):
        Client(address)
    aside.rename(path)
    Client(address).close()
    server.stop()
    eventually(lambda: not path.exists())
