"""Fork servers that are stopped, hang, or have lost their socket: they are replaced, and the user is told."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace

import psutil
import pytest

from tests.support.fork_servers import PATIENCE_S, wait_until_warm
from tests.support.quick import QUICK_ENV
from tfos_lab.node.forkserver import health
from tfos_lab.node.forkserver.client import ForkServerConnection, ForkServerSpec
from tfos_lab.node.forkserver.health import ServerLog, ServerRecord, Watch, start_of
from tfos_lab.node.forkserver.requests import SpawnedReply
from tfos_lab.node.forkserver.server import Endpoint, ForkServer, Lifetime
from tfos_lab.transport.frames import ConnectionClosed, frame_pair

# Holds the lock and listens, as a fork server does, but never answers.
_HANGING = """
import fcntl, os, socket, sys, time
from tfos_lab.node.forkserver import health
lock = os.open(sys.argv[1][:-5] + ".lock", os.O_CREAT | os.O_RDWR, 0o600)
fcntl.flock(lock, fcntl.LOCK_EX)
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
log = health.ServerLog(lock)
health.time.monotonic = lambda: time.perf_counter() - 1000
log.warm()
print(flush=True)
sys.stdin.read()
"""


@pytest.fixture
def told():
    """What is said of fork servers."""
    return []


@pytest.fixture
def spec(told, request):
    """A quick fork server, which ends with this process."""
    owner = f"{request.node.name}-{os.getpid()}"
    spec = ForkServerSpec.tensorflow(owner, dict(os.environ), os.getpid(), QUICK_ENV)
    yield replace(spec, tell=told.append)
    if record := ServerRecord.read(spec.socket_path):
        os.kill(record.pid, signal.SIGCONT)
        record.kill()


def stop(process):
    """Stop a process, and wait until it is."""
    process.suspend()
    while process.status() != psutil.STATUS_STOPPED:
        time.sleep(0.005)


def test_a_record_says_which_process_it_is_and_that_it_works(spec):
    wait_until_warm(spec)
    record = ServerRecord.read(spec.socket_path)
    assert record.started == start_of(record.pid)
    assert record.warm_s > 0
    assert record.symptom == ""


def test_a_record_of_a_process_that_is_gone_counts_for_nothing(tmp_path):
    lock = os.open(tmp_path / "x.lock", os.O_CREAT | os.O_RDWR)
    ServerLog(lock).beat()
    os.close(lock)
    record = ServerRecord.read(tmp_path / "x.sock")
    assert record.pid == os.getpid()
    assert not record._replace(started=record.started - 1).is_alive
    record._replace(started=record.started - 1).kill()  # another process has the pid now
    (tmp_path / "x.lock").write_bytes(b"half")
    assert ServerRecord.read(tmp_path / "x.sock") is None


@pytest.mark.parametrize("is_warm", [True, False], ids=["warm", "maybe importing"])
def test_a_stopped_fork_server_is_replaced_and_told(spec, told, is_warm):
    if is_warm:
        wait_until_warm(spec)
    else:
        spec.warm()
    stopped = psutil.Process(ServerRecord.read(spec.socket_path).pid)
    stop(stopped)
    wait_until_warm(spec)
    stopped.wait(PATIENCE_S)
    assert told == [
        f"TensorFlow's fork server (process {stopped.pid}) was stopped: it has been replaced by another one"
    ]
    assert ServerRecord.read(spec.socket_path).pid != stopped.pid


@pytest.fixture
def _patient(monkeypatch):
    """A fork server may be stopped for longer than a busy machine delays what goes on with it, or kills it."""
    monkeypatch.setattr(health, "_PATIENCE_S", 30.0)


@pytest.mark.usefixtures("_patient")
def test_a_fork_server_that_is_killed_while_it_is_asked_has_a_successor(spec):
    wait_until_warm(spec)
    before = psutil.Process(ServerRecord.read(spec.socket_path).pid)
    stop(before)
    threading.Timer(0.3, before.kill).start()
    spec.warm()
    assert ServerRecord.read(spec.socket_path).pid != before.pid


def test_a_connection_to_a_fork_server_that_is_gone_is_not_taken_for_one_that_still_imports(tmp_path, monkeypatch):
    monkeypatch.setattr(health, "_PATIENCE_S", 0.0)
    frames, other_end = frame_pair()
    other_end.close()
    with ForkServerConnection(frames) as connection, pytest.raises(ConnectionClosed):
        Watch(tmp_path / "x.sock").wait_for_answer(connection.ask_status, connection.replies)


@pytest.mark.usefixtures("_patient")
def test_a_fork_server_that_goes_on_soon_is_not_replaced(spec, told):
    wait_until_warm(spec)
    server = psutil.Process(ServerRecord.read(spec.socket_path).pid)
    stop(server)
    with subprocess.Popen(["/bin/sh", "-c", f"sleep 0.3; kill -CONT {server.pid}"]):
        wait_until_warm(spec)
    assert told == []
    assert server.is_running()


def test_a_fork_server_that_hangs_is_replaced(spec, told):
    command = [sys.executable, "-c", _HANGING, str(spec.socket_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as hanging:
        hanging.stdout.readline()
        wait_until_warm(spec)
        assert hanging.wait(PATIENCE_S) == -signal.SIGKILL
    assert told == [
        f"TensorFlow's fork server (process {hanging.pid}) did not answer: it has been replaced by another one"
    ]


def test_a_fork_server_without_its_socket_is_replaced(spec, told):
    wait_until_warm(spec)
    lost = psutil.Process(ServerRecord.read(spec.socket_path).pid)
    spec.socket_path.unlink()
    wait_until_warm(spec)
    lost.wait(PATIENCE_S)
    assert told == [
        f"TensorFlow's fork server (process {lost.pid}) had lost its socket: it has been replaced by another one"
    ]


def test_a_client_that_connects_as_a_fork_server_ends_is_served(tmp_path):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "x.sock"))
    listener.listen()
    fork_server = ForkServer.__new__(ForkServer)  # without its signal handlers
    fork_server._listener, fork_server._path, _ = Endpoint(listener, tmp_path / "x.sock", -1)
    with listener, ForkServerConnection.open(tmp_path / "x.sock"):
        assert not fork_server._withdraw()
        with ForkServerConnection.open(tmp_path / "x.sock"):
            listener.accept()[0].close()
        listener.accept()[0].close()
        assert fork_server._withdraw()
    assert list(tmp_path.iterdir()) == []


def test_a_fork_server_that_outlives_its_users_stays_until_it_is_idle():
    fork_server = ForkServer.__new__(ForkServer)
    fork_server._clients, fork_server._watched_pids, fork_server._askers = set(), {}, []
    fork_server._had_watched_pid, fork_server._last_use = True, float("inf")
    fork_server._lifetime = Lifetime(outlives=True)
    assert not fork_server._is_over()
    fork_server._last_use = float("-inf")
    assert fork_server._is_over()


def test_a_fork_server_is_asked_for_a_reply_that_it_gives_when_it_is_warm(spec):
    spec.wait_until_warm()
    with spec.connect() as connection:
        connection.ask_if_warm()
        assert connection.replies(PATIENCE_S) == [SpawnedReply(pid=0)]
