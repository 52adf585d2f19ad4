"""Loops in Python over datasets are counted, and nothing else changes for them."""

from __future__ import annotations

import pytest

from tfos_lab.node.keras.steps import patch_iterators
from tfos_lab.node.lock_step import STEP_COUNT

pytestmark = pytest.mark.tensorflow


def test_elements_of_datasets_are_counted_to_their_end():
    import tensorflow as tf

    patch_iterators()
    patch_iterators()
    batches = iter(tf.data.Dataset.range(6).batch(2))
    assert next(batches).numpy().tolist() == [0, 1]
    assert (STEP_COUNT.steps, STEP_COUNT.ended) == (1, False)
    assert [batch.numpy().tolist() for batch in batches] == [[2, 3], [4, 5]]
    assert (STEP_COUNT.steps, STEP_COUNT.ended) == (3, True)
    with pytest.raises(StopIteration):
        next(batches)
