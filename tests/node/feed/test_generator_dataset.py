"""`tfos_lab.node.feed.generator_dataset`: the same as `from_generator`, but faster to start."""

from __future__ import annotations

import numpy as np
import pytest

from tfos_lab.node.feed.generator_dataset import generator_dataset

pytestmark = pytest.mark.tensorflow


def three():
    for i in range(3):
        yield {"x": np.full((2, 4), i, np.int32), "name": np.array([b"a", b"b"], object)}


@pytest.fixture
def signature():
    import tensorflow as tf

    return {"x": tf.TensorSpec((None, 4), tf.int32), "name": tf.TensorSpec((None,), tf.string)}


def numbers(dataset):
    return [int(element["x"][0, 0]) for element in dataset]


def test_elements_have_the_structure_and_values_that_were_yielded(signature):
    dataset = generator_dataset(three, signature)
    first = next(iter(dataset))
    assert dataset.element_spec == signature
    assert first["x"].numpy().tolist() == [[0] * 4] * 2
    assert first["name"].numpy().tolist() == [b"a", b"b"]


def test_each_iteration_begins_anew_also_inside_tensorflow(signature):
    dataset = generator_dataset(three, signature)
    assert numbers(dataset) == numbers(dataset) == [0, 1, 2]
    assert numbers(dataset.repeat(2)) == [0, 1, 2] * 2


def test_iterations_beside_each_other_do_not_mix(signature):
    import tensorflow as tf

    dataset = generator_dataset(three, signature)
    pairs = tf.data.Dataset.zip((dataset, dataset.skip(1)))
    assert [(int(a["x"][0, 0]), int(b["x"][0, 0])) for a, b in pairs] == [(0, 1), (1, 2)]


def test_it_lives_as_long_as_something_made_of_it(signature):
    import gc

    elements = iter(generator_dataset(three, signature).map(lambda element: element["x"]).prefetch(1))
    gc.collect()
    assert [int(x[0, 0]) for x in elements] == [0, 1, 2]


def test_an_iterator_that_is_thrown_away_closes_its_generator(signature):
    closed = []

    def endless():
        try:
            while True:
                yield from three()
        finally:
            closed.append(True)

    assert numbers(generator_dataset(endless, signature).take(2)) == [0, 1]
    assert closed == [True]


def test_an_error_of_the_generator_reaches_whoever_iterates(signature):
    import tensorflow as tf

    def failing():
        yield from three()
        raise ValueError("the spool is gone")

    with pytest.raises(tf.errors.InvalidArgumentError, match="the spool is gone"):
        numbers(generator_dataset(failing, signature))
