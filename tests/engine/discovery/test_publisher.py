"""A cluster as other processes see it: its cluster record, Stop, and TensorBoard while it runs and afterwards."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time

import msgspec
import psutil
import pytest

import tfos_lab
from tests.support import leftovers
from tests.support.quick import QUICK_ENV
from tests.support.unix_http import PATIENCE_S, fetch, fetch_until, write_events
from tfos_lab.core import cluster_records
from tfos_lab.core.recorded_cluster import RecordedFigures
from tfos_lab.engine.cluster import runtime_of
from tfos_lab.engine.state.events import TensorBoardStatus

pytestmark = pytest.mark.leaves_nothing


@pytest.fixture(autouse=True)
def runtime(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "runs"))


@pytest.fixture
def run():
    clusters = []

    def run(map_fun, args=None, **options):
        options = {"local": "processes", "env": QUICK_ENV, **options}
        clusters.append(tfos_lab.run(map_fun, args, **options))
        return clusters[-1]

    yield run
    for cluster in clusters:
        cluster.stop(grace_s=0.0)
        runtime_of(cluster).publisher.close()


def until(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def stay(args, ctx):
    if ctx.is_chief:
        write_events(ctx.log_dir, loss=[1.0, 0.5])
    threading.Event().wait(args)


def tensorboards():
    """Return the TensorBoard processes of this test run; others may run beside it."""
    return {process for process in psutil.process_iter(["name"]) if _is_ours(process)}


def _is_ours(process):
    try:
        run = leftovers._RUN_VARIABLE
        return process.info["name"] == "tfos tensorboar" and process.environ().get(run) == os.environ[run]
    except psutil.Error:
        return False  # it has just ended


def test_tensorboard_is_there_while_the_cluster_runs_and_afterwards(run):
    cluster = run(stay, cluster_size=2, tensorboard=True)
    unix_server = runtime_of(cluster).publisher.tensorboard_socket
    assert cluster.view().tensorboard.state in ("starting", "ready")
    assert b"<title>TensorBoard</title>" in fetch_until(unix_server, "/", b"</html>")
    assert cluster.view().tensorboard == TensorBoardStatus("ready")
    assert len(fetch(unix_server, "/index.js")[1]) > 1_000_000
    fetch_until(unix_server, "/data/runs", b".")
    assert cluster_records.find(cluster.id).tensorboard == unix_server
    cluster.stop(grace_s=0.0)
    assert fetch_until(unix_server, "/data/plugin/scalars/tags", b"loss")
    until(lambda: not cluster_records.find(cluster.id).lives)


def test_an_idle_tensorboard_ends_and_is_started_again(run, monkeypatch):
    monkeypatch.setattr("tfos_lab.engine.tensorboard.server.IDLE_S", 0.1)
    cluster = run(stay, 0, tensorboard=True)
    cluster.wait(PATIENCE_S)
    unix_server = runtime_of(cluster).publisher.tensorboard_socket
    before = tensorboards()
    fetch_until(unix_server, "/", b"</html>")
    until(lambda: not tensorboards() - before)
    fetch_until(unix_server, "/data/plugin/scalars/tags", b"loss")


def test_a_tensorboard_that_died_is_reported_and_its_folder_is_shown_from_here(run, monkeypatch):
    before = tensorboards()
    cluster = run(lambda args: threading.Event().wait(args), 600, tensorboard=True)
    unix_server = runtime_of(cluster).publisher.tensorboard_socket
    fetch_until(unix_server, "/", b"</html>")
    [tensorboard] = tensorboards() - before
    os.kill(tensorboard.pid, signal.SIGKILL)
    page = fetch_until(unix_server, "/", b"its process ended with code -9", status=503)
    assert cluster.view().tensorboard == TensorBoardStatus("gone", "its process ended with code -9")
    assert b"holds no event files" in page
    write_events(cluster.run_dir / "events", loss=[1.0])
    fetch_until(unix_server, "/data/plugin/scalars/tags", b"loss")


def test_event_files_of_a_folder_that_is_not_shared_are_copied_here(run, tmp_path, monkeypatch):
    far = tmp_path / "far"
    # The nodes are on this machine; pretend that it does not see their folder.
    monkeypatch.setattr("tfos_lab.engine.tensorboard.event_files._sees", lambda _path: False)
    cluster = run(stay, 0, tensorboard=True, log_dir=str(far), cluster_size=2)
    cluster.wait(PATIENCE_S)
    cluster.stop()
    written = [path.name for path in far.iterdir()]
    assert len(written) == 1, "the probe is gone"
    far.rename(tmp_path / "gone")
    home = cluster.run_dir / "events"
    assert [path.name for path in home.iterdir()] == written
    assert runtime_of(cluster).publisher.log_dir == str(home)
    assert any("1 brought from the chief's host" in note for note in cluster.view().notes)
    fetch_until(runtime_of(cluster).publisher.tensorboard_socket, "/data/plugin/scalars/tags", b"loss")


def test_event_files_in_a_shared_folder_stay_there(run, tmp_path):
    cluster = run(stay, 0, log_dir=str(tmp_path / "near"))
    cluster.wait(PATIENCE_S)
    cluster.stop()
    assert runtime_of(cluster).publisher.log_dir == str(tmp_path / "near")
    assert cluster.view().notes == ()
    assert not (cluster.run_dir / "events").exists()


def test_the_control_socket_stops_the_cluster_while_the_main_thread_waits(run):
    cluster = run(stay, 600, name="busy")
    until(lambda: cluster_records.find(cluster.id) is not None and cluster_records.find(cluster.id).state == "running")
    record = cluster_records.find(cluster.id)
    assert (record.name, record.launcher, [node.state for node in record.nodes]) == ("busy", "local", ["running"])
    with socket.socket(socket.AF_UNIX) as visitor:
        visitor.connect(record.control)
        visitor.sendall(b"nonsense\n")
        assert visitor.recv(10) == b""
    assert not cluster.ended
    with socket.socket(socket.AF_UNIX) as visitor:
        visitor.connect(record.control)
        visitor.sendall(b"stop\n")
        assert visitor.recv(100) == b"stopping\n"
    with pytest.raises(tfos_lab.errors.ClusterEnded):
        cluster.wait(PATIENCE_S)
    until(lambda: cluster_records.find(cluster.id) is None)


def test_the_record_follows_steps_and_metrics(run, monkeypatch):
    monkeypatch.setattr("tfos_lab.engine.discovery.publisher._FIGURES_S", 0.1)
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/train.ipynb")

    def report(args, ctx):
        for step in (1, 2):
            ctx.report(step=step, total_steps=9, loss=1 / step)
        threading.Event().wait(args)

    cluster = run(report, 600)
    until(lambda: cluster_records.find(cluster.id).figures.value == 0.5)
    record = cluster_records.find(cluster.id)
    figures = msgspec.structs.replace(record.figures, seconds_left=None)
    assert figures == RecordedFigures(2, 9, "loss", 0.5, progress=pytest.approx(2 / 9))
    [node] = record.nodes
    assert (node.step, node.metrics, node.pid) == (2, {"loss": 0.5}, cluster.nodes[0].pid)
    assert record.notebook == "/home/train.ipynb"


def test_a_record_that_is_made_while_the_cluster_is_closed_is_not_written(run, monkeypatch):
    cluster = run(stay)
    publisher, make = runtime_of(cluster).publisher, type(runtime_of(cluster).publisher)._record
    until(lambda: cluster_records.find(cluster.id).state == "running")
    cluster.stop(grace_s=0.0)

    def make_while_it_is_closed(publisher):
        record = make(publisher)
        publisher.close()
        return record

    monkeypatch.setattr(type(publisher), "_record", make_while_it_is_closed)
    publisher.publish()
    assert cluster_records.find(cluster.id) is None


def test_without_a_runtime_folder_the_cluster_runs_all_the_same(run, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("tfos_lab.engine.discovery.publisher._warned", False)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "file"))
    clusters = [run(stay, 600, name=name, tensorboard=True) for name in ("one", "two")]
    for cluster in clusters:
        assert cluster.view().tensorboard is None, "nothing would answer at its address"
        assert cluster.tensorboard_url.startswith("http://127.0.0.1:"), "the Jupyter server would not find it"
        fetch_until(runtime_of(cluster).publisher.tensorboard_socket, "/", b"</html>")
        cluster.stop()
        assert cluster.state == "stopped"
    warnings = [
        record.getMessage() for record in caplog.records if record.name == "tfos_lab.engine.discovery.publisher"
    ]
    assert len(warnings) == 1
    assert "not listed in JupyterLab's panel" in warnings[0]


def test_a_cluster_without_tensorboard_has_no_url(run):
    assert run(lambda: 1).tensorboard_url is None


def test_a_kernel_of_a_server_with_our_extension_gives_its_address_and_opens_no_port(run, tmp_path, monkeypatch):
    monkeypatch.setenv("JPY_PARENT_PID", str(os.getpid()))
    monkeypatch.setenv("JUPYTERHUB_SERVICE_PREFIX", "/user/alice/")
    monkeypatch.setattr(
        "tfos_lab.engine.tensorboard.http_server.bind_sockets", lambda *_: pytest.fail("a port was opened")
    )
    cluster_records.announce_server()
    cluster = run(lambda: 1, tensorboard=True)
    assert cluster.tensorboard_url == f"/user/alice/tfos-lab/tb/{cluster.id}/"
    assert runtime_of(cluster).publisher.link is None


def test_tensorboard_is_back_after_a_restart(run):
    def once():
        threading.Event().wait(600)

    cluster = run(once, tensorboard=True, restarts=1)
    unix_server = runtime_of(cluster).publisher.tensorboard_socket
    fetch_until(unix_server, "/", b"</html>")
    before = runtime_of(cluster).generation.tunnel
    assert before.ready
    os.kill(cluster.nodes[0].pid, signal.SIGKILL)
    until(lambda: runtime_of(cluster).generation.number == 1 and runtime_of(cluster).generation.tunnel.ready)
    assert not before.ready
    assert b"<title>TensorBoard</title>" in fetch_until(unix_server, "/", b"</html>")
