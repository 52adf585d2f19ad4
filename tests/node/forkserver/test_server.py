"""The fork server: one warm process for equal requests; forks, reports exits, ends with the process it watches."""

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

from tests.support.quick import QUICK_ENV
from tfos_lab.core.runtime_files import scratch_root
from tfos_lab.node.forkserver import client as fork_server
from tfos_lab.node.forkserver.client import ForkServerUnavailable
from tfos_lab.node.forkserver.requests import (
    ChildSpec,
    ExitedReply,
    FailedReply,
    KeepRequest,
    SpawnedReply,
    SpawnRequest,
)
from tfos_lab.transport.frames import ConnectionClosed

PATIENCE_S = 60.0


@pytest.fixture
def watched_pid():
    """A process without which the test's fork servers have no reason to live."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


class Nurseries:
    """What one owner asks of its fork servers."""

    def __init__(self, owner, watched_pid):
        self.owner = owner
        self.watched_pid = watched_pid
        self._open = ExitStack()

    def import_environ(self, **extra):
        return fork_server.import_environ_of({}, {**QUICK_ENV, **extra})

    def connect(self, **extra):
        which = (self.owner, "tensorflow", self.import_environ(**extra), dict(os.environ))
        fork_server.warm(*which, self.watched_pid.pid)  # it leaves with the test
        frames = fork_server.connect(*which)
        frames._sock.settimeout(PATIENCE_S)
        return self._open.enter_context(frames)

    def warm(self, **extra):
        fork_server.wait_until_warm(
            self.owner, "tensorflow", self.import_environ(**extra), dict(os.environ), self.watched_pid.pid
        )

    def spawn(self, frames=None, **extra):
        """Have a child forked that waits for its first word; returns the connection, its pid and the child's socket."""
        frames = frames or self.connect(**extra)
        ours, theirs = socket.socketpair()
        self._open.enter_context(ours)
        null = os.open(os.devnull, os.O_RDWR)
        spec = ChildSpec(node="worker:0", environ=dict(os.environ), cwd="/", sys_path=[])
        request = SpawnRequest("child", msgspec.msgpack.encode(spec), self.watched_pid.pid)
        frames.send(msgspec.msgpack.encode(request), [theirs.fileno(), null, null])
        theirs.close()
        os.close(null)
        (reply,) = replies(frames)
        assert isinstance(reply, SpawnedReply), reply
        return frames, psutil.Process(reply.pid), ours

    def path(self, **extra):
        return fork_server.socket_path(self.owner, "tensorflow", self.import_environ(**extra))

    def close(self):
        self._open.close()


def replies(frames):
    return [fork_server.reply_decoder.decode(data) for data, _ in frames.available(PATIENCE_S)]


def whose(frames):
    """Return the pid that began to listen, which tells one fork server from another."""
    credentials = frames._sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", credentials)[0]


def gone(process):
    try:
        process.wait(PATIENCE_S)
    except psutil.TimeoutExpired:
        return False
    return True


@pytest.fixture
def fork_servers(watched_pid, request):
    fork_servers = Nurseries(f"{request.node.name}-{os.getpid()}", watched_pid)
    yield fork_servers
    fork_servers.close()


def test_whoever_asks_alike_gets_the_same_fork_server(fork_servers):
    assert whose(fork_servers.connect()) == whose(fork_servers.connect())


def test_another_environment_is_another_fork_server(fork_servers):
    assert whose(fork_servers.connect()) != whose(fork_servers.connect(TF_USE_LEGACY_KERAS="1"))


def test_many_who_come_at_once_start_one_fork_server(fork_servers):
    found = []
    threads = [threading.Thread(target=lambda: found.append(whose(fork_servers.connect()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(found) == 8
    assert len(set(found)) == 1


def test_a_forked_process_ends_with_the_connection_that_asked_for_it(fork_servers):
    frames, child, _ = fork_servers.spawn()
    assert os.getpgid(child.pid) == child.pid
    frames.close()
    assert gone(child)


def test_who_asks_and_goes_at_once_leaves_nothing_behind(fork_servers):
    """The signal reaches processes that have hardly been forked."""
    fork_servers.warm()
    children = []
    for _ in range(20):
        frames, child, _ = fork_servers.spawn()
        frames.close()
        children.append(child)
    assert all(gone(child) for child in children)


def test_a_kept_process_outlives_the_connection_that_asked_for_it(fork_servers):
    frames, child, control = fork_servers.spawn()
    frames.send(msgspec.msgpack.encode(KeepRequest()))
    frames.close()
    again = fork_servers.connect()
    again.send(msgspec.msgpack.encode(SpawnRequest("")))
    assert replies(again) == [SpawnedReply(pid=0)]
    assert child.is_running()
    control.close()
    assert gone(child)


def test_the_end_of_a_process_is_told_with_its_exit_code_or_signal(fork_servers):
    frames, _, control = fork_servers.spawn()
    control.close()
    assert replies(frames) == [ExitedReply(code=1)]
    frames, child, _ = fork_servers.spawn()
    child.send_signal(signal.SIGKILL)
    assert replies(frames) == [ExitedReply(code=-9)]


def test_a_process_dies_with_its_fork_server(fork_servers):
    _, child, _ = fork_servers.spawn()
    fork_server = child.parent()
    fork_server.kill()
    assert gone(child)


def test_a_fork_server_that_was_killed_is_replaced_by_the_next_who_asks(fork_servers):
    _, child, _ = fork_servers.spawn()
    child.parent().kill()
    assert gone(child)
    _, other, _ = fork_servers.spawn()
    assert other.ppid() != child.pid
    assert other.is_running()


def test_a_fork_server_leaves_with_its_watched_process_and_ends_what_it_has_forked(fork_servers, watched_pid):
    _, child, _ = fork_servers.spawn()
    fork_server = child.parent()
    watched_pid.kill()
    assert gone(fork_server)
    assert gone(child)
    assert not fork_servers.path().exists()


def test_a_fork_server_with_two_watched_processes_stays_until_both_have_gone(fork_servers, watched_pid):
    _, child, _ = fork_servers.spawn()
    fork_server = child.parent()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        fork_server.wait_until_warm(
            fork_servers.owner, "tensorflow", fork_servers.import_environ(), dict(os.environ), other.pid
        )
        watched_pid.kill()
        watched_pid.wait()
        frames = fork_servers.connect()
        frames.send(msgspec.msgpack.encode(SpawnRequest("")))
        assert replies(frames) == [SpawnedReply(pid=0)]
        other.kill()
    assert gone(fork_server)


def test_an_import_that_fails_is_told_to_whoever_asks(fork_servers, tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise ImportError('libcudart.so.99: cannot open shared object file')\n")
    broken = {"PYTHONPATH": str(tmp_path)}
    with pytest.raises(ForkServerUnavailable, match=r"ImportError: libcudart.so.99: cannot open"):
        fork_servers.warm(**broken)
    frames = fork_servers.connect(**broken)
    frames.send(msgspec.msgpack.encode(SpawnRequest("child", b"")))
    (reply,) = replies(frames)
    assert isinstance(reply, FailedReply)
    assert "libcudart" in fork_servers.path(**broken).with_suffix(".log").read_text()


def test_a_python_that_cannot_start_is_told_with_its_last_words(fork_servers):
    with pytest.raises(ForkServerUnavailable, match=r"(?s)ended with status 1; its log .* ends: .*encodings"):
        fork_servers.connect(PYTHONHOME="/no/such/folder")


def test_who_talks_rubbish_is_dropped_and_others_are_served(fork_servers):
    frames = fork_servers.connect()
    frames.send(b"\xc1 rubbish")
    with pytest.raises(ConnectionClosed):
        frames.receive()
    fork_servers.warm()


def test_a_fork_server_retires_when_nobody_needs_it(tmp_path, watched_pid):
    path = tmp_path / "idle.sock"
    code = "from tfos_lab.node.forkserver.server import main; main()"
    options = ["--kind", "plain", "--socket", str(path), "--idle-s", "0.1"]
    subprocess.run([sys.executable, "-c", code, *options], check=True, cwd=Path.cwd())
    deadline = time.monotonic() + PATIENCE_S
    while path.exists() and time.monotonic() < deadline:
        select.select([], [], [], 0.05)
    assert not path.exists()


def test_what_must_stand_before_the_import_chooses_the_fork_server():
    environ = {"TF_X": "1", "KERAS_BACKEND": "jax", "LD_LIBRARY_PATH": "/x", "HOME": "/h", "TF_CONFIG": "{}"}
    assert fork_server.import_environ_of(environ, {"ANY": "2"}) == {
        "ANY": "2",
        "KERAS_BACKEND": "jax",
        "LD_LIBRARY_PATH": "/x",
        "TF_X": "1",
    }


def test_sockets_lie_in_a_folder_that_nobody_else_can_open(monkeypatch, short_folder):
    monkeypatch.setattr("tempfile.tempdir", str(short_folder))
    root = scratch_root()
    assert root.parent == short_folder
    assert root.stat().st_mode & 0o777 == 0o700
    root.chmod(0o755)
    with pytest.raises(ForkServerUnavailable, match="can be opened by others; remove it, or set TMPDIR"):
        scratch_root()


def test_a_deep_temporary_folder_does_not_break_unix_sockets(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("deep" * 30)))
    assert len(str(fork_server.socket_path("owner", "tensorflow", {}))) < 108


def test_who_was_dropped_in_a_round_is_not_read_in_the_same_one():
    from tfos_lab.node.forkserver.server import ForkServer, _Client
    from tfos_lab.transport.frames import FrameSocket

    ours, theirs = socket.socketpair()
    with theirs:
        fork_server = ForkServer.__new__(ForkServer)  # its signal handlers are not for this process
        fork_server._clients = set()
        client = _Client(FrameSocket(ours))
        client.frames.close()
        fork_server._read(client)
