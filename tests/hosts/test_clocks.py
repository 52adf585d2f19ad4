"""Hosts whose clocks are two minutes off, ahead of the driver's and behind it: nothing fails, and times are right."""

from __future__ import annotations

import shutil
import time

import pytest

from tests.hosts.functions import answer_rows, take_rows, write_files
from tests.hosts.host import HostPlan

pytestmark = [
    pytest.mark.minutes,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        shutil.which("cc") is None, reason="clocks that are off need a C compiler (apt-get install gcc)"
    ),
]

PATIENCE_S = 240
AHEAD_S = {"h1": 120, "h2": -120}
HOSTS = tuple(HostPlan(ahead_s=seconds) for seconds in AHEAD_S.values())


def tell_the_time(args, ctx):
    """Report some steps, write a line, and return the host's clock."""
    import socket

    for step in range(5):
        ctx.report(step, loss=1.0)
        time.sleep(0.1)
    print("has worked")  # noqa: T201
    return socket.gethostname(), time.time()


def test_what_nodes_report_has_the_driver_s_time(run):
    called_s = time.time()
    cluster = run(tell_the_time, cluster_size=4)
    told = dict(cluster.wait(timeout=PATIENCE_S))
    ended_s = time.time()
    for host, clock_s in told.values():
        assert called_s < clock_s - AHEAD_S[host] < ended_s  # the clocks are off, indeed
    frame = cluster.metrics
    assert set(frame["node"]) == set(told)
    assert frame["time"].between(0.0, ended_s - called_s).all(), frame
    assert all("has worked" in cluster.logs(node) for node in told)


def test_rows_answers_and_files_travel_between_such_hosts(run, session, tmp_path):
    cluster = run(take_rows, cluster_size=4)
    cluster.train(session.sparkContext.parallelize(range(1000), 8), objects=True)
    told = dict(cluster.wait(timeout=PATIENCE_S))
    assert sorted(row for said in told.values() for row in said["rows"]) == list(range(1000))
    assert {said["host"] for said in told.values()} == set(AHEAD_S)
    with run(answer_rows, cluster_size=2) as answering:
        answers = answering.inference(session.sparkContext.parallelize(range(200), 4)).collect()
    assert [answer[1] for answer in answers] == [2 * row for row in range(200)]
    run(write_files, cluster_size=4, collect="all").wait(timeout=PATIENCE_S)
    assert {path.name for path in tmp_path.rglob("from-*.txt")} == {"from-h1.txt", "from-h2.txt"}
    assert len(list(tmp_path.rglob("events.out.tfevents.*"))) == 1


def test_a_node_that_works_is_not_taken_for_one_that_hangs(run):
    def work(args, ctx):
        for step in range(25):
            ctx.report(step)
            time.sleep(0.2)
        return "done"

    cluster = run(work, cluster_size=4, hang_timeout=30.0, on_hang="fail")
    assert set(dict(cluster.wait(timeout=PATIENCE_S)).values()) == {"done"}
