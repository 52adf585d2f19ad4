"""One feed, from opening the nodes' endpoints to its end: success, failures, time-outs, and early ends."""

from __future__ import annotations

import threading

import pytest

from tests.engine.feed.fakes import (
    DONE,
    FAILED,
    NAMES,
    RESTARTING,
    RUNNING,
    STOPPED,
    STOPPING,
    FakeFrame,
    FakeGeneration,
)
from tfos_lab import messages as m
from tfos_lab.core.states import NodeState
from tfos_lab.engine.feed import job as job_module
from tfos_lab.engine.feed.job import FeedJob, GenerationLost
from tfos_lab.engine.feed.spark_job import ObjectRows
from tfos_lab.engine.state.cluster_state import LOST_AFTER_S, ORPHAN_PATIENCE_S
from tfos_lab.engine.state.events import NodeView
from tfos_lab.engine.state.instructions import Failure
from tfos_lab.errors import ClusterEnded, FeedError, FeedTimeout, NodeFailed
from tfos_lab.node.feed.object_rows import OBJECTS_SCHEMA


def run(cluster, act=None, **fields):
    """Run a feed; returns the feed and Spark's job."""
    frame = FakeFrame(act)
    feed = FeedJob(cluster, cluster.generation, frame.request(**fields), None).run()
    return feed, frame.jobs[0]


def aborted(cluster):
    """Return the reasons of the aborts that each node was sent."""
    return {rank: [each.reason for each in cluster.generation.sent_to(rank, m.FeedAborted)] for rank in NAMES}


# ---- success ------------------------------------------------------------------------------------------------------


def test_a_feed_ends_when_all_that_spark_produced_is_committed(cluster):
    feed, job = run(cluster, lambda job: job.store(2, leftover=1).store(1, leftover=1).succeed())
    assert (feed.state, feed.total_rows, feed.expected_partitions) == ("complete", 8, 2)
    assert [each.rows for each in cluster.generation.sent_to(1, m.FeedComplete)] == [4]
    assert not job.is_cancelled
    assert cluster.generation.failures == []


def test_nodes_are_asked_to_open_before_spark_begins_and_slots_are_freed_for_its_tasks(cluster):
    _, job = run(cluster, epochs=3, remainder="drop", spool_bytes=77)
    (opened,) = cluster.generation.sent_to(1, m.FeedOpen)
    assert (opened.epochs, opened.remainder, opened.spool_bytes, opened.schema) == (3, "drop", 77, "schema")
    assert job.plan.locations == {1: ["node 1"], 2: ["node 2"]}
    assert job.plan.token == opened.token
    assert cluster.generation.freed_slots == 1


def test_spark_s_forecast_is_shown_until_its_job_is_over(cluster):
    run(cluster)
    assert [event.total_partitions for event in cluster.generation.events] == [None, None, 7, 1]


# ---- failures -----------------------------------------------------------------------------------------------------


def test_a_job_of_spark_that_fails_fails_the_feed_and_the_nodes_with_its_cause(cluster):
    error = RuntimeError("Job aborted\nValueError: no such file\n\tat org.apache.spark")
    with pytest.raises(FeedError, match="Spark's job failed: ValueError: no such file") as raised:
        run(cluster, lambda job: job.fail(error))
    assert raised.value.__cause__ is error
    assert aborted(cluster) == {rank: [str(raised.value)] for rank in NAMES}
    assert cluster.generation.failures == [Failure("feed", "FeedError", str(raised.value))]


def test_a_node_that_fails_meanwhile_ends_the_feed_with_its_own_error(cluster):
    jobs = []

    def act(job):
        jobs.append(job)
        cluster.generation.state = FAILED

    with pytest.raises(NodeFailed, match="worker:0"):
        run(cluster, act)
    assert jobs[0].is_cancelled
    assert cluster.generation.failures == []
    assert all("worker:0" in reason for (reason,) in aborted(cluster).values())


@pytest.mark.parametrize(
    "text",
    ["FlightUnavailableError: connection refused", "tfos_lab.errors.NodeUnreachable: no way to the node from here"],
)
def test_a_node_whose_loss_is_reported_after_spark_s_job_has_failed_is_the_cause(cluster, monkeypatch, text):
    def sleep(_seconds):
        cluster.generation.state = FAILED

    monkeypatch.setattr(job_module.time, "sleep", sleep)
    with pytest.raises(NodeFailed):
        run(cluster, lambda job: job.fail(RuntimeError(text)))


def test_a_node_that_cannot_be_reached_is_waited_for_until_it_would_be_lost():
    assert max(LOST_AFTER_S, ORPHAN_PATIENCE_S) < job_module._LOSS_PATIENCE_S


def test_rows_that_were_lost_on_their_way_are_a_fault(cluster):
    with pytest.raises(FeedError, match="Spark produced 9 rows, 5 were committed: a fault of tfos_lab"):
        run(cluster, lambda job: job.store(2, leftover=1).succeed(more_rows=4))


@pytest.mark.parametrize("state", [STOPPED, STOPPING])
def test_a_cluster_that_is_stopped_ends_the_feed(cluster, state):
    def act(_job):
        cluster.generation.state = state

    with pytest.raises(ClusterEnded, match=state):
        run(cluster, act)


def test_a_node_that_is_lost_where_nodes_are_started_again_loses_the_generation(cluster):
    def act(_job):
        cluster.generation.state = RESTARTING

    with pytest.raises(GenerationLost, match="worker:0 was lost"):
        run(cluster, act)
    assert cluster.generation.failures == []


def test_an_interrupt_cancels_spark_s_job_and_aborts_the_feed(cluster):
    jobs = []

    def act(job):
        jobs.append(job)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(cluster, act)
    assert jobs[0].is_cancelled
    assert all(reason.startswith("cluster.train was interrupted") for (reason,) in aborted(cluster).values())


# ---- time-outs ----------------------------------------------------------------------------------------------------


def test_nodes_that_do_not_open_their_endpoints_time_out(cluster, monkeypatch):
    monkeypatch.setattr(job_module, "_OPEN_TIMEOUT_S", 0.01)
    cluster.generation.opens = False
    with pytest.raises(FeedTimeout, match=r"^chief:0, worker:0 did not open their endpoints for rows within 0.01 s"):
        run(cluster)


def test_a_feed_in_which_nothing_moves_times_out(cluster):
    with pytest.raises(FeedTimeout, match=r"nothing has moved for 0.02 s: .* raise feed_timeout"):
        run(cluster, lambda job: job.store(1), timeout_s=0.02)
    assert cluster.generation.failures[0].kind == "FeedTimeout"


def test_nodes_that_hear_of_the_end_of_a_feed_are_not_taken_for_its_cause(cluster, monkeypatch):
    generation, act, states = cluster.generation, cluster.generation._act, []

    def hear(rank, message):
        if isinstance(message, m.FeedAborted):
            states.append(generation.state)  # what the node reports from now on is a consequence
        act(rank, message)

    monkeypatch.setattr(generation, "_act", hear)
    with pytest.raises(FeedTimeout):
        run(cluster, lambda job: job.store(1), timeout_s=0.02)
    assert states == [FAILED, FAILED]


def test_a_feed_that_times_out_names_the_nodes_that_hold_rows_and_the_one_that_hangs(cluster):
    cluster.generation.cluster_state.views = [
        NodeView("chief:0", "chief", 0, is_chief=True, rows=3),
        NodeView("worker:0", "worker", 0, is_chief=False, hung="no step for 64 s"),
    ]
    with pytest.raises(FeedTimeout) as raised:
        run(cluster, lambda job: job.store(4), timeout_s=0.02)
    told = "Rows wait for chief:0 (has taken 3), worker:0 (has taken 0). worker:0 hangs: no step for 64 s"
    assert str(raised.value).endswith(f"(timeout_s of cluster.train). {told}")


def test_a_feed_that_times_out_fails_by_the_node_that_is_stuck_with_its_stacks(cluster):
    running = NodeState.RUNNING
    generation = cluster.generation
    generation.cluster_state.views = [
        NodeView("chief:0", "chief", 0, is_chief=True, state=running, rows=3),
        NodeView("worker:0", "worker", 0, is_chief=False, state=running, rows=1),
    ]
    generation.told = {
        0: m.Stacks(0, 1, m.Condition.IN_TENSORFLOW, "", place="train.py, line 2"),
        1: m.Stacks(1, 1, m.Condition.BUSY, "its stacks", place="train.py, line 7", call="sleep"),
    }
    with pytest.raises(FeedTimeout) as raised:
        run(cluster, lambda job: job.store(4), timeout_s=0.02)
    told = "Rows wait for chief:0 (has taken 3), worker:0 (has taken 1). worker:0 takes none: it is at train.py, line 7"
    assert str(raised.value).endswith(f". {told}, in sleep")
    [failure] = generation.failures
    assert (failure.node, failure.kind, failure.traceback) == ("worker:0", "FeedTimeout", "its stacks")


def test_rows_that_are_stored_and_never_committed_time_out(cluster):
    with pytest.raises(FeedTimeout, match=r"rows were stored but not committed within 0.01 s"):
        run(cluster, lambda job: job.store(1).succeed(more_partitions=1), timeout_s=0.01)


def test_nodes_that_never_show_whether_they_read_time_out(cluster):
    cluster.generation = FakeGeneration(lock_step=False)
    with pytest.raises(FeedTimeout, match=r"chief:0, worker:0 neither asked for rows nor began to serve within 0.01 s"):
        run(cluster, timeout_s=0.01)


# ---- rows that nobody wants ---------------------------------------------------------------------------------------


def test_a_node_that_returns_in_the_middle_ends_the_feed_early_with_a_note(cluster):
    def act(job):
        job.store(2, leftover=1)
        cluster.generation.returns(2)

    feed, job = run(cluster, act)
    assert job.is_cancelled
    assert (feed.state, feed.is_cut, feed.total_rows) == ("complete", True, 5)
    assert cluster.notes == ["the feed ended early, after 1 of its partitions, as worker:0 returned"]


def test_a_node_that_stops_the_feed_ends_it_early_without_a_note(cluster):
    def act(job):
        job.store(2, leftover=1)
        cluster.generation.receive(m.FeedStopped(rank=2))

    feed, job = run(cluster, act)
    assert job.is_cancelled
    assert (feed.is_cut, cluster.notes) == (True, [])


def test_tasks_that_find_no_node_as_all_have_returned_are_no_failure(cluster):
    def act(job):
        job.store(2, leftover=1).fail(RuntimeError("FlightUnavailableError"))
        cluster.generation.returns(1)
        cluster.generation.returns(2)

    feed, _ = run(cluster, act)
    assert feed.is_cut
    assert cluster.generation.failures == []


@pytest.mark.parametrize(("state", "text"), [(DONE, "done"), (RUNNING, r"half done \(worker:0 returned\)")])
def test_nodes_that_have_returned_are_fed_nothing(cluster, state, text):
    cluster.generation.returns(2)
    cluster.generation.state = state
    with pytest.raises(ClusterEnded, match=text):
        run(cluster)
    assert cluster.generation.sent_to(1, m.FeedOpen) == []


def test_nodes_that_all_serve_are_fed_nothing(cluster):
    cluster.generation = FakeGeneration(lock_step=False)
    for rank in NAMES:
        cluster.generation.receive(m.Progressed(rank=rank, state="serving"))
    with pytest.raises(FeedError, match="all nodes that train only serve others, and none reads rows"):
        run(cluster)


# ---- columns or objects -------------------------------------------------------------------------------------------


class Rdd:
    """Stands in for an RDD whose job stores five rows and ends well."""

    def __init__(self):
        self.act = lambda job: job.store(2, leftover=1).succeed()
        self.jobs = []


def as_nodes_ask(cluster):
    """Feed rows that can go as columns and as objects; return what the nodes were told of them."""
    frame, rdd = FakeFrame(), Rdd()
    FeedJob(cluster, cluster.generation, frame.request(objects=ObjectRows(rdd, None, "advice")), None).run()
    assert len(frame.jobs) + len(rdd.jobs) == 1
    opened = cluster.generation.sent_to(1, m.FeedOpen)[-1]
    assert opened.objects == bool(rdd.jobs)
    return opened.objects, opened.schema, opened.advice


def test_rows_that_can_be_both_go_as_the_nodes_asked_last(cluster):
    cluster.generation.receive(m.RowsWanted(rank=1, objects=True))
    assert as_nodes_ask(cluster) == (True, OBJECTS_SCHEMA, "advice")
    cluster.generation.receive(m.RowsWanted(rank=2, objects=False))
    assert as_nodes_ask(cluster) == (False, "schema", "")


def test_rows_that_can_be_both_go_as_columns_where_nodes_ask_for_any(cluster):
    cluster.generation.receive(m.RowsWanted(rank=1))
    assert as_nodes_ask(cluster)[0] is False


def test_rows_that_can_be_both_wait_until_a_node_asks(cluster):
    asking = threading.Timer(0.1, cluster.generation.receive, [m.RowsWanted(rank=1, objects=True)])
    asking.start()
    assert as_nodes_ask(cluster)[0] is True


def test_nodes_that_never_ask_are_named(cluster):
    request = FakeFrame().request(objects=ObjectRows(Rdd(), None, ""), timeout_s=0.05)
    with pytest.raises(FeedTimeout, match=r"chief:0, worker:0 neither asked for rows .* ctx\.data_feed"):
        FeedJob(cluster, cluster.generation, request, None).run()


def test_nodes_that_return_without_asking_have_read_nothing(cluster):
    cluster.generation.returns(1)
    with pytest.raises(FeedError, match="no node has read any row of what this cluster was fed"):
        as_nodes_ask(cluster)


def test_rows_of_one_kind_wait_for_nobody(cluster):
    request = FakeFrame().request(frame=None, objects=ObjectRows(Rdd(), None, "advice"), queue="side")
    FeedJob(cluster, cluster.generation, request, None).run()
    (opened,) = cluster.generation.sent_to(1, m.FeedOpen)
    assert (opened.objects, opened.queue) == (True, "side")
