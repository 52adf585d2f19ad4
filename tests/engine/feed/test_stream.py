"""A stream's micro-batches: each one a feed that is done when it has been read, and the end of the query."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from tests.engine.feed.fakes import FAILED, NODE_RUNNING, RESTARTING, FakeFrame, FakeGeneration
from tests.support.fake_nodes import until
from tfos_lab import messages as m
from tfos_lab.engine.feed import micro_batches
from tfos_lab.engine.feed import stream as stream_module
from tfos_lab.engine.feed.feeding import Feeding
from tfos_lab.engine.feed.stream import StreamFeed
from tfos_lab.errors import ClusterEnded

PATIENCE_S = 60.0


class FakeQuery:
    """Stands in for Spark's query; it commits what a micro-batch's function has returned from."""

    def __init__(self):
        self.isActive = True
        self.error = None
        self.committed = -1
        latest = SimpleNamespace(isDefined=lambda: self.committed >= 0, get=lambda: self.committed)
        log = SimpleNamespace(getLatestBatchId=lambda: latest)
        self._jsq = SimpleNamespace(streamingQuery=lambda: SimpleNamespace(commitLog=lambda: log))

    def stop(self):
        self.isActive = False

    def exception(self):
        return self.error


class Rig:
    """A stream of a fake cluster; the test calls as Spark would."""

    def __init__(self, cluster):
        self.cluster, self.query = cluster, FakeQuery()
        frame = FakeFrame()
        frame.writeStream = self
        self.stream = StreamFeed(cluster, Feeding(cluster), frame.request(stream=True))
        for _rank in range(3):
            cluster.generation.cluster_state.views.append(SimpleNamespace(state=NODE_RUNNING))

    def foreachBatch(self, function):  # noqa: N802 - Spark's name
        self.function = function
        return self

    def option(self, _name, _value):
        return self

    def start(self):
        return self.query

    def batch(self, number, frame=None):
        self.function(frame or FakeFrame(), number)
        self.query.committed = number


@pytest.fixture
def rig(cluster, monkeypatch):
    for module in (stream_module, micro_batches):
        monkeypatch.setattr(module, "STEP_S", 0.001)
    rig = Rig(cluster)
    rig.stream.start("checkpoint")
    yield rig
    rig.query.stop()
    rig.stream.join(PATIENCE_S)


def test_each_micro_batch_is_a_feed_that_is_part_of_a_stream(rig):
    rig.batch(0)
    rig.batch(1)
    assert [opened.stream for opened in rig.cluster.generation.sent_to(1, m.FeedOpen)] == [True, True]
    assert rig.stream.is_active


def test_a_micro_batch_that_spark_repeats_is_fed_once(rig):
    rig.batch(0)
    rig.batch(0)
    assert len(rig.cluster.generation.sent_to(1, m.FeedOpen)) == 1


def test_a_micro_batch_is_done_when_all_nodes_have_read_it(rig):
    rig.cluster.generation.reads_streams = False
    thread = threading.Thread(target=rig.batch, args=(0,), daemon=True)
    thread.start()
    until(lambda: rig.cluster.generation.sent_to(2, m.FeedComplete))
    for rank in (1, 2):
        thread.join(0.02)
        assert thread.is_alive()
        rig.cluster.generation.receive(m.FeedRead(rank=rank, feed=0))
    thread.join(PATIENCE_S)
    assert rig.query.committed == 0


def test_a_node_that_wants_no_more_ends_the_query(rig):
    rig.batch(0)
    rig.cluster.generation.receive(m.FeedStopped(rank=1))
    rig.stream.join(PATIENCE_S)
    assert rig.stream.is_over
    assert not rig.query.isActive
    with pytest.raises(ClusterEnded):
        rig.batch(1)


def test_after_stop_no_micro_batch_is_fed(rig):
    rig.batch(0)
    rig.stream.stop(timeout_s=PATIENCE_S)
    assert not rig.stream.is_active
    with pytest.raises(ClusterEnded, match="ending"):
        rig.batch(1)


def test_a_query_that_fails_fails_the_cluster(rig):
    rig.batch(0)
    rig.query.error = RuntimeError("ValueError: no such topic")
    rig.query.stop()
    rig.stream.join(PATIENCE_S)
    rig.cluster.generation.has_failed.wait(PATIENCE_S)
    (failure,) = rig.cluster.generation.failures
    assert "ValueError: no such topic" in failure.message
    assert rig.cluster.state == FAILED


def test_a_stream_without_rows_shows_its_columns_in_the_end(rig):
    rig.query.stop()
    rig.stream.join(PATIENCE_S)
    assert len(rig.cluster.generation.sent_to(1, m.FeedOpen)) == 1


def test_a_micro_batch_whose_node_is_lost_is_fed_to_the_next_generation(rig):
    first, second = rig.cluster.generation, FakeGeneration(1)
    second.cluster_state.views = first.cluster_state.views
    rig.cluster.generations = [second]

    def act(job):
        if rig.cluster.generation is first:
            first.state = RESTARTING
        else:
            job.store(1).succeed()

    rig.batch(0, FakeFrame(act))
    assert len(second.sent_to(1, m.FeedOpen)) == 1
