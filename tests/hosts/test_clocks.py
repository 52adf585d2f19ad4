"""Hosts whose clocks are two minutes apart: one ahead of the driver's, one behind."""

from __future__ import annotations

import time

import pytest

from tests.hosts.functions import answer_rows, take_rows, told_to_end, work_until_told, write_files
from tests.hosts.host import HostPlan, fake_clock

pytestmark = [
    pytest.mark.minutes,
    pytest.mark.timeout(600),
    pytest.mark.skipif(fake_clock() is None, reason="the clocks' tests need libfaketime (apt-get install faketime)"),
]

PATIENCE_S = 240
HOSTS = (HostPlan(clock="-60s"), HostPlan(clock="+60s"))


def tell_time(args, ctx):
    return time.time()


def test_the_clocks_are_apart(run):
    said = sorted(dict(run(tell_time, cluster_size=2).wait(timeout_s=PATIENCE_S)).values())
    assert 100 < said[1] - said[0] < 140


def test_no_node_is_lost_and_rows_arrive(run, rig, session):
    with told_to_end(*rig.hosts):
        cluster = run(work_until_told, cluster_size=2)
        time.sleep(5)
        assert [node.state for node in cluster.nodes] == ["running", "running"]
    cluster.wait(timeout_s=PATIENCE_S)
    fed = run(take_rows, cluster_size=2)
    fed.train(session.sparkContext.parallelize(range(100), 4), objects=True)
    told = dict(fed.wait(timeout_s=PATIENCE_S))
    assert sorted(row for said in told.values() for row in said["rows"]) == list(range(100))
    with run(answer_rows, cluster_size=2) as answering:
        assert len(answering.inference(session.sparkContext.parallelize(range(100), 4)).collect()) == 100


def test_event_files_come_home(run, tmp_path):
    hosts = dict(run(write_files, cluster_size=2).wait(timeout_s=PATIENCE_S))
    events = [path.name for path in tmp_path.rglob("events.out.tfevents.*")]
    assert events == [f"events.out.tfevents.1.{hosts['chief:0']}"]
