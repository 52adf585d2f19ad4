"""Rows on their way to a node's spool: written by a task on the node's host, sent by Flight from another."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest

from tfos_lab import messages as m
from tfos_lab.errors import FeedError
from tfos_lab.node.feed.flight_endpoint import PutTicket
from tfos_lab.node.feed.node_writer import NodeWriter
from tfos_lab.node.feed.plan import Connection, connect
from tfos_lab.node.feed.store import FeedStore

OPEN = m.FeedOpen(feed=0, epochs=2, remainder="pad", schema="{}", token="t")
TICKET = PutTicket("t", 0, 3, "a")
ROWS = pa.RecordBatch.from_pydict({"x": [1, 2, 3]})


@pytest.fixture
def store(short_folder):
    store = FeedStore(5, "127.0.0.1", short_folder, lambda _message: None, lambda _message: None)
    store.handle(OPEN)
    yield store
    store.close()


@pytest.fixture
def connection(store, short_folder):
    connection = connect([f"grpc+unix://{short_folder}/feed"], None)
    yield connection
    connection.client.close()


def write_all(writer, batches):
    for batch in batches:
        writer.write(batch)
    writer.close()


def spooled(folder):
    (path,) = (folder / "spool").iterdir()
    with pa.memory_map(str(path)) as file:
        return path.name, pa.ipc.open_file(file).read_all().to_pydict()


def test_a_task_on_the_node_s_host_learns_where_the_spool_is(connection, short_folder):
    assert connection.spool == short_folder / "spool"


@pytest.mark.parametrize("beside", [True, False])
def test_both_ways_lead_to_the_same_file(store, connection, short_folder, beside):
    writer = NodeWriter(connection if beside else Connection(connection.client, None), TICKET, ROWS.schema)
    write_all(writer, [ROWS, ROWS.slice(1, 1)])
    store.pump()
    assert spooled(short_folder) == ("0-3-a.arrow", {"x": [1, 2, 3, 2]})
    assert store._stored == {(0, 3): {"a": short_folder / "spool" / "0-3-a.arrow"}}


@pytest.mark.parametrize("beside", [True, False])
def test_rows_that_do_not_fit_are_refused_with_the_node_s_error(store, connection, short_folder, beside):
    store.handle(msgspec.structs.replace(OPEN, feed=1, spool_bytes=30))
    writer = NodeWriter(connection if beside else Connection(connection.client, None), TICKET, ROWS.schema)
    with pytest.raises(Exception, match="do not fit into the node's spool"):
        write_all(writer, [ROWS] * 10)
    assert not list((short_folder / "spool").iterdir())


def test_a_spool_that_the_task_cannot_write_is_named(connection, short_folder):
    (short_folder / "spool").rmdir()
    with pytest.raises(FeedError, match=r"the node's spool in .*/spool cannot be written: .*No such file"):
        NodeWriter(connection, TICKET, ROWS.schema)
