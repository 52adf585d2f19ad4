"""Hosts that go for good, with restarts; and a host whose disk is full."""

import threading
import time

import pytest

from tests.hosts.functions import take_rows
from tests.hosts.host import HostPlan
from tfos_lab.errors import TfosError

pytestmark = [pytest.mark.minutes, pytest.mark.timeout(600)]

PATIENCE_S = 240
HOSTS = (HostPlan(), HostPlan(), HostPlan(disk="64m"))
SPARK = {
    "spark.network.timeout": "30s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "5s",
}
RIG = {"options": {"spark.worker.timeout": "20"}}


def wait_for_another_start(args, ctx):
    """Return only in a later start: how many restarts there were, and the rows."""
    if ctx.restart == 0:
        threading.Event().wait()
    return ctx.restart, take_rows(args, ctx)


def test_a_disk_that_is_full_is_named_with_its_host(run, rig, session):
    full = rig.hosts[2]
    cluster = run(take_rows, cluster_size=6)
    full.run("bash", "-c", "head -c 200M /dev/zero >/tmp/large || true")
    rows = session.sparkContext.parallelize(range(3000), 6).map(lambda row: (row, b"x" * 5000))
    try:
        told = r"on h3, a partition does not fit onto the disk under the node's spool in \S+, which has [\d.]+ MB left"
        with pytest.raises(TfosError, match=told):
            cluster.train(rows, objects=True)
    finally:
        full.run("rm", "/tmp/large")
    cluster.stop()
    again = run(take_rows, cluster_size=6)
    again.train(session.sparkContext.parallelize(range(60), 6), objects=True)
    told = dict(again.wait(timeout=PATIENCE_S))
    assert sorted(row for said in told.values() for row in said["rows"]) == list(range(60))


def test_nodes_start_again_on_the_hosts_that_are_left(run, rig, session):
    log_dir = str(rig.folder / "shared" / "events")
    cluster = run(wait_for_another_start, cluster_size=3, restarts=3, start_timeout=PATIENCE_S, log_dir=log_dir)
    cluster.train(session.sparkContext.parallelize(range(60), 6), objects=True)
    gone = next(host for host in rig.hosts if host.nodes())
    started = time.monotonic()
    with gone.wire.cut():
        told = dict(cluster.wait(timeout=PATIENCE_S))
        print(f"again after {time.monotonic() - started:.0f} s", cluster.view().notes)  # noqa: T201
    assert gone.name not in {said["host"] for _, said in told.values()}
    assert sorted(row for _, said in told.values() for row in said["rows"]) == list(range(60))
