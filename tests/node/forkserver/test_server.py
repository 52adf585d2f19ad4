"""The fork server: one warm process for equal specs; it forks, reports exits, and ends with its watched process."""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.support.fork_servers import wait_until_warm
from tests.support.quick import QUICK_ENV
from tfos_lab.core.runtime_files import scratch_root
from tfos_lab.node.forkserver.client import (
    ForkServerConnection,
    ForkServerSpec,
    ForkServerUnavailable,
    import_environ_of,
)
from tfos_lab.node.forkserver.requests import ChildSpec, ExitedReply, FailedReply, SpawnedReply
from tfos_lab.transport.frames import ConnectionClosed, FrameSocket

PATIENCE_S = 60.0


@pytest.fixture
def watched():
    """The process that the test's fork servers end with."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


class ForkServers:
    """The fork servers of one owner."""

    def __init__(self, owner, watched_pid):
        self._owner = owner
        self._watched_pid = watched_pid
        self._open = ExitStack()

    def spec(self, *, watched_pid=None, **extra):
        import_environ = import_environ_of({}, {**QUICK_ENV, **extra})
        return ForkServerSpec(
            self._owner, "tensorflow", dict(os.environ), watched_pid or self._watched_pid, import_environ
        )

    def connect(self, **extra):
        spec = self.spec(**extra)
        spec.warm()  # it ends with the test
        return self._open.enter_context(spec.connect())

    def warm(self, **extra):
        wait_until_warm(self.spec(**extra))

    def spawn(self, **extra):
        """Fork a child that waits for its first message; return the connection, the process and the child's socket."""
        ours, theirs = socket.socketpair()
        self._open.enter_context(ours)
        null = os.open(os.devnull, os.O_RDWR)
        body = msgspec.msgpack.encode(ChildSpec(node="worker:0", environ=dict(os.environ), cwd="/", sys_path=[]))
        connection = self._open.enter_context(self.spec(**extra).spawn("child", body, [theirs.fileno(), null, null]))
        theirs.close()
        os.close(null)
        (reply,) = connection.replies(PATIENCE_S)
        assert isinstance(reply, SpawnedReply), reply
        return connection, psutil.Process(reply.pid), ours

    def close(self):
        self._open.close()


def server_pid(connection):
    """Return the pid of the process that started to listen, which differs from one fork server to another."""
    credentials = connection._frames._sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", credentials)[0]


def gone(process):
    try:
        process.wait(PATIENCE_S)
    except psutil.TimeoutExpired:
        return False
    return True


@pytest.fixture
def fork_servers(watched, request):
    fork_servers = ForkServers(f"{request.node.name}-{os.getpid()}", watched.pid)
    yield fork_servers
    fork_servers.close()


def test_equal_specs_mean_the_same_fork_server(fork_servers):
    assert server_pid(fork_servers.connect()) == server_pid(fork_servers.connect())


def test_another_environment_means_another_fork_server(fork_servers):
    assert server_pid(fork_servers.connect()) != server_pid(fork_servers.connect(TF_USE_LEGACY_KERAS="1"))


def test_many_clients_at_once_start_one_fork_server(fork_servers):
    found = []
    threads = [threading.Thread(target=lambda: found.append(server_pid(fork_servers.connect()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(found) == 8
    assert len(set(found)) == 1


def test_a_forked_process_ends_with_the_connection_that_asked_for_it(fork_servers):
    connection, child, _ = fork_servers.spawn()
    assert os.getpgid(child.pid) == child.pid
    connection.close()
    assert gone(child)


def test_clients_that_disconnect_at_once_leave_nothing_behind(fork_servers):
    """The signal reaches processes that have only just been forked."""
    fork_servers.warm()
    children = []
    for _ in range(20):
        connection, child, _ = fork_servers.spawn()
        connection.close()
        children.append(child)
    assert all(gone(child) for child in children)


def test_a_kept_process_outlives_the_connection_that_asked_for_it(fork_servers):
    connection, child, control = fork_servers.spawn()
    connection.keep()
    connection.close()
    fork_servers.warm()
    assert child.is_running()
    control.close()
    assert gone(child)


def test_the_end_of_a_process_is_reported_with_its_exit_code_or_signal(fork_servers):
    connection, _, control = fork_servers.spawn()
    control.close()
    assert connection.replies(PATIENCE_S) == [ExitedReply(code=1)]
    connection, child, _ = fork_servers.spawn()
    child.send_signal(signal.SIGKILL)
    assert connection.replies(PATIENCE_S) == [ExitedReply(code=-9)]


def test_a_process_dies_with_its_fork_server(fork_servers):
    _, child, _ = fork_servers.spawn()
    fork_server = child.parent()
    fork_server.kill()
    assert gone(child)


def test_a_fork_server_that_was_killed_is_replaced_for_the_next_client(fork_servers):
    _, child, _ = fork_servers.spawn()
    child.parent().kill()
    assert gone(child)
    _, other, _ = fork_servers.spawn()
    assert other.ppid() != child.pid
    assert other.is_running()


def test_a_fork_server_ends_with_its_watched_process_and_ends_what_it_has_forked(fork_servers, watched):
    _, child, _ = fork_servers.spawn()
    fork_server = child.parent()
    watched.kill()
    assert gone(fork_server)
    assert gone(child)
    assert not fork_servers.spec().socket_path.exists()


def test_a_fork_server_with_two_watched_processes_stays_until_both_have_ended(fork_servers, watched):
    _, child, _ = fork_servers.spawn()
    fork_server = child.parent()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        fork_servers.warm(watched_pid=other.pid)
        watched.kill()
        watched.wait()
        connection = fork_servers.connect()
        connection.ask_if_warm()
        assert connection.replies(PATIENCE_S) == [SpawnedReply(pid=0)]
        other.kill()
    assert gone(fork_server)


def test_an_import_that_fails_is_reported_to_clients(fork_servers, tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise ImportError('libcudart.so.99: cannot open shared object file')\n")
    broken = {"PYTHONPATH": str(tmp_path)}
    connection = fork_servers.connect(**broken)
    for target in ("", "child"):
        connection.spawn(target, b"")
        (reply,) = connection.replies(PATIENCE_S)
        assert isinstance(reply, FailedReply)
        assert "ImportError: libcudart.so.99: cannot open" in reply.reason
    assert "libcudart" in fork_servers.spec(**broken).log_path.read_text()


def test_a_python_that_cannot_start_is_reported_with_the_end_of_its_log(fork_servers):
    with pytest.raises(ForkServerUnavailable, match=r"(?s)ended with status 1; its log .* ends: .*encodings"):
        fork_servers.connect(PYTHONHOME="/no/such/folder")


def test_a_client_that_sends_garbage_is_dropped_and_others_are_served(fork_servers):
    connection = fork_servers.connect()
    connection._frames.send(b"\xc1 garbage")
    with pytest.raises(ConnectionClosed):
        connection.replies(PATIENCE_S)
    fork_servers.warm()


# Text that is none, values within values without end, and a frame of 4 GB.
_TEXT = b"\x81\xa4type\xa4\xff\xff\xff\xff"
GARBAGE = [struct.pack("!I", len(_TEXT)) + _TEXT, struct.pack("!I", 1 << 20) + b"\x91" * (1 << 20), b"\xff" * 100]


def test_garbage_and_slow_clients_do_not_keep_others_from_being_served(fork_servers):
    connection = fork_servers.connect()
    slow = fork_servers.connect()._frames._sock  # says nothing
    half = fork_servers.connect()._frames._sock
    half.sendall(struct.pack("!I", 1000) + b"half a frame")
    for garbage in GARBAGE:
        sender = fork_servers.connect()
        sender._frames._sock.sendall(garbage)
        with pytest.raises(ConnectionClosed):
            sender.replies(PATIENCE_S)
    fork_servers.spawn()
    assert server_pid(connection) == server_pid(fork_servers.connect())
    assert slow.fileno() >= 0


def test_a_fork_server_exits_when_it_has_been_idle(tmp_path):
    path = tmp_path / "idle.sock"
    code = "from tfos_lab.node.forkserver.main import main; main()"
    options = ["--kind", "plain", "--socket", str(path), "--idle-s", "0.1"]
    subprocess.run([sys.executable, "-c", code, *options], check=True, cwd=Path.cwd())
    deadline = time.monotonic() + PATIENCE_S
    while path.exists() and time.monotonic() < deadline:
        select.select([], [], [], 0.05)
    assert not path.exists()


def test_variables_that_are_read_at_import_choose_the_fork_server():
    environ = {"TF_X": "1", "KERAS_BACKEND": "jax", "LD_LIBRARY_PATH": "/x", "HOME": "/h", "TF_CONFIG": "{}"}
    assert import_environ_of(environ, {"ANY": "2"}) == {
        "ANY": "2",
        "KERAS_BACKEND": "jax",
        "LD_LIBRARY_PATH": "/x",
        "TF_X": "1",
    }


def test_sockets_are_in_a_folder_that_nobody_else_can_open(monkeypatch, short_folder):
    monkeypatch.setattr("tempfile.tempdir", str(short_folder))
    root = scratch_root()
    assert root.parent == short_folder
    assert root.stat().st_mode & 0o777 == 0o700
    root.chmod(0o755)
    with pytest.raises(PermissionError, match="can be opened by others; remove it, or set TMPDIR"):
        scratch_root()


def test_a_deep_temporary_folder_does_not_break_unix_sockets(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("deep" * 30)))
    assert len(str(ForkServerSpec.plain("owner", {}, 0).socket_path)) < 108


def test_a_fork_server_that_ends_while_it_is_asked_for_a_process_is_unavailable(monkeypatch):
    ours, theirs = socket.socketpair()
    theirs.close()
    monkeypatch.setattr(ForkServerSpec, "connect", lambda _self: ForkServerConnection(FrameSocket(ours)))
    with pytest.raises(ForkServerUnavailable, match="ended before it could fork a process"):
        ForkServerSpec.plain("owner", {}, 0).spawn("agent", b"")
    assert ours.fileno() == -1


def test_a_client_that_was_dropped_in_a_round_is_not_read_in_the_same_one():
    from tfos_lab.node.forkserver.server import ForkServer, _Client

    ours, theirs = socket.socketpair()
    with theirs:
        fork_server = ForkServer.__new__(ForkServer)  # without its signal handlers
        fork_server._clients = set()
        client = _Client(FrameSocket(ours))
        client.frames.close()
        fork_server._read(client)
