"""The socket to a run's TensorBoard: its status, and its responses where there is no TensorBoard."""

from __future__ import annotations

import select
import socket
import threading

import pytest

from tfos_lab import messages as m
from tfos_lab.engine.state.events import TensorBoardStatus
from tfos_lab.engine.tensorboard import server as server_module
from tfos_lab.engine.tensorboard.server import TensorBoardServer
from tfos_lab.engine.tensorboard.tunnel import Tunnel

PATIENCE_S = 60.0

pytestmark = pytest.mark.leaves_nothing


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(server_module, "PATIENCE_S", 0.05)


@pytest.fixture
def tunnel():
    return Tunnel(0, lambda change: change(0.0))


@pytest.fixture
def ended():
    return threading.Event()


@pytest.fixture
def server(tunnel, ended, tmp_path):
    server = TensorBoardServer(lambda: str(tmp_path), lambda: tunnel, ended.is_set)
    yield server
    server.close()


def request(server, *, after_s=0.0):
    """Send a request, some seconds after the connection; return the whole response."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(server.socket)
        assert select.select([connection], [], [], after_s)[0] == [], "answered before it was asked"
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        response = b""
        while data := connection.recv(1 << 16):
            response += data
    return response.decode()


def test_until_the_chief_s_tensorboard_is_ready_the_page_says_so_and_retries(server):
    assert server.status == TensorBoardStatus("starting")
    response = request(server)
    assert response.startswith("HTTP/1.1 503 ")
    assert "TensorBoard is starting beside the chief." in response
    assert 'http-equiv="refresh"' in response


def test_a_ready_tensorboard_has_that_status(server, tunnel):
    tunnel.handle(m.TensorBoardReady(rank=0))
    assert server.status == TensorBoardStatus("ready")


def test_a_client_is_answered_only_when_it_has_asked(ended, tmp_path):
    """One that cannot send its request, as the connection is closed, would not read the answer either."""

    def close_again(change):
        for instruction in change(0.0):
            if isinstance(instruction.message, m.TunnelOpen):
                tunnel.handle(m.TunnelClosed(rank=0, stream=instruction.message.stream))

    tunnel = Tunnel(0, close_again)
    tunnel.handle(m.TensorBoardReady(rank=0))
    server = TensorBoardServer(lambda: str(tmp_path), lambda: tunnel, ended.is_set)
    try:
        assert "TensorBoard has just gone away." in request(server, after_s=0.2)
    finally:
        server.close()


def test_a_failed_tensorboard_without_event_files_here_is_explained(server, tunnel, tmp_path):
    tunnel.handle(m.TensorBoardGone(rank=0, reason="no <disk>"))
    assert server.status == TensorBoardStatus("gone", "no <disk>")
    response = request(server)
    assert f"no &lt;disk&gt;. On this machine the folder {tmp_path} holds no event files." in response
    assert "refresh" not in response


def test_after_the_cluster_an_empty_folder_is_explained(server, ended, tmp_path):
    ended.set()
    assert server.status == TensorBoardStatus("ready")
    assert f"There are no event files in {tmp_path} on this machine." in request(server)


def test_a_local_tensorboard_that_cannot_start_is_explained(server, ended, tmp_path, monkeypatch):
    def fail(_log_dir, *, restart=False):
        raise OSError("the package tensorboard cannot be imported there")

    (tmp_path / "events").touch()
    ended.set()
    monkeypatch.setattr(server._local, "socket", fail)
    message = "TensorBoard could not be started on this machine: the package tensorboard cannot be imported there."
    assert message in request(server)


def test_a_local_tensorboard_that_has_died_is_started_again(server, ended, tmp_path, monkeypatch):
    upstream = tmp_path / "upstream"
    asked = []

    def find(_log_dir, *, restart=False):
        asked.append(restart)
        return str(upstream if restart else tmp_path / "dead")

    (tmp_path / "events").touch()
    ended.set()
    monkeypatch.setattr(server._local, "socket", find)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(upstream))
        listener.listen()

        def answer():
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\nthe page")

        thread = threading.Thread(target=answer)
        thread.start()
        assert request(server).endswith("the page")
        thread.join(PATIENCE_S)
    assert asked == [False, True]
