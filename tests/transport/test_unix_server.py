"""Unix sockets that are served beside the main thread."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading

import pytest

from tfos_lab.core.runtime_files import scratch_root
from tfos_lab.transport import unix_server
from tfos_lab.transport.unix_server import UnixServer

PATIENCE_S = 60.0

pytestmark = pytest.mark.leaves_nothing


@pytest.fixture(autouse=True)
def before(monkeypatch):
    """The threads before the test; servers that other tests have left open keep theirs to themselves."""
    monkeypatch.setattr(unix_server, "_shared_thread", None)
    return set(threading.enumerate())


async def echo(reader, writer):
    writer.write(await reader.readexactly(4))
    await writer.drain()


def connect(server):
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(PATIENCE_S)
    connection.connect(str(server.path))
    return connection


def test_a_connection_is_served_and_closed():
    server = UnixServer(echo)
    with connect(server) as connection:
        connection.sendall(b"ping")
        assert connection.recv(100) == b"ping"
        assert connection.recv(100) == b""
    server.close()


def test_only_the_user_can_connect():
    server = UnixServer(echo)
    assert server.path.stat().st_mode & 0o777 == 0o600
    server.close()
    server.close()
    assert not server.path.exists()


def test_further_connections_wait_for_a_slot():
    server = UnixServer(echo, max_connections=1)
    with connect(server) as first, connect(server) as second:
        second.sendall(b"two!")
        second.settimeout(0.1)
        with pytest.raises(TimeoutError):
            second.recv(100)
        second.settimeout(PATIENCE_S)
        first.sendall(b"one!")
        assert (first.recv(100), second.recv(100)) == (b"one!", b"two!")
    server.close()


def test_a_handler_that_fails_is_logged_and_the_server_goes_on(caplog):
    async def fail(reader, writer):
        await reader.readexactly(4)
        raise ValueError("no such page")

    server = UnixServer(fail)
    for _ in range(2):
        with connect(server) as connection:
            connection.sendall(b"ping")
            assert connection.recv(100) == b""
    server.close()
    assert caplog.text.count("ValueError: no such page") == 2


def test_all_servers_share_a_thread_that_ends_with_the_last(before):
    first, second = UnixServer(echo), UnixServer(echo)
    threads = [thread for thread in set(threading.enumerate()) - before if thread.name == "tfos-unix-servers"]
    assert len(threads) == 1
    assert first.loop is second.loop
    first.close()
    assert threads[0].is_alive()
    second.close()
    threads[0].join(PATIENCE_S)
    assert not threads[0].is_alive()


def test_callbacks_run_in_the_server_s_thread_until_it_is_closed():
    server = UnixServer(echo)
    called = threading.Event()
    names = []
    server.call(lambda: (names.append(threading.current_thread().name), called.set()))
    assert called.wait(PATIENCE_S)
    assert names == ["tfos-unix-servers"]
    server.close()
    server.call(called.clear)


def test_sockets_of_dead_processes_are_removed():
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    dead = scratch_root() / f"unix_server-{process.pid}-abc.sock"
    own = scratch_root() / f"tensorboard-{os.getpid()}-abc.sock"
    for path in (dead, own):
        path.touch()
    UnixServer(echo).close()
    assert not dead.exists()
    assert own.exists()
    own.unlink()


def test_silent_connections_give_up_their_slots_to_those_who_wait():
    server = UnixServer(echo, max_connections=2, silent_s=0.1)
    silent, half, ours = (connect(server) for _ in range(3))
    half.sendall(b"pi")
    ours.sendall(b"ping")
    assert ours.recv(100) == b"ping"
    for one in (silent, half, ours):
        one.close()
    server.close()


def test_a_silent_connection_that_nobody_waits_for_is_left_alone():
    server = UnixServer(echo, silent_s=0.0)
    with connect(server) as silent, connect(server) as other:
        other.sendall(b"ping")
        assert other.recv(100) == b"ping"
        silent.sendall(b"late")
        assert silent.recv(100) == b"late"
    server.close()
