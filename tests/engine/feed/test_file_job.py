"""A feed of files on the driver: which nodes look at what, what each is dealt, and how it fails."""

from __future__ import annotations

import pytest

from tests.engine.feed.fakes import FakeGeneration
from tests.support.data_files import rows, write_parquet, write_records
from tfos_lab import messages as m
from tfos_lab.engine.feed.file_job import FileJob
from tfos_lab.engine.feed.files.source import find_rows
from tfos_lab.engine.feed.request import FeedRequest
from tfos_lab.errors import FeedError, FeedTimeout


class FindingGeneration(FakeGeneration):
    """Nodes that find files, and count three records in each; or say what is wrong."""

    problem, answers = "", True

    def _act(self, rank, message):
        super()._act(rank, message)
        if isinstance(message, m.FilesAsked) and self.answers:
            blocks = {number: [(0, 3)] if message.count else [] for number in message.numbers}
            problem = self.problem if rank == 2 else ""
            self.receive(
                m.FilesFound(rank=rank, feed=message.feed, blocks=blocks, done=True, problem=problem, host="far")
            )


@pytest.fixture
def fed(cluster):
    """Feed files to a cluster; returns the feed and the cluster's nodes."""

    def feed(files, **fields):
        cluster.generation = fields.pop("generation", None) or FindingGeneration()
        request = FeedRequest(None, 2, "exact", fields.pop("timeout_s", 10.0), files=files, **fields)
        return FileJob(cluster, cluster.generation, request, None).run(), cluster.generation

    return feed


@pytest.fixture
def records(tmp_path):
    for name in "ab":
        write_records(tmp_path / f"{name}.tfrecord", rows(0, 3))
    return find_rows(str(tmp_path), None, None, lambda: None)


def test_records_are_counted_by_the_nodes_and_dealt_equally(fed, records):
    feed, nodes = fed(records, spool_bytes=7)
    assert (feed.state, feed.rows, feed.total_partitions, len(feed.committed)) == ("complete", {1: 3, 2: 3}, 2, 2)
    assert [nodes.sent_to(rank, m.FilesAsked)[0].numbers for rank in (1, 2)] == [[0], [1]]
    (share,) = nodes.sent_to(2, m.FilesDealt)
    assert [(part.number, part.pieces) for part in share.parts] == [(1, [(0, 0, 3)])]
    assert (share.rows, share.format, share.spool_bytes, share.shapes["x"]) == (3, "tfrecord", 7, [3])
    assert nodes.freed_slots == 0


def test_what_was_counted_is_not_counted_again(fed, records):
    fed(records)
    _, nodes = fed(records)
    assert [asked.count for asked in nodes.sent_to(1, m.FilesAsked)] == [False]


def test_steps_are_planned_as_soon_as_the_rows_are_dealt(fed, tmp_path):
    path = write_parquet(tmp_path / "a.parquet", rows(0, 9))
    generation = FindingGeneration()
    for rank in (1, 2):
        generation.receive(m.DatasetOpened(rank=rank, dataset_id=0, batch_size=2, remainder=None))
    _, nodes = fed(find_rows(path, None, None, lambda: None), generation=generation)
    assert [plan.steps for plan in nodes.sent_to(1, m.EpochPlan)] == [3]


def test_a_node_that_does_not_find_a_file_fails_the_feed_and_is_named(fed, records):
    generation = FindingGeneration()
    generation.problem = "/a: it is gone"
    with pytest.raises(FeedError, match=r"^worker:0 on far: /a: it is gone$"):
        fed(records, generation=generation)
    assert [failure.message for failure in generation.failures] == ["worker:0 on far: /a: it is gone"]
    assert generation.sent_to(1, m.FeedAborted)


def test_nodes_that_find_nothing_in_time_fail_the_feed(fed, records):
    generation = FindingGeneration()
    generation.answers = False
    with pytest.raises(FeedTimeout, match=r"chief:0, worker:0 found no file for 0\.05 s"):
        fed(records, generation=generation, timeout_s=0.05)


def test_a_feed_that_nobody_wants_ends_early(fed, records, cluster):
    generation = FindingGeneration()
    generation.answers = False
    open_feed = generation._act

    def stop_when_asked(rank, message):
        open_feed(rank, message)
        if isinstance(message, m.FilesAsked):
            generation.receive(m.FeedStopped(rank=rank))

    generation._act = stop_when_asked
    feed, _ = fed(records, generation=generation)
    assert (feed.state, feed.is_cut, feed.total_rows) == ("complete", True, 0)
