"""Fork servers that outlive kernels: who finds them, what does not go from one kernel to the next, and how they end."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.support.fake_nodes import in_background
from tests.support.kernels import Kernels, told
from tfos_lab.core.processes import state_of
from tfos_lab.core.runtime_files import scratch_root
from tfos_lab.engine import warm_servers
from tfos_lab.engine.warm_servers import WarmServer, describe, end_warm_servers
from tfos_lab.node.forkserver import health
from tfos_lab.node.forkserver.health import ServerLog, ServerRecord
from tfos_lab.node.forkserver.requests import FailedReply
from tfos_lab.transport.frames import ConnectionClosed, FrameSocket

PATIENCE_S = 60

# Runs a node, which says what it has inherited, and looks at its agent meanwhile.
_INHERITED = """
def inherited(args, ctx):
    import os, resource, time
    from pathlib import Path
    status = Path("/proc/self/status").read_text()
    found = {
        "parent": os.getppid(),
        "secret": os.environ.get("SECRET"),
        "umask": next(line.split()[1] for line in status.splitlines() if line.startswith("Umask:")),
        "limit": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "first_environ": "SECRET" in Path("/proc/self/environ").read_text(),
    }
    while not Path(args).exists():
        time.sleep(0.02)
    return found

from tfos_lab.core.runtime_files import scratch_root
cluster = run(inherited, "go")
[plain] = [server for server in warm_servers() if server.kind == "plain"]
[folder] = scratch_root().glob(f"{cluster.id}-*")
agent = folder.name.rpartition("-")[2]
agent_state = {"cwd": os.readlink(f"/proc/{agent}/cwd"), "is_user": os.getpid() in plain.users}
Path("go").touch()
[found] = dict(cluster.wait()).values()
tell({**found, **agent_state, "servers": servers()})
"""
_LOWER_LIMIT = """
import resource
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (soft // 2, hard))
"""
_RUNS = """
cluster = run(lambda args, ctx: __import__("os").getppid())
tell([servers(), dict(cluster.wait())["chief:0"]])
"""
_WAITS = """
cluster = run(lambda args, ctx: __import__("threading").Event().wait())
tell([servers(), [node.pid for node in cluster.nodes]])
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def kernels():
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        kernels = Kernels(Path(folder))
        yield kernels
        kernels.close()


def wait_until_gone(pids):
    until = time.monotonic() + PATIENCE_S
    while left := [pid for pid in pids if state_of(pid) not in ("", "Z", "X")]:
        assert time.monotonic() < until, left
        time.sleep(0.05)


def test_a_second_kernel_finds_the_first_ones_fork_servers_and_nothing_else_of_it(kernels, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    one = kernels.outcome(_INHERITED, cwd=first, umask=0o022, SECRET="of the first")
    other = kernels.outcome(_LOWER_LIMIT + _INHERITED, cwd=second, umask=0o027)
    assert one["servers"] == other["servers"]
    assert one["parent"] == other["parent"] == one["servers"]["tensorflow"]
    assert (one["secret"], other["secret"]) == ("of the first", None)
    assert not one["first_environ"]
    assert (one["umask"], other["umask"]) == ("0022", "0027")
    assert (one["limit"], other["limit"]) == (limit, limit // 2)
    assert (one["cwd"], other["cwd"]) == (str(first), str(second))
    assert one["is_user"]
    assert other["is_user"]


def test_when_a_kernel_is_killed_its_nodes_end_and_the_fork_servers_stay(kernels):
    with kernels.start(_WAITS) as kernel:
        servers, children = told(kernel)
        agents = [child.pid for child in psutil.Process(servers["plain"]).children()]
        assert agents
        kernel.kill()
    wait_until_gone([*agents, *children])
    assert kernels.outcome("tell(servers())") == servers


def test_two_kernels_that_start_one_at_the_same_moment_share_it(kernels):
    kernels.outcome("from tfos_lab.engine.warm_servers import end_warm_servers; tell(end_warm_servers())")
    with kernels.start(_RUNS) as one, kernels.start(_RUNS) as other:
        (_, one_parent), (servers, other_parent) = told(one), told(other)
    assert one_parent == other_parent == servers["tensorflow"]
    assert len(kernels.records()) == 2


def test_a_stopped_one_is_replaced_told_in_the_cell_and_the_run_goes_on(kernels):
    [before, _] = kernels.outcome(_RUNS)
    for pid in before.values():
        os.kill(pid, signal.SIGSTOP)
    code = _RUNS + "from tfos_lab.engine.cluster import runtime_of; tell(list(runtime_of(cluster).history.notes))"
    with kernels.start(code) as kernel:
        after, parent = told(kernel)
        notes = told(kernel)
    assert parent == after["tensorflow"]
    assert not set(before.values()) & set(after.values())
    assert [note for note in notes if "fork server" in note] == [
        f"TensorFlow's fork server (process {before['tensorflow']}) was stopped: it has been replaced by another one",
        f"the agents' fork server (process {before['plain']}) was stopped: it has been replaced by another one",
    ]
    wait_until_gone(before.values())


def test_those_that_nodes_run_on_are_not_ended_and_all_others_are(kernels):
    end = "from tfos_lab.engine.warm_servers import end_warm_servers; tell(end_warm_servers())"
    with kernels.start(_WAITS) as kernel:
        servers, _ = told(kernel)
        refused = kernels.outcome(end)
        kernel.kill()
    assert f"plain (process {servers['plain']}: 1 processes run that were forked from it)" in refused
    assert refused.startswith("not ended: plain")
    wait_until_ended(kernels, servers)
    assert kernels.outcome(end) == "no fork server that outlives its kernel runs"


def wait_until_ended(kernels, servers):
    """End the fork servers as soon as nothing runs on them."""
    until = time.monotonic() + PATIENCE_S
    while left := [child for pid in servers.values() for child in psutil.Process(pid).children()]:
        assert time.monotonic() < until, left  # of those that have ended, too: they count until they are reaped
        time.sleep(0.05)
    done = kernels.outcome("from tfos_lab.engine.warm_servers import end_warm_servers; tell(end_warm_servers())")
    assert done == f"ended: plain (process {servers['plain']}), tensorflow (process {servers['tensorflow']})"
    wait_until_gone(servers.values())


def test_a_kernel_of_its_own_leaves_no_fork_server(kernels):
    before = kernels.records()  # of other tests, which may have left some for all kernels
    pids = kernels.outcome(
        "import psutil\ncluster = run(lambda args, ctx: __import__('os').getppid())\n"
        "tell(list(dict(cluster.wait()).values()))",
        TFOS_LAB_FORK_SERVER="kernel",
    )
    wait_until_gone(pids)
    wait_until_gone([record.pid for path, record in kernels.records().items() if path not in before])  # the plain one


def test_one_that_outlives_kernels_ends_when_it_has_been_idle(kernels, tmp_path):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        path = Path(folder) / "idle.sock"
        code = "from tfos_lab.node.forkserver.main import main; main()"
        options = ["--kind", "plain", "--socket", str(path), "--idle-s", "0.1", "--outlives"]
        subprocess.run([sys.executable, "-c", code, *options], check=True, env=kernels.environ)
        until = time.monotonic() + PATIENCE_S
        while path.exists():
            assert time.monotonic() < until
            time.sleep(0.05)


@pytest.fixture
def ended(monkeypatch):
    """Give a function that plays a fork server which is asked to end; returns what is said, and who is killed."""
    killed = []
    monkeypatch.setattr(ServerRecord, "kill", lambda record: killed.append(record.pid))  # it is this process
    monkeypatch.setattr(warm_servers, "_END_S", 0.1)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.setattr("tempfile.tempdir", folder)
        path = scratch_root() / "user-played" / "plain-0.sock"
        path.parent.mkdir()
        lock = os.open(path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR)
        log = ServerLog(lock)
        listener.bind(str(path))
        listener.listen()

        def ended(serve):
            def play():
                connection = FrameSocket(listener.accept()[0])
                with connection, contextlib.suppress(ConnectionClosed):
                    connection.receive()
                    serve(connection, path)

            playing = in_background(play)
            said = end_warm_servers()
            playing.join(PATIENCE_S)
            return said, killed

        yield ended, log
        os.close(lock)


def test_one_that_is_only_late_is_not_killed(ended):
    ended, log = ended
    log.warm()

    def answer_late(connection, _path):
        time.sleep(1)
        connection.send(msgspec.msgpack.encode(FailedReply(reason="2 processes run")))

    said = f"not ended: plain (process {os.getpid()}: 2 processes run); stop the clusters first"
    assert ended(answer_late) == (said, [])


def test_one_that_ends_what_nodes_have_left_is_not_killed(ended, monkeypatch):
    ended, log = ended
    log.warm()
    monkeypatch.setattr(health, "_SILENT_S", 0.1)
    monkeypatch.setattr(health, "_LATE_S", 0.1)

    def end_late(_connection, path):
        path.unlink()
        time.sleep(1)

    assert ended(end_late) == (f"ended: plain (process {os.getpid()})", [])


@pytest.mark.parametrize("is_warm", [True, False], ids=["hangs", "imports"])
def test_one_that_hangs_or_imports_is_killed(ended, monkeypatch, is_warm):
    ended, log = ended
    if is_warm:
        log.warm()
        monkeypatch.setattr(health, "_SILENT_S", 0.1)
        monkeypatch.setattr(health, "_LATE_S", 0.1)
    began_s = time.monotonic()
    said, killed = ended(lambda connection, _path: connection.receive())  # until the other end is closed
    assert time.monotonic() - began_s < warm_servers._LATE_S
    assert said == f"ended: plain (process {os.getpid()})"
    assert killed == [os.getpid()]


def test_each_is_described_in_a_line():
    ours = os.getpid()
    servers = [
        WarmServer("plain", 7, age_s=30, warm_s=0.4, memory_bytes=40 << 20, processes=2, users=(ours, 9)),
        WarmServer("tensorflow", 8, age_s=200, warm_s=0, memory_bytes=0),
    ]
    assert describe(servers).splitlines() == [
        f"plain       process 7, warm, 30 s old, 40 MiB, 2 processes run on it, used by kernel {ours} (this one), 9",
        "tensorflow  process 8, importing, 3 min old, 0 MiB, 0 processes run on it, used by no kernel",
    ]
