"""Batches of NumPy arrays for loops of TensorFlow 1, which feed them to a session with ``feed_dict``.

Where a plain graph is built or run, TensorFlow refuses to iterate over a dataset in Python; in a finalized graph, as
within a `MonitoredTrainingSession`, it cannot even make one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tensorflow as tf


class NumpyBatches:
    """The batches of a dataset as (nested) NumPy arrays; each iteration is one epoch.

    Parameters
    ----------
    epoch : callable
        Returns an iterator over the batches of the next epoch.
    """

    def __init__(self, epoch: Callable[[], Iterator[Any]]) -> None:
        self._epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        return self._epoch()


def in_plain_graph() -> bool:
    """Whether the default graph is one of TensorFlow 1, and not that of a ``tf.function``."""
    import tensorflow as tf

    return not tf.compat.v1.executing_eagerly_outside_functions()


def can_add_ops() -> bool:
    """Whether a dataset can be made here: not in a finalized graph."""
    import tensorflow as tf

    return not (in_plain_graph() and tf.compat.v1.get_default_graph().finalized)


def with_numpy_batches(dataset: tf.data.Dataset, batches: NumpyBatches) -> tf.data.Dataset:
    """Return the dataset, over which Python can iterate in a plain graph, too: there it yields ``batches``."""
    kind = type(dataset)

    def iterate(dataset: tf.data.Dataset) -> Iterator[Any]:
        return iter(batches) if in_plain_graph() else kind.__iter__(dataset)

    # TensorFlow and Keras know transformations by the names of their classes.
    dataset.__class__ = type(kind.__name__, (kind,), {"__iter__": iterate})
    return dataset
