"""Steps in TensorFlow that wait for their batch are seen to, and compute what they did before."""

from __future__ import annotations

import threading
import time

import pytest

from tfos_lab.node.activity.fetches import Fetches

pytestmark = pytest.mark.tensorflow
PATIENCE_S = 60.0


@pytest.fixture
def fetches():
    """The counters of this process."""
    pytest.importorskip("tensorflow")  # before it can be patched
    from tfos_lab.node.activity.fetches import FETCHES, patch_fetches

    patch_fetches()
    patch_fetches()
    FETCHES.start(enabled=True)
    yield FETCHES
    FETCHES.start(enabled=False)


def test_a_step_that_waits_for_its_batch_is_seen_within_the_graph(fetches):
    import tensorflow as tf

    given = threading.Event()

    def wait(number):
        given.wait(PATIENCE_S)
        return number

    dataset = tf.data.Dataset.range(5, 7).map(
        lambda number: tf.ensure_shape(tf.numpy_function(wait, [number], tf.int64), ())
    )

    @tf.function
    def step(iterator):
        return 2 * next(iterator)

    iterator, results = iter(dataset), []
    thread = threading.Thread(target=lambda: results.append(int(step(iterator))))
    thread.start()
    deadline = time.monotonic() + PATIENCE_S
    while not fetches.in_flight and time.monotonic() < deadline:
        time.sleep(0.01)
        fetches.look()
    assert fetches.in_flight
    given.set()
    thread.join()
    fetches.look()
    assert results == [10]
    assert (fetches.in_flight, fetches.taken) == (False, 1)
    assert int(step(iterator)) == 12
    with pytest.raises(tf.errors.OutOfRangeError):
        step(iterator)
    fetches.look()
    fetches.settle()
    fetches.look()
    assert fetches.in_flight
    # Nothing runs: the step that failed waits for nothing.
    fetches.settle()
    fetches.look()
    assert (fetches.in_flight, fetches.taken) == (False, 2)


def test_keras_asks_for_optional_batches(fetches):
    import tensorflow as tf

    @tf.function
    def step(iterator):
        batch = iterator.get_next_as_optional()
        return batch.get_value() if batch.has_value() else -tf.ones((), tf.int64)

    iterator = iter(tf.data.Dataset.range(1))
    assert [int(step(iterator)), int(step(iterator))] == [0, -1]
    fetches.look()
    assert (fetches.in_flight, fetches.taken) == (False, 2)


def test_nothing_is_counted_while_nothing_is_asked_for():
    import tensorflow as tf

    from tfos_lab.node.activity.fetches import FETCHES

    @tf.function
    def step(iterator):
        return next(iterator)

    assert int(step(iter(tf.data.Dataset.range(1)))) == 0
    FETCHES.look()
    assert (FETCHES.in_flight, FETCHES.taken) == (False, 0)
    assert [op.type for op in step.get_concrete_function(iter(tf.data.Dataset.range(1))).graph.get_operations()].count(
        "AssignAddVariableOp"
    ) == 0
    assert Fetches().counters() is None
