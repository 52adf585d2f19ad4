"""From Spark tasks to the batches of all nodes: each row once, in equal steps, whatever is fed, tried again or read."""

import ctypes
import functools
import gc
import os
import resource
import tempfile
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyarrow import parquet

from tests.laws.random_data import fuzzed
from tests.node.feeding import SCHEMA, FedNode, in_thread
from tests.support.eventually import PATIENCE_S
from tests.support.instructions import sends
from tfos_lab.core import messages as m
from tfos_lab.driver.state.feed_state import FeedState
from tfos_lab.errors import ConfigError, FeedError
from tfos_lab.node.feed.reader import FeedReader
from tfos_lab.node.feed.store import FeedStore
from tfos_lab.node.feed.task import PartitionSender
from tfos_lab.node.feed.wire import FeedPlan

# ---- the law --------------------------------------------------------------------------------------------------------


class Cluster:
    """Real tasks, stores and readers of some nodes, and the driver's rules between them; messages go by hand."""

    def __init__(self, ranks, folder):
        self.state = FeedState({rank: f"worker:{rank}" for rank in ranks}, lock_step=True)
        self.locations, self.stores, self.readers = {}, {}, []
        for rank in ranks:
            scratch = folder / f"c-{rank}-{os.getpid()}"
            scratch.mkdir()
            reader = FeedReader(rank, lambda message, rank=rank: self.child_sends(rank, message))
            self.readers.append(reader)
            send = functools.partial(self.agent_sends, rank)
            self.stores[rank] = FeedStore("127.0.0.1", scratch, send, reader.handle)

    def child_sends(self, rank, message):
        if self.stores[rank].on_child_message(message):
            self.agent_sends(rank, message)

    def agent_sends(self, rank, message):
        message = msgspec.structs.replace(message, rank=rank)
        if isinstance(message, m.FeedReady):
            self.locations[message.rank] = message.locations
        self.carry_out(self.state.handle(message, 0.0))

    def carry_out(self, instructions):
        for rank, message in sends(instructions):
            self.stores[rank].handle(message)

    def open(self, epochs, remainder):
        opened = m.FeedOpen(feed=-1, epochs=epochs, remainder=remainder, schema=SCHEMA, token="t")
        self.carry_out(self.state.open(opened))

    def send(self, partition, batches, *, attempt="a", dies=False):
        """Run a feed task, which may die before it asks to commit."""
        with PartitionSender(FeedPlan(0, "t", self.locations, SCHEMA), partition, attempt) as sender:
            for numbers in batches:
                sender.send(pa.RecordBatch.from_pydict({"x": pa.array(numbers, pa.int64())}))
            if not dies:
                sender.commit()
        for store in self.stores.values():
            store.pump()

    def close(self):
        for store in self.stores.values():
            store.close()


def batches_of(reader, reading):
    """Return an epoch's batches as ``[(numbers of real rows, rows in all, factor), …]``."""
    batches = []
    for piece in reader.epoch(reading):
        if piece is None:
            continue
        numbers = piece.columns["x"].tolist()
        for start in range(0, len(numbers), reading.batch_size):
            part = numbers[start : start + reading.batch_size]
            factor = piece.factor if isinstance(piece.factor, float) else float(piece.factor[start])
            batches.append((part[: max(0, piece.rows - start)], len(part), factor))
    return batches


# Of the nodes that are fed: parameter servers and an evaluator have the others.
RANKS = (1, 3, 4, 6)


def case(partitions, sizes, **rest):
    return {"partitions": partitions, "sizes": sizes, "is_same_size": True, "remainder": "exact", **rest}


@fuzzed(40)
@given(
    partitions=st.lists(
        st.tuples(st.lists(st.integers(0, 70), max_size=3), st.sampled_from(["once", "died before", "twice"])),
        min_size=1,
        max_size=7,
    ),
    sizes=st.lists(st.sampled_from([1, 2, 3, 16, 32]), min_size=1, max_size=4),
    is_same_size=st.booleans(),
    remainder=st.sampled_from(["exact", "pad", "drop"]),
    shuffle=st.booleans(),
    looks_early=st.booleans(),
)
@example(**case([([65], "once")], [32] * 2, shuffle=False, looks_early=True))
@example(**case([([1], "once")] * 9, [1] * 2, shuffle=False, looks_early=False))
@example(**case([([1], "once"), ([], "once")] * 3, [2] * 2, shuffle=True, looks_early=False))
@example(**case([([64, 3], "twice"), ([5], "died before")], [16] * 3, shuffle=False, looks_early=True))
def test_every_row_is_in_one_step_of_one_node_and_the_mean_over_nodes_is_that_over_rows(
    *, partitions, sizes, is_same_size, remainder, shuffle, looks_early
):
    if is_same_size or looks_early:
        sizes = sizes[:1] * len(sizes)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        cluster = Cluster(RANKS[: len(sizes)], Path(folder))
        try:
            cluster.open(2, remainder)

            def open_all():
                both = zip(cluster.readers, sizes, strict=True)
                return [reader.open(size, remainder, shuffle=shuffle, seed=1) for reader, size in both]

            readings = open_all() if looks_early else []
            count = 0
            for partition, (batches, fate) in enumerate(partitions):
                rows = []
                for size in batches:
                    rows.append(list(range(count, count + size)))
                    count += size
                if fate == "died before":
                    cluster.send(partition, rows, attempt="b", dies=True)
                cluster.send(partition, rows)
                if fate == "twice":
                    cluster.send(partition, rows, attempt="c")
                if partition == len(partitions) // 2:
                    for reader, reading in zip(cluster.readers, readings, strict=bool(readings)):
                        epoch = reader.epoch(reading)
                        next(epoch, None)  # an early reader must not take what others will lack
                        epoch.close()
            cluster.carry_out(cluster.state.job_done(0, count, len(partitions), 0.0))
            readings = readings or open_all()
            epochs = [batches_of(reader, reading) for reader, reading in zip(cluster.readers, readings, strict=True)]
            check(epochs, count, sizes, remainder)
        finally:
            cluster.close()


def check(epochs, count, sizes, remainder):
    nodes = len(sizes)
    assert len({len(batches) for batches in epochs}) == 1, "equally many steps"
    rows = sorted(number for batches in epochs for numbers, _, _ in batches for number in numbers)
    assert len(rows) == len(set(rows))
    if remainder != "drop":
        assert rows == list(range(count))
        shares = [sum(len(numbers) for numbers, _, _ in batches) for batches in epochs]
        assert max(shares) - min(shares) <= 1
    elif len(set(sizes)) == 1:
        assert len(rows) == count // (nodes * sizes[0]) * nodes * sizes[0]
    for step in zip(*epochs, strict=True):
        real = sum(len(numbers) for numbers, _, _ in step)
        for (numbers, size, _), most in zip(step, sizes, strict=True):
            assert size == (max(1, len(numbers)) if remainder == "exact" else most)
        empty = sum(not numbers for numbers, _, _ in step)
        if len(set(sizes)) == 1:
            assert empty == max(0, nodes - real), "a node lacks a row only if there are too few for all"
        if real:
            means = [factor * len(numbers) / size for numbers, size, factor in step]
            assert sum(means) / nodes == pytest.approx(1.0)


# ---- one node's reader ----------------------------------------------------------------------------------------------


@pytest.fixture
def node(tmp_path):
    return FedNode(tmp_path)


def test_what_is_written_over_rows_in_one_epoch_is_not_read_in_the_next(node):
    """As TensorFlow does, which puts results of an operation where its input was."""
    node.open_feed(epochs=2).segment([1, 2], shared=[3], own=0).complete(3).plan(1)
    reading = node.open(4)
    for _ in range(2):
        (piece,) = (piece for piece in node.reader.epoch(reading) if piece is not None)
        assert piece.columns["x"][:3].tolist() == [1, 2, 3]
        ctypes.memset(piece.columns["x"].ctypes.data, 0xFF, piece.columns["x"].nbytes)
    node.open_feed(1, epochs=2).segment(list(range(8)), feed=1).complete(8, feed=1).plan(2, feed=1)
    for _ in range(2):
        pieces = [piece.columns["x"] for piece in node.reader.epoch(reading) if piece is not None]
        assert [number for numbers in pieces for number in numbers.tolist()] == list(range(8))
        for numbers in pieces:
            ctypes.memset(numbers.ctypes.data, 0xFF, numbers.nbytes)


def test_a_dataset_s_own_remainder_wins(node):
    node.open_feed(remainder="pad").segment(list(range(6))).complete(6).plan(1)
    assert node.epoch(node.open(4, "drop")) == [([0, 1, 2, 3], 4)]


def test_full_batches_are_yielded_before_the_feed_is_complete(node):
    node.open_feed().segment([0, 1, 2, 3, 4])
    epoch = node.reader.epoch(node.open(4))
    piece = next(epoch)
    assert (piece.columns["x"].tolist(), piece.rows) == ([0, 1, 2, 3], 4)
    thread, rest = in_thread(lambda: [piece.columns["x"].tolist() for piece in epoch if piece is not None])
    node.segment([5]).complete(6).plan(2)
    thread.join(PATIENCE_S)
    assert rest == [[[4, 5, 5, 5]]]


def test_batches_that_differ_in_size_wait_until_the_rows_of_all_nodes_are_known(node):
    node.open_feed(remainder="exact").segment([0, 1, 2, 3, 4, 5])
    reading = node.open(2)
    node.reader.handle(m.PlanLater(feed=0, dataset_id=0, alike=False))
    epoch = node.reader.epoch(reading)
    assert next(epoch) is None
    node.complete(6)
    node.reader.handle(m.EpochPlan(feed=0, dataset_id=0, steps=6, shares=[(6, 2, 1), (6, 1, 1)]))
    pieces = [piece for piece in epoch if piece is not None]
    assert [piece.rows for piece in pieces] == [1] * 6
    assert {piece.factor for piece in pieces} == {1.0}


def test_rows_of_files_which_nodes_may_have_one_more_of_wait_until_those_of_all_nodes_are_known(node, tmp_path):
    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.table({"x": range(5)}), path)
    part = m.FilePart(m.DataFile("/", str(path), path.stat().st_size), [(0, 0, 5)])
    node.open_feed(remainder="exact", files=True)
    epoch = node.reader.epoch(node.open(4))
    assert next(epoch) is None
    node.reader.handle(m.FilesDealt(0, "parquet", [part], 5, shapes={"x": []}))
    assert next(epoch) is None
    node.reader.handle(m.EpochPlan(feed=0, dataset_id=0, steps=2, shares=[(5, 4, 1), (4, 4, 1)]))
    assert [(piece.rows, piece.factor) for piece in epoch if piece is not None] == [(4, 8 / 7), (1, 1.0)]
    assert node.sent_of(m.SegmentRead) == [], "the user's file is nothing that may go"


def test_steps_that_were_planned_with_other_rows_or_another_batch_size_are_not_taken(node):
    node.open_feed().segment([1, 2]).complete(2).plan(1, batch_size=3)
    with pytest.raises(FeedError, match="this node has 2 rows, in batches of 4, and the driver has not planned"):
        node.rows(node.open(4))


def test_batches_that_were_read_too_early_and_do_not_fit_together_are_refused(node):
    node.open_feed(remainder="exact").segment([0, 1, 2, 3, 4, 5])
    epoch = node.reader.epoch(node.open(2))
    assert next(epoch).rows == 4
    node.complete(6)
    node.reader.handle(m.EpochPlan(feed=0, dataset_id=0, steps=6, shares=[(6, 2, 1), (6, 1, 1)]))
    with pytest.raises(FeedError, match=r"of 1, 2 rows\) do not fit together: give all nodes the same batch_size"):
        list(epoch)


def test_an_epoch_that_was_left_after_its_last_step_has_been_read(node):
    node.open_feed(0, epochs=2).segment([0, 1, 2, 3], feed=0).complete(4, feed=0).plan(1, feed=0)
    reading = node.open(4)
    left = node.reader.epoch(reading)
    assert next(left).rows == 4
    left.close()
    again = node.reader.epoch(reading)
    assert [piece.rows for piece in again if piece is not None] == [4]
    node.open_feed(1).segment([4, 5], feed=1).complete(2, feed=1).plan(1, feed=1)
    assert node.rows(reading) == [4, 5]


def test_a_micro_batch_that_was_left_after_its_last_step_counts_once_more_is_asked_for(node):
    node.open_feed(0, stream=True).segment([0, 1, 2, 3], feed=0).complete(4, feed=0).plan(1, feed=0)
    reading = node.open(4)
    left = node.reader.epoch(reading)
    assert next(left).rows == 4
    left.close()
    assert node.sent_of(m.FeedRead) == []
    anew = node.reader.epoch(reading)
    assert next(anew) is None
    assert [message.feed for message in node.sent_of(m.FeedRead)] == [0]
    node.open_feed(1, stream=True).segment([4], feed=1).complete(1, feed=1).plan(1, feed=1).end()
    assert [piece.columns["x"].tolist() for piece in anew if piece is not None] == [[4, 4, 4, 4]]
    assert [message.feed for message in node.sent_of(m.FeedRead)] == [0, 1]


def test_the_last_feed_can_be_read_on_and_on_once_no_other_will_come(node):
    node.open_feed().segment([1]).complete(1).plan(1, batch_size=1).end()
    reading = node.open(1)
    assert [node.rows(reading) for _ in range(3)] == [[1], [1], [1]]


def test_a_shuffled_epoch_has_all_rows_in_another_order_each_time_and_a_seed_repeats_it(node):
    orders = []
    for _ in range(2):
        node.read_anew()
        node.open_feed(epochs=2).segment(range(10), range(10, 30)).segment(range(30, 100)).complete(100)
        node.plan(10, batch_size=10)
        reading = node.open(10, shuffle=True, seed=1)
        orders.append([node.rows(reading), node.rows(reading)])
    (first, second), again = orders
    assert sorted(first) == sorted(second) == list(range(100))
    assert list(range(100)) != first != second != list(range(100))
    assert again == [first, second]


def test_what_was_unknown_to_others_stays_unknown_here(node):
    node.open_feed().segment([1])
    reading = node.open(1)
    node.reader.handle(m.PlanLater(feed=0, dataset_id=0))
    node.complete(1).plan(1, batch_size=1)
    assert node.reader.known_schedule(reading, PATIENCE_S) is None
    assert node.reader.known_schedule(node.open(1)) is None


@pytest.mark.parametrize(("numbers", "steps"), [([1, 2, 3], "more"), ([], "0")])
def test_a_dataset_that_promised_its_steps_is_not_read_for_a_feed_of_another_length(node, numbers, steps):
    node.open_feed().segment([1, 2]).complete(2).plan(2, batch_size=1)
    reading = node.open(1)
    assert node.reader.known_schedule(reading).steps == 2
    assert len(node.epoch(reading)) == 2
    node.open_feed(1).segment(numbers, feed=1).complete(len(numbers), feed=1)
    node.plan(len(numbers), feed=1, batch_size=1)
    with pytest.raises(FeedError, match=f"had 2 steps, and now one has {steps}: call ctx.dataset anew"):
        node.epoch(reading)


def test_ten_thousand_partitions_are_shuffled_with_few_descriptors(node):
    """A process may have 1,024 files open, as a rule."""
    count = 300
    node.open_feed(remainder="exact")
    for number in range(count):
        node.segment([2 * number, 2 * number + 1])
    node.complete(2 * count).plan(6, batch_size=100)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 50, hard))
    try:
        rows = node.rows(node.open(100, shuffle=True))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert sorted(rows) == list(range(2 * count))


def test_memory_is_given_back_with_the_last_row_that_is_mapped(node):
    node.open_feed(remainder="exact").segment([0, 1, 2]).complete(3).plan(1)
    (piece,) = (piece for piece in node.reader.epoch(node.open(4)) if piece is not None)
    rows = piece.columns["x"]
    del piece
    assert rows.tolist() == [0, 1, 2]
    del rows
    gc.collect()
    assert "0.arrow" not in Path("/proc/self/maps").read_text()


# ---- a dataset of them ----------------------------------------------------------------------------------------------


@pytest.fixture
def dataset_of(tmp_path):
    """A function that feeds rows, as columns, and returns the elements of a dataset of them."""

    def dataset_of(*feeds, **asked):
        node, elements = FedNode(tmp_path), []
        for number, columns in enumerate(feeds):
            batch = pa.RecordBatch.from_pydict(columns)
            shapes = {field.name: [2] if pa.types.is_list(field.type) else [] for field in batch.schema}
            node.feed_table(batch, feed=number, shapes=shapes).complete(batch.num_rows, feed=number)
            node.plan(-(-batch.num_rows // 3), feed=number, batch_size=3)
        dataset = node.ctx.dataset(3, **asked)
        for _ in feeds:
            elements += [as_numpy(element) for element in dataset]
        return elements

    return dataset_of


def as_numpy(element):
    import tensorflow as tf

    return tf.nest.map_structure(lambda tensor: tensor.numpy(), element)


X = pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32()))
Y = [5, 6]


@pytest.mark.tensorflow("here")
def test_elements_have_weights_and_those_of_rows_that_only_fill_up_are_a_zero_of_their_own(dataset_of):
    ((x, y, weights),) = dataset_of({"x": X, "y": Y}, label="y")
    assert (x.shape, y.tolist(), weights.tolist()) == ((3, 2), [5, 6, 6], [1.5, 1.5, 0.0])
    ((_, _, weights),) = dataset_of({"x": X, "y": Y, "u": [-0.0, 0.5]}, label="y", weight="u")
    assert weights.tolist() == [0.0, 0.75, 0.0]
    assert np.signbit(weights).tolist() == [False, False, True]


@pytest.mark.tensorflow("here")
@pytest.mark.parametrize(
    ("label", "told"),
    [
        (["y", "prize"], "column 'prize' is not in the data.* It has: price, x, y"),
        ({"out": "prise"}, "column 'prise' is not in the data; did you mean 'price'"),
        ({"out": 3}, "label={'out': 3}: a column's name, a list of names or a dict of outputs to names is needed"),
        ([], r"label=\[\]: a column's name"),
    ],
)
def test_a_label_that_is_not_there_is_one_sentence(dataset_of, label, told):
    with pytest.raises(ConfigError, match=told):
        dataset_of({"price": Y, "x": X, "y": Y}, label=label)


@pytest.mark.tensorflow("here")
def test_a_column_is_not_overwritten_with_the_weights_of_the_rows(dataset_of):
    rows = {"x": X, "y": Y, "sample_weight": pa.array([0.25, 0.5], pa.float32())}
    with pytest.raises(ConfigError, match=r"column 'sample_weight': .* say weight='sample_weight'"):
        dataset_of(rows)
    (element,) = dataset_of(rows, weight="sample_weight")
    assert element["sample_weight"].tolist() == [0.375, 0.75, 0.0]


@pytest.mark.tensorflow("here")
def test_columns_of_bytes_become_numbers_of_the_shape_that_was_asked_for(dataset_of):
    pixels = np.arange(12, dtype=np.int16).reshape(2, 2, 3)
    ((image, y, _),) = dataset_of(
        {"image": [one.tobytes() for one in pixels], "y": Y}, label="y", decode_raw={"image": ("int16", (2, 3))}
    )
    assert (image.dtype, image[:2].tolist(), y[:2].tolist()) == (np.int16, pixels.tolist(), Y)


@pytest.mark.tensorflow("here")
@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"image": ("int16", (4,))}, "int16 of the shape .4,. has 8 bytes, and a value of 'image' has 6"),
        ({"image": "int16"}, "a dtype and a shape are needed, as in"),
        ({"y": ("int16", (3,))}, "decode_raw.'y'.: one value of bytes or text in each row is needed"),
        ({"picture": ("int16", (3,))}, "no column of that name is fed"),
        (["image"], "a dict is needed, such as"),
    ],
)
def test_bytes_that_cannot_be_decoded_are_one_sentence(dataset_of, asked, told):
    with pytest.raises(Exception, match=told):
        dataset_of({"image": [b"123456", b"123456"], "y": Y}, decode_raw=asked)


@pytest.mark.tensorflow("here")
@pytest.mark.parametrize(
    ("other", "came"),
    [
        ({"z": X}, "z: float32 (2,)"),
        ({"x": X, "y": ["a", "b"]}, "x: float32 (2,), y: string ()"),
        ({"x": [1.0, 2.0], "y": Y}, "x: float64 (), y: int64 ()"),
    ],
    ids=["names", "strings", "type"],
)
def test_rows_of_another_table_are_refused_with_what_was_expected(dataset_of, other, came):
    with pytest.raises(Exception, match="and now come rows of") as caught:
        dataset_of({"x": X, "y": Y}, other)
    assert f"for rows of (x: float32 (2,), y: int64 ()), and now come rows of ({came})" in str(caught.value)


@pytest.mark.tensorflow("here")
def test_a_dataset_can_be_read_again_beside_itself_and_ends_its_reading_when_it_is_thrown_away(node):
    import tensorflow as tf

    node.open_feed(epochs=4).segment(range(8)).complete(8).plan(2).end()
    dataset = node.ctx.dataset(4)
    assert [element["x"].numpy().tolist() for element in dataset.repeat(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]] * 2
    elements = iter(dataset.map(lambda element: element["x"]).prefetch(1))
    gc.collect()
    assert [x.numpy().tolist() for x in elements] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert isinstance(dataset.element_spec["x"], tf.TensorSpec)
