"""`TFNode`: paths, batches from a manager's queues or from the node's feed, and the helpers that are void now."""

from __future__ import annotations

import getpass
import socket
import uuid
from types import SimpleNamespace

import pytest

from tests.compat.support import FakeContext
from tfos_lab.compat import TFManager, TFNode, marker
from tfos_lab.compat.node_manager import NodeManager
from tfos_lab.errors import ConfigError

USER = getpass.getuser()


@pytest.mark.parametrize(
    ("default_fs", "path", "expected"),
    [
        ("file://", "hdfs://foo/bar", "hdfs://foo/bar"),
        ("hdfs://", "viewfs://foo/bar", "viewfs://foo/bar"),
        ("viewfs://", "file://foo/bar", "file://foo/bar"),
        ("file://", "gs://bucket/bar", "gs://bucket/bar"),
        ("file://", "/foo/bar", "file:///foo/bar"),
        ("hdfs://", "/foo/bar", "hdfs:///foo/bar"),
        ("hdfs://nn:8020", "/foo/bar", "hdfs://nn:8020/foo/bar"),
        ("hdfs://nn:8020/", "/foo/bar", "hdfs://nn:8020/foo/bar"),
        ("viewfs://", "/foo/bar", "viewfs:///foo/bar"),
        ("s3a://bucket", "/foo/bar", "s3a://bucket/foo/bar"),
        ("file://", "foo/bar", "file:///work/here/foo/bar"),
        ("hdfs://", "foo/bar", f"hdfs:///user/{USER}/foo/bar"),
        ("viewfs://nn", "foo/bar", f"viewfs://nn/user/{USER}/foo/bar"),
        ("s3a://bucket", "foo/bar", "s3a://bucket/foo/bar"),
    ],
)
def test_a_path_is_returned_in_full(default_fs, path, expected):
    ctx = type("Context", (), {"defaultFS": default_fs, "working_dir": "/work/here"})
    assert TFNode.hdfs_path(ctx, path) == expected


# ---- rows from a manager's queues -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def manager():
    with TFManager.start(uuid.uuid4().bytes, ["input", "output"]) as running:
        yield running


@pytest.fixture
def put(manager):
    manager.set("state", "running")

    def put(*items):
        for item in items:
            manager.get_queue("input").put(item)

    return put


END = marker.EndPartition()


def test_batches_are_of_the_size_asked_for_until_the_end(manager, put):
    put(*range(10), None)
    feed = TFNode.DataFeed(manager)
    assert [feed.next_batch(2), feed.next_batch(4)] == [[0, 1], [2, 3, 4, 5]]
    assert not feed.should_stop()
    assert not feed.done_feeding
    assert feed.next_batch(10) == [6, 7, 8, 9]
    assert feed.should_stop()
    assert feed.done_feeding
    assert feed.next_batch(10) == []
    feed.queue_in.join()  # all of them are marked as done


def test_a_partition_ends_a_batch_only_when_not_training(manager, put):
    put(1, 2, END, 3, END, None)
    assert TFNode.DataFeed(manager, True).next_batch(10) == [1, 2, 3]
    put(END, 1, 2, END, 3, None)
    feed = TFNode.DataFeed(manager, False)
    assert [feed.next_batch(10), feed.next_batch(10)] == [[1, 2], [3]]


def test_columns_go_to_tensors_by_their_sorted_names(manager, put):
    put(("a", 1), ("b", 2), None)
    feed = TFNode.DataFeed(manager, input_mapping={"text": "words", "label": "y"})
    assert feed.input_tensors == ["y", "words"]
    assert feed.next_batch(5) == {"y": ["a", "b"], "words": [1, 2]}


def test_results_are_put_into_the_output_queue(manager):
    TFNode.DataFeed(manager, False).batch_results([1, "two"])
    queue = manager.get_queue("output")
    assert [queue.get(), queue.get()] == [1, "two"]


def test_terminate_sets_the_state_and_drops_what_is_in_the_queue(manager, put):
    put(*range(20), END)
    feed = TFNode.DataFeed(manager)
    feed.next_batch(2)
    feed.terminate()
    assert str(manager.get("state")) == "'terminating'"
    assert manager.get_queue("input").empty()
    assert feed.should_stop()
    feed.queue_in.join()


# ---- rows from the node's own feed ----------------------------------------------------------------------------------


def test_on_a_node_rows_come_from_its_feed():
    context = FakeContext({"input": [1, 2, 3], "extra": ["x"]})
    manager = NodeManager(context, ["input", "output", "error", "extra"])
    feed = TFNode.DataFeed(manager)
    assert [feed.next_batch(2), feed.done_feeding, feed.next_batch(2)] == [[1, 2], False, [3]]
    assert feed.should_stop()
    assert TFNode.DataFeed(manager, qname_in="extra").next_batch(5) == ["x"]
    feed.batch_results([7])
    assert context.results == [7]
    feed.terminate()
    assert str(manager.get("state")) == "'terminating'"
    assert context.stopped


def test_a_batch_size_may_be_numpys():
    import numpy as np

    feed = TFNode.DataFeed(NodeManager(FakeContext({"input": [1, 2, 3]}), ["input"]))
    assert feed.next_batch(np.int64(2)) == [1, 2]


def test_a_queue_that_the_cluster_lacks_is_refused():
    manager = NodeManager(FakeContext({}), ["input", "output"])
    with pytest.raises(ConfigError) as refused:
        TFNode.DataFeed(manager, qname_in="images")
    assert str(refused.value) == (
        "qname_in='images': this cluster has no such queue; name it in TFCluster.run(queues=[...]), which has "
        "['input', 'output']"
    )


# ---- the rest -------------------------------------------------------------------------------------------------------


def test_releasing_the_port_closes_its_socket():
    ctx = SimpleNamespace(tmp_socket=socket.socket())
    ctx.tmp_socket.bind(("127.0.0.1", 0))
    held = ctx.tmp_socket
    TFNode.release_port(ctx)
    assert ctx.tmp_socket is None
    assert held.fileno() == -1


def test_releasing_no_port_warns(caplog):
    TFNode.release_port(SimpleNamespace(tmp_socket=None))
    assert "nothing to release" in caplog.text


@pytest.mark.parametrize(
    "call",
    [
        lambda: TFNode.start_cluster_server(None),
        lambda: TFNode.export_saved_model(None, "", "", {}),
        lambda: TFNode.next_batch(None, 1),
        lambda: TFNode.batch_results(None, []),
        lambda: TFNode.terminate(None),
    ],
)
def test_helpers_that_tensorflow_2_has_made_void_say_so(call):
    with pytest.raises(Exception, match="DEPRECATED"):
        call()
