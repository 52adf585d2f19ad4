"""Errors that really cross Spark, Flight and TensorFlow: type and fields arrive."""

from __future__ import annotations

import copy
import tempfile

import cloudpickle
import numpy as np
import pytest

from tfos_lab.core.code_archive import make_finder
from tfos_lab.errors import ExecutorMismatch, FeedError, FeedTimeout, NodeFailed
from tfos_lab.errors.channel import to_text, unwrapped

# A path, quotes, a line break, and letters beyond ASCII.
ODD = 'the node\'s spool in /tmp/"a b"\\c cannot be written:\nno space [left] {on} 100% of the disk — ähem'
ERRORS = [
    FeedTimeout(reason=ODD),
    ExecutorMismatch(problems={"h7": "lacks tensorflow, zmq", "h8": "runs Python 3.12"}),
    NodeFailed(node="worker:1", kind="Lost", message=ODD, also=["ps:0"], consequences={"chief:0": "UnavailableError"}),
]
each_error = pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)


def assert_same(found, error):
    assert type(found) is type(error)
    assert vars(found) == vars(error)


def make_failing_task(error):
    """Return a function for `mapInArrow` that raises on the executor, as work of tfos_lab does."""
    find, packed = make_finder(), cloudpickle.dumps(error)

    def task(batches):
        def work(batches):
            import pickle

            for _ in batches:
                raise pickle.loads(packed)
            yield from ()

        yield from find("tfos_lab.errors.channel", "carrying")(work)(batches)

    return task


@each_error
@pytest.mark.parametrize("spark_mode", ["local", "standalone", "connect"])
def test_an_error_crosses_spark(spark, error):
    frame = spark.range(0, 4, 1, 2).mapInArrow(make_failing_task(error), "id long")
    with pytest.raises(type(error)) as caught, unwrapped():
        frame.collect()
    assert_same(caught.value, error)
    # A person who reads Spark's text finds the usual traceback.
    assert f"tfos_lab.errors.{type(error).__name__}: {str(error).splitlines()[0]}" in str(caught.value.__cause__)


def sent_by_flight(error):
    """Return what a client gets where an endpoint raises the error."""
    from pyarrow import flight

    class Endpoint(flight.FlightServerBase):
        def do_action(self, context, action):
            raise flight.FlightServerError(to_text(error))

    with (
        tempfile.TemporaryDirectory() as folder,  # the path of a unix socket must be short
        Endpoint(location := f"grpc+unix://{folder}/socket"),
        flight.connect(location) as client,
        pytest.raises(type(error)) as caught,
        unwrapped(),
    ):
        list(client.do_action("fail"))
    return caught.value


@each_error
def test_an_error_crosses_flight(error):
    assert_same(sent_by_flight(error), error)


def test_a_very_long_error_crosses_flight_shortened():
    rows = " ".join(map(str, range(20_000)))  # which no compression makes small
    arrived = sent_by_flight(FeedError(reason=f"results do not fit: {rows}"))
    assert arrived.reason.startswith("results do not fit: 0 1 2 3")
    assert arrived.reason.endswith("more characters)")


@pytest.mark.tensorflow
@each_error
def test_an_error_crosses_tensorflow(error):
    import tensorflow as tf

    from tfos_lab.node.feed.generator_dataset import generator_dataset, tail_dataset

    def rows():
        yield np.int32(1)
        raise copy.copy(error)  # TensorFlow runs in this process, and the one that is raised gets a note

    for make in (generator_dataset, tail_dataset):
        dataset = make(rows, tf.TensorSpec((), tf.int32)).map(lambda x: x + 1).prefetch(1)
        with pytest.raises(type(error)) as caught, unwrapped():
            list(dataset)
        assert_same(caught.value, error)
        assert isinstance(caught.value.__cause__, tf.errors.OpError)
