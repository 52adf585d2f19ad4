"""Rows as Python values, and answers to them: queues, epochs, partitions, reports, and what belongs to whom."""

import contextlib
import pickle
import threading

import numpy as np
import pyarrow as pa
import pytest

from tests.node.conftest import start_for
from tests.node.feeding import SCHEMA, FedNode, in_thread, numbers
from tests.support.eventually import PATIENCE_S, eventually
from tfos_lab.core import messages as m
from tfos_lab.core.frames import FrameSocket, frame_pair
from tfos_lab.errors import ConfigError, FeedError
from tfos_lab.node.session import NodeSession


@pytest.fixture
def node(tmp_path):
    return FedNode(tmp_path)


# ---- rows -----------------------------------------------------------------------------------------------------------


def test_files_may_go_once_their_rows_have_been_taken_for_the_last_time(node):
    node.open_feed(epochs=2).segment([1, 2]).segment([3]).complete(3).end()
    feed = node.ctx.data_feed()
    feed.next_batch(5)
    assert node.sent_of(m.SegmentRead) == []
    feed.next_batch(1)
    feed.should_stop()
    assert [message.path[-7:] for message in node.sent_of(m.SegmentRead)] == ["0.arrow", "1.arrow"]


def test_each_epoch_has_this_node_s_leftover_rows_with_their_partitions(node):
    node.open_feed(epochs=2).segment([1, 2], shared=[8, 9], own=1).segment([3], shared=[7])
    node.segment(shared=[5, 6], own=0).complete(5).end()
    assert node.batches(4, train_mode=False) == [[1, 2, 9], [3], [5]] * 2


def test_a_batch_ends_with_each_part_of_a_stream_which_then_counts_as_read(node):
    node.open_feed(stream=True).segment([1, 2, 3]).complete(3)
    feed = node.ctx.data_feed()
    assert [numbers(feed.next_batch(2)), numbers(feed.next_batch(2))] == [[1, 2], [3]]
    assert node.sent_of(m.FeedRead) == []
    thread, results = in_thread(feed.should_stop)
    eventually(lambda: [message.feed for message in node.sent_of(m.FeedRead)] == [0])
    node.end()
    thread.join(PATIENCE_S)
    assert results == [True]


def test_a_mapping_with_more_columns_than_the_rows_have_is_refused(node):
    node.open_feed().segment([7])
    with pytest.raises(FeedError, match="names 2 columns, but a row has 1 value"):
        node.ctx.data_feed(input_mapping={"a": "a", "b": "b"}).next_batch(1)


@pytest.mark.parametrize("size", [0, -1, 2.0, True, "2"])
def test_a_batch_needs_a_size(node, size):
    node.open_feed().segment([1])
    with pytest.raises(ConfigError, match="a whole number of rows"):
        node.ctx.data_feed().next_batch(size)


def test_results_without_an_inference_are_refused(node):
    node.open_feed().segment([1])
    with pytest.raises(FeedError, match="no rows of an inference"):
        node.ctx.data_feed().batch_results([1])


# ---- the end --------------------------------------------------------------------------------------------------------


@pytest.fixture
def session(tmp_path):
    """A session as the kernel has it, with a feed that has been opened; the agent's end, and how that sends."""
    agent, end = frame_pair()
    session = NodeSession(FrameSocket(end), start_for(print, rank=2), tmp_path)

    def send(message):
        agent.send(m.encode(message))

    send(m.FeedOpen(feed=0, epochs=1, remainder="pad", schema=SCHEMA, token=""))
    eventually(lambda: session.feed._queue.feeds)
    with contextlib.closing(agent):
        yield session, agent, send
        session.close()


def test_why_no_more_rows_come_is_heard_though_the_session_is_closed_at_once(session):
    session, agent, send = session
    with session.feed._queue.changed:  # its thread waits here, as on a machine with much to do
        send(m.SegmentReady(feed=0, path="", rows=0))
        send(m.FeedAborted(feed=0, reason="column 'x' has a null"))
        agent.close()
        closing, _ = in_thread(session.close)
        session.context.report(loss=1.0)  # which nobody takes
    with pytest.raises(FeedError, match="column 'x' has a null"):
        session.context.data_feed().next_batch(1)
    closing.join(PATIENCE_S)


def test_a_reader_is_told_if_its_cluster_ends_without_a_word(session):
    session, agent, _ = session
    threading.Timer(0.1, agent.close).start()  # or before it waits, which comes to the same
    with pytest.raises(FeedError, match="the cluster has ended, and with it the rows"):
        session.context.data_feed().next_batch(1)


# ---- answers --------------------------------------------------------------------------------------------------------

OBJECTS = '{"type":"struct","fields":[{"name":"object","type":"binary","nullable":false,"metadata":{}}]}'


class Answering(FedNode):
    """A node that tasks ask for answers: each one's rows are an exchange."""

    def __init__(self, folder):
        super().__init__(folder)
        self.reader.handle(m.InferenceOpen(schema=OBJECTS, token="", objects=True))
        self.feed = self.ctx.data_feed(train_mode=False)
        self.files = 0

    def ask(self, number, rows, *, ended=False):
        path = self.folder / f"exchange-{self.files}"
        self.files += 1
        schema = pa.schema([pa.field("object", pa.binary(), nullable=False)])
        batch = pa.record_batch([pa.array([pickle.dumps(row) for row in rows], pa.binary())], schema=schema)
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as file:
            file.write_batch(batch)
        self.reader.handle(m.ExchangeRows(exchange=number, path=str(path), rows=len(rows), shapes={}, objects=True))
        if ended:
            self.reader.handle(m.ExchangeEnded(exchange=number))

    def answer_all(self, size):
        """Answer until there is nothing more, and return the batches."""
        self.end()
        found = []
        while not self.feed.should_stop():
            found.append(self.feed.next_batch(size))
            self.feed.batch_results(found[-1])
        return found

    def results(self):
        """Return what was answered, by exchange."""
        self.reader.flush()
        found = {}
        for message in self.sent_of(m.ExchangeResults):
            rows = [
                pickle.loads(value)
                for batch in pa.ipc.open_stream(message.data)
                for value in batch.column(0).to_pylist()
            ]
            assert len(rows) == message.rows
            found.setdefault(message.exchange, []).extend(rows)
        return found


@pytest.fixture
def answering(tmp_path):
    return Answering(tmp_path)


def test_a_batch_that_waits_lets_other_tasks_go_on(answering):
    answering.ask(1, ["a", "b"])
    answering.ask(2, [1], ended=True)
    for expected in (["a", "b"], [1]):
        batch = answering.feed.next_batch(3)
        assert batch == expected
        answering.feed.batch_results(batch)
    answering.ask(1, ["c"], ended=True)
    assert answering.answer_all(3) == [["c"]]


def test_results_belong_to_the_oldest_rows_in_whatever_portions_and_from_whichever_thread_they_come(answering):
    answering.ask(1, ["a", "b", "c", "d"])
    answering.ask(2, [1, 2], ended=True)
    first = answering.feed.next_batch(4)
    thread = threading.Thread(target=answering.feed.batch_results, args=(first[:2],))
    thread.start()
    thread.join()
    second = answering.feed.next_batch(4)  # while the first is answered by another thread
    for answer in [*first[2:], *second]:
        answering.feed.batch_results([answer])
    assert answering.results() == {1: ["a", "b", "c", "d"], 2: [1, 2]}


@pytest.mark.parametrize("given", [0, 1, 3])
def test_a_batch_that_is_answered_in_part_is_told_when_the_next_is_asked_for(answering, given):
    answering.ask(1, [1, 2, 3, 4, 5, 6])
    batch = answering.feed.next_batch(4)
    answering.feed.batch_results(batch[:given])
    for ask in (answering.feed.should_stop, lambda: answering.feed.next_batch(4)):
        with pytest.raises(FeedError, match=f"batch_results got {given} results? for a batch of 4 rows"):
            ask()


def test_more_results_than_rows_are_refused(answering):
    answering.ask(1, [1, 2], ended=True)
    batch = answering.feed.next_batch(1)
    with pytest.raises(FeedError, match=r"batch_results got more results \(2\) than .* wait for one \(1\)"):
        answering.feed.batch_results([*batch, 2])
    assert answering.results() == {}


def test_rows_and_results_of_tasks_that_are_gone_are_dropped(answering):
    answering.ask(1, [1, 2], ended=True)
    answering.ask(2, [3], ended=True)
    batch = answering.feed.next_batch(2)
    answering.reader.handle(m.ExchangeDropped(exchange=1))
    answering.ask(1, [4])
    answering.feed.batch_results(batch)
    assert answering.answer_all(2) == [[3]]
    assert answering.results() == {2: [3]}
    assert not list(answering.folder.glob("exchange-*"))


@pytest.mark.parametrize(
    ("values", "kinds", "shown"),
    [
        ([("r", 0), ("s", 1)], "numbers and text", "('r', 0)"),
        ([[True, 2], [False, 3]], "numbers and true and false", "[True, 2]"),
        (["a", b"b"], "bytes and text", "['a', b'b']"),
        ([np.float32(1), np.str_("x")], "numbers and text", "[np.float32(1.0), np.str_('x')]"),
    ],
    ids=["a tuple per row", "bool among numbers", "bytes and text", "NumPy's scalars"],
)
def test_results_whose_types_would_be_lost_are_refused_with_what_keeps_them(node, values, kinds, shown):
    with pytest.raises(FeedError) as error:
        node.ctx.put_results({"both": values})
    assert str(error.value).startswith(
        f"put_results: 'both' mixes {kinds} ({shown}), and a column of Spark holds values of one type; give each type "
        "a column of its own, as in ctx.put_results({"
    )
