"""What the doctor says of fork servers."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.support.fork_servers import wait_until_warm
from tfos_lab.engine.doctor import fork_servers
from tfos_lab.node.forkserver.client import ForkServerSpec
from tfos_lab.node.forkserver.health import ServerLog, ServerRecord, lock_path
from tfos_lab.node.forkserver.requests import FailedReply, SpawnedReply
from tfos_lab.transport.frames import FrameSocket

PATIENCE_S = 60.0


def test_without_fork_servers_the_first_cell_starts_them(monkeypatch, tmp_path):
    monkeypatch.setattr(fork_servers, "scratch_root", lambda: tmp_path)
    assert fork_servers.check_fork_servers().found == "none yet: the first cell starts them"


def test_a_fork_server_that_has_gone_is_not_counted(monkeypatch, tmp_path):
    monkeypatch.setattr(fork_servers, "scratch_root", lambda: tmp_path)
    (tmp_path / "owner").mkdir()
    (tmp_path / "owner" / "plain-1.sock").touch()
    assert fork_servers.check_fork_servers().found == "none yet: the first cell starts them"


@pytest.mark.parametrize(
    ("answers", "ok", "found"),
    [
        (["warm", "warm"], True, "2 plain warm"),
        (["importing", "gone"], True, "1 plain importing"),
        (["warm", "ImportError: no keras"], False, "cannot import: ImportError: no keras"),
        (["warm", "was stopped", "did not answer"], False, "the plain one was stopped, the plain one did not answer"),
    ],
)
def test_fork_servers_are_counted_by_state(answers, ok, found, monkeypatch, tmp_path):
    monkeypatch.setattr(fork_servers, "scratch_root", lambda: tmp_path)
    (tmp_path / "owner").mkdir()
    for number in range(len(answers)):
        (tmp_path / "owner" / f"plain-{number}.sock").touch()
    said = iter(answers)
    monkeypatch.setattr(fork_servers, "ask_fork_server", lambda _path: next(said))
    finding = fork_servers.check_fork_servers()
    assert (finding.ok, finding.found) == (ok, found)


@pytest.mark.parametrize(
    ("reply", "said"), [(SpawnedReply(pid=0), "warm"), (FailedReply("ImportError: no keras"), "ImportError: no keras")]
)
def test_a_fork_server_that_has_imported_everything_may_answer_late(reply, said, monkeypatch):
    monkeypatch.setattr(fork_servers, "_TIMEOUT_S", 0.0)
    monkeypatch.setattr(fork_servers, "_LATE_S", PATIENCE_S)

    def answer_late():
        frames = FrameSocket(listener.accept()[0])
        frames.available(PATIENCE_S)
        time.sleep(0.1)
        frames.send(msgspec.msgpack.encode(reply))
        frames.close()

    with tempfile.TemporaryDirectory(dir="/tmp") as folder, socket.socket(socket.AF_UNIX) as listener:
        path = Path(folder, "plain-1.sock")
        listener.bind(str(path))
        listener.listen()
        with lock_path(path).open("wb") as lock:
            ServerLog(lock.fileno()).warm()
        thread = threading.Thread(target=answer_late, daemon=True)
        thread.start()
        answer = fork_servers.ask_fork_server(path)
        thread.join(PATIENCE_S)
    assert answer == said


def test_a_real_fork_server_answers_that_it_is_warm_unless_it_is_stopped():
    fork_server = ForkServerSpec.plain(f"test-doctor {os.getpid()}", os.environ, os.getpid())
    wait_until_warm(fork_server)
    assert fork_servers.ask_fork_server(fork_server.socket_path) == "warm"
    server = psutil.Process(ServerRecord.read(fork_server.socket_path).pid)
    server.suspend()
    try:
        while server.status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)
        assert fork_servers.ask_fork_server(fork_server.socket_path) == "was stopped"
    finally:
        server.resume()
