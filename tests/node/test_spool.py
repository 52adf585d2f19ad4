"""The folder of rows: how large it may grow, who waits for space, and how nodes of one host share its disk.

Tasks store rows with nodes' stores; tests are their drivers, and their children, which read the rows.
"""

import os
import socket
import threading
import time

import pyarrow as pa
import pytest

from tests.node.feeding import SCHEMA, in_thread
from tests.support.eventually import PATIENCE_S
from tfos_lab.core import messages as m
from tfos_lab.errors import FeedError
from tfos_lab.node.feed.store import FeedStore
from tfos_lab.node.feed.task import PartitionSender
from tfos_lab.node.feed.wire import FeedPlan

BYTES = SCHEMA.replace("long", "binary")


class Node:
    """A node's store, and what its driver and its child do."""

    def __init__(self, root, name, *, limit=0, epochs=1):
        self.scratch = root / f"{name}-{os.getpid()}"
        self.scratch.mkdir()
        told, self._ready = [], []
        self.store = FeedStore("127.0.0.1", self.scratch, told.append, self._ready.append)
        self.store.handle(m.FeedOpen(0, epochs, "pad", BYTES, "t", spool_bytes=limit))
        self._plan = FeedPlan(0, "t", {0: told[0].locations[:1]}, BYTES)

    def store_rows(self, partition, size):
        """Store a row of this size in one task; return its file."""
        with PartitionSender(self._plan, partition, "a") as sender:
            sender.send(pa.RecordBatch.from_pydict({"x": [b"x" * size]}))
            sender.commit()
        self.store.handle(m.Commit(feed=0, partition=partition, attempt="a", rows=1, shapes={"x": []}))
        return next(ready.path for ready in self._ready if f"/0-{partition}-" in getattr(ready, "path", ""))

    def read(self, path):
        self.store.on_child_message(m.SegmentRead(path=path))

    def files(self):
        return sorted(path.name for path in (self.scratch / "spool").iterdir())


@pytest.fixture
def node(small_disk):
    """A function that makes a node on a disk of 3 MB: ``node(name, limit=0, epochs=1)``."""
    nodes = []

    def node(name="c-0", **options):
        nodes.append(Node(small_disk, name, **options))
        return nodes[-1]

    yield node
    for each in nodes:
        each.store.close()


def test_rows_that_were_read_are_removed_only_when_space_is_needed(node):
    alone = node(limit=110_000)
    first, _ = alone.store_rows(1, 60_000), alone.store_rows(2, 40_000)
    alone.read(first)
    assert alone.files() == ["0-1-a.arrow", "0-2-a.arrow"]
    alone.store_rows(3, 20_000)
    assert alone.files() == ["0-2-a.arrow", "0-3-a.arrow"]


def test_a_task_with_more_rows_waits_until_some_were_read(node):
    alone = node(limit=100_000)
    first = alone.store_rows(1, 80_000)
    late, done = in_thread(lambda: alone.store_rows(2, 80_000))
    assert not done
    alone.read(first)
    late.join(PATIENCE_S)
    assert alone.files() == ["0-2-a.arrow"]


def test_a_partition_that_is_larger_than_the_limit_is_stored_whole(node):
    alone = node(limit=100_000)
    alone.store_rows(1, 200_000)
    assert alone.files() == ["0-1-a.arrow"]


@pytest.mark.parametrize(("epochs", "why"), [(1, "are shuffled"), (3, "are read 3 times")])
def test_rows_that_are_needed_again_or_all_at_once_have_to_fit(node, epochs, why):
    alone = node(limit=100_000, epochs=epochs)
    alone.store_rows(1, 80_000)
    if epochs == 1:
        alone.store.on_child_message(m.DatasetOpened(0, 4, None, shuffle=True))
    with pytest.raises(FeedError, match=f"do not fit into the node's spool of 0.0001 GB .* {why}.*spool_bytes"):
        alone.store_rows(2, 80_000)


# ---- nodes of one host ----------------------------------------------------------------------------------------------


def test_without_a_limit_rows_take_most_of_what_the_disk_has_free(node):
    first = node("c-0", epochs=2)
    first.store_rows(1, 1_800_000)
    node("another-0", epochs=2).store_rows(1, 300_000)
    with pytest.raises(FeedError, match=r"do not fit into the node's spool of 0\.00\d* GB in .*, and have to"):
        first.store_rows(2, 300_000)


def test_a_partition_that_the_disk_cannot_hold_is_refused_before_it_is_full(node):
    told = rf"on {socket.gethostname()}, a partition does not fit onto the disk .* MB left; cut the rows into more"
    with pytest.raises(FeedError, match=told):
        node().store_rows(2, 3_300_000)


def test_a_node_without_rows_waits_for_space_that_another_takes(node):
    first, second = node("c-0"), node("c-1")
    held = first.store_rows(1, 2_300_000)
    waiting, done = in_thread(lambda: second.store_rows(2, 900_000))
    assert not done
    first.read(held)
    first.store_rows(2, 300_000)
    waiting.join(PATIENCE_S)
    assert second.files() == ["0-2-a.arrow"]


def test_nodes_on_one_small_disk_store_more_than_it_holds_without_filling_it(node):
    """8 MB of rows go to each; one node reads slowly, and waits for the rows that it has not read."""
    errors = []

    def work(rank):
        own, stored, paths = node(f"c-{rank}"), threading.Semaphore(0), []

        def store():
            try:
                for number in range(80):
                    paths.append(own.store_rows(number, 100_000))
                    stored.release()
            except (FeedError, OSError) as error:
                errors.append(error)
                stored.release()

        task = threading.Thread(target=store, daemon=True)
        task.start()
        for number in range(80):
            assert stored.acquire(timeout=PATIENCE_S)
            if errors:
                return
            time.sleep(0.002 * rank)
            own.read(paths[number])
        task.join(PATIENCE_S)

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert errors == []
