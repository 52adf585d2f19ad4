"""An inference that fails in the middle, over a real Flight connection: how the call ends, what the task is told."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pyarrow as pa
import pytest

from tfos_lab import messages as m
from tfos_lab.errors import FeedError
from tfos_lab.node.feed.exchanges import Exchanges
from tfos_lab.node.feed.flight_endpoint import FlightEndpoint
from tfos_lab.node.feed.inference_task import InferencePlan, _TaskExchange
from tfos_lab.node.feed.spool import Spool

ROWS = pa.record_batch({"x": [1, 2, 3]})
SCHEMA = '{"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": true, "metadata": {}}]}'
PATIENCE_S = 60


@pytest.fixture
def node(tmp_path):
    """A node whose function is the test: what the child is sent, and which calls have ended with a reader in use."""
    spool = Spool(tmp_path / "spool")
    spool.open(0, epochs=1)
    loop = threading.Lock()

    def post(call):
        with loop:
            call()

    node = SimpleNamespace(to_child=[], got_rows=threading.Event(), ended=threading.Event(), still_reading=None)

    def send_to_child(message):
        node.to_child.append(message)
        if isinstance(message, m.ExchangeRows):
            node.got_rows.set()

    node.exchanges = Exchanges(spool.folder, post, send_to_child, lambda _message: None, rank=1)

    def serve(*call):
        try:
            node.exchanges.serve(*call)
        finally:
            node.still_reading = [thread for thread in threading.enumerate() if thread.name == "tfos-exchange"]
            node.ended.set()

    nothing = SimpleNamespace(on_stored=lambda *_: None, on_commit=lambda *_: None)
    location = f"grpc+unix://{tmp_path}/socket"
    endpoint = FlightEndpoint(
        location, None, spool, on_stored=nothing.on_stored, on_commit=nothing.on_commit, on_exchange=serve
    )
    endpoint.tokens = {"token"}
    thread = threading.Thread(target=endpoint.wait)
    thread.start()
    node.plan = InferencePlan(schema=SCHEMA, asked=[0], names=["x"], token="token", locations={1: [location]})
    yield node
    endpoint.shutdown()
    thread.join()
    spool.close()


def results_of(node):
    with pytest.raises(FeedError) as raised:
        list(_TaskExchange(node.plan, 0).run(iter([ROWS])))
    return str(raised.value)


def test_a_node_that_has_returned_says_so_and_one_that_leaves_is_as_good_as_gone(node):
    node.exchanges.child_returned()
    assert "the node's function has returned before it gave all results" in results_of(node)
    node.exchanges.end_feeds()
    assert "the cluster has to live until then" in results_of(node)


def test_a_node_that_leaves_and_handles_nothing_any_more_is_as_good_as_gone(node):
    node.exchanges.close()
    assert "the cluster has to live until then" in results_of(node)


def test_a_node_that_leaves_after_a_failure_tells_that(node):
    node.exchanges.fail("chief:0: ValueError: enough")
    node.exchanges.close()
    assert "chief:0: ValueError: enough" in results_of(node)


def test_a_call_that_fails_ends_when_nothing_reads_its_rows_any_more(node):
    goes_on = threading.Event()

    def batches():
        yield ROWS
        goes_on.wait(PATIENCE_S)  # Spark computes further rows meanwhile
        yield ROWS

    def run():
        with pytest.raises(FeedError) as raised:
            list(_TaskExchange(node.plan, 0).run(batches()))
        told.append(str(raised.value))

    told = []
    task = threading.Thread(target=run)
    task.start()
    try:
        assert node.got_rows.wait(PATIENCE_S)
        node.exchanges.fail("it has run out of luck")
        assert node.ended.wait(PATIENCE_S), "it does not wait for rows that Spark is still to compute"
        assert node.still_reading == []
    finally:
        goes_on.set()
        task.join(PATIENCE_S)
    assert "it has run out of luck" in told[0]
    assert not any(isinstance(message, m.ExchangeEnded) for message in node.to_child), "its rows were not all"
    assert isinstance(node.to_child[-1], m.ExchangeDropped)
