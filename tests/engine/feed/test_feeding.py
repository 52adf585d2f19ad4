"""All feeds of a cluster: in order, once for each generation of nodes, and with one end."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.engine.feed.fakes import FAILED, RESTARTING, FakeFrame, FakeGeneration
from tfos_lab import messages as m
from tfos_lab.engine.feed.feeding import Feeding
from tfos_lab.engine.feed.spark_job import ObjectRows
from tfos_lab.errors import FeedError, NodeFailed


@pytest.fixture
def feeding(cluster):
    return Feeding(cluster)


def feeds_of(generation):
    """Return the epochs of the feeds that a generation was given; tests tell feeds apart by them."""
    return [opened.epochs for opened in generation.sent_to(1, m.FeedOpen)]


def test_feeds_come_one_after_the_other(cluster, feeding):
    for epochs in (1, 2):
        feeding.feed(FakeFrame().request(epochs=epochs))
    assert feeds_of(cluster.generation) == [1, 2]
    assert cluster.generation.feeds == 2


def test_calls_of_train_are_numbered(feeding):
    assert [feeding.next_source() for _ in range(3)] == [0, 1, 2]


def test_nodes_that_are_started_again_between_feeds_are_given_the_earlier_ones_first(cluster, feeding):
    feeding.feed(FakeFrame().request(epochs=1))
    cluster.generation = FakeGeneration(1)
    feeding.feed(FakeFrame().request(epochs=2))
    assert feeds_of(cluster.generation) == [1, 2]
    assert cluster.generation.caught_up


def test_a_feed_whose_node_is_lost_is_fed_again_to_the_next_generation(cluster, feeding):
    first, second = cluster.generation, FakeGeneration(1)
    cluster.generations = [second]

    def act(job):
        if cluster.generation is first:
            first.state = RESTARTING
        else:
            job.store(1).succeed()

    feeding.feed(FakeFrame(act).request(epochs=5))
    assert (feeds_of(first), feeds_of(second)) == ([5], [5])
    assert (first.feeds, second.feeds) == (0, 1)


def test_a_cluster_that_has_failed_is_fed_nothing(cluster, feeding):
    cluster.generation.state = FAILED
    with pytest.raises(NodeFailed):
        feeding.feed(FakeFrame().request())
    assert feeds_of(cluster.generation) == []


def test_a_feed_that_fails_leaves_the_lock_free(cluster, feeding):
    with pytest.raises(FeedError):
        feeding.feed(FakeFrame(lambda job: job.fail(RuntimeError("no"))).request())
    assert not feeding.lock.locked()


def test_nodes_that_have_been_fed_everything_are_sent_the_end(cluster, feeding):
    feeding.feed(FakeFrame().request())
    feeding.end()
    assert len(cluster.generation.sent_to(1, m.FeedsEnded)) == 1


def test_the_end_waits_for_nodes_that_have_not_caught_up(cluster, feeding):
    feeding.feed(FakeFrame().request())
    cluster.generation = FakeGeneration(1)
    feeding.end()
    assert cluster.generation.sent_to(1, m.FeedsEnded) == []
    feeding.catch_up(cluster.generation)
    assert len(cluster.generation.sent_to(1, m.FeedsEnded)) == 1


def test_the_end_waits_for_streams(cluster, feeding):
    stream = SimpleNamespace(is_over=False)
    feeding.streams.append(stream)
    feeding.end()
    assert cluster.generation.sent_to(1, m.FeedsEnded) == []
    stream.is_over = True
    feeding.pass_on_end(cluster.generation)
    assert len(cluster.generation.sent_to(1, m.FeedsEnded)) == 1


def test_inline_rows_that_can_be_both_are_fed_once_the_function_asks_and_later_ones_follow(cluster, feeding):
    generation = cluster.generation
    generation.launcher.traits.runs_inline = True
    rows = ObjectRows(FakeFrame(), None, "")
    feeding.feed(FakeFrame().request(epochs=1, objects=rows))
    feeding.feed(FakeFrame().request(epochs=2))
    feeding.end()
    assert feeds_of(generation) == []
    generation.receive(m.RowsWanted(rank=1, objects=True))
    feeding.settle()
    assert [(opened.epochs, opened.objects) for opened in generation.sent_to(1, m.FeedOpen)] == [(1, True), (2, False)]
    assert len(generation.sent_to(1, m.FeedsEnded)) == 1


def test_inline_rows_that_nobody_asked_for_are_told_at_the_end(cluster, feeding):
    cluster.generation.launcher.traits.runs_inline = True
    feeding.feed(FakeFrame().request(objects=ObjectRows(FakeFrame(), None, "")))
    for rank in (1, 2):
        cluster.generation.returns(rank)
    with pytest.raises(FeedError, match="no node has read any row"):
        feeding.settle()


def test_nodes_on_this_machine_need_no_certificate(cluster, feeding):
    assert feeding.identities(cluster.generation) is None
