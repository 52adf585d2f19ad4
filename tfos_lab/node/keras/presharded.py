"""Marks datasets that hold only this worker's rows, and answers questions about marked datasets.

Under a `MultiWorkerMirroredStrategy`, TensorFlow takes every dataset for the whole of the data and gives each worker a
part of it. The rows of a feed are this worker's part already, in batches of its own size, and all workers have the same
number of batches. `mark_as_presharded` marks such a dataset; the strategy, patched by `distribute`, then takes each
element as one batch of this worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf

_MARK = "_tfos_lab_presharded"
# Transformations that keep the workers' numbers of steps equal. After any other, the workers ask each other.
_KEEPING_STEPS = {
    "_MapDataset",
    "_ParallelMapDataset",
    "_OptionsDataset",
    "_PrefetchDataset",
    "_RepeatDataset",
    "_ShuffleDataset",
    "_SkipDataset",
    "_TakeDataset",
}
# Transformations that leave the weights unchanged.
_KEEPING_WEIGHTS = _KEEPING_STEPS - {"_MapDataset", "_ParallelMapDataset"}


@dataclass(frozen=True)
class Presharded:
    """What is known about a marked dataset."""

    # Whether the user has given weights to rows.
    weighted: bool = False
    # Whether batches are filled up with filler rows.
    padded: bool = False
    # Whether the weights are still those that `ctx.dataset` has made.
    weights_are_ours: bool = True
    # Whether rows are to be counted by their weights; otherwise Keras counts them by itself.
    has_weights: bool = True
    # Whether a row counts as read when it is asked for, so that none may be asked for ahead.
    is_stream: bool = False
    # Whether they are the rows to train on, and no others.
    to_train: bool = False


_UNKNOWN = Presharded(weighted=True)
# What `ctx.files` has returned in this process.
_own_files: set[bytes] = set()


def mark_as_presharded(dataset: tf.data.Dataset, rows: Presharded | None = None) -> tf.data.Dataset:
    """Mark a dataset as one that holds this worker's rows only, in as many batches as every other worker has.

    Every strategy then takes each element as one batch of this worker; nothing is left out or split. Datasets that are
    derived from it (`map`, `take`, `prefetch`, …) are marked as well. On a node with several GPUs, each batch is
    divided among them. ``rows`` is what `ctx.dataset` knows about them; its weights make the numbers of all workers
    those of one process.
    """
    import tensorflow as tf

    options = tf.data.Options()
    # Keeps all rows also under a strategy that is not patched, as in a process that tfos_lab did not start.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return mark(dataset.with_options(options), rows or _UNKNOWN)


def mark(dataset: tf.data.Dataset, rows: Presharded) -> tf.data.Dataset:
    """Mark a dataset that no other strategy than the patched one will ever see."""
    setattr(dataset, _MARK, rows)
    return dataset


def presharded_of(dataset: tf.data.Dataset | None) -> Presharded | None:
    """Return what is known about a marked dataset, or about the one that it derives from; None for anything else."""
    if dataset is None or not hasattr(dataset, "element_spec"):
        return None  # arrays
    untouched = True
    for source in sources_of(dataset):
        rows = getattr(source, _MARK, None)
        if rows is not None:
            return None if rows is _UNKNOWN else replace(rows, weights_are_ours=rows.weights_are_ours and untouched)
        untouched = untouched and (type(source).__name__ in _KEEPING_WEIGHTS or _passes_weights(source))
    return None


def _passes_weights(mapped: tf.data.Dataset) -> bool:
    """Whether a map over ``(x, y, w)`` returns the w that it is given."""
    function = getattr(getattr(mapped, "_map_func", None), "function", None)
    spec = mapped.element_spec
    if function is None or not (isinstance(spec, tuple) and len(spec) == 3):
        return False
    graph, input_spec = function.graph, getattr(mapped, "_input_dataset", mapped).element_spec
    if not (isinstance(input_spec, tuple) and len(input_spec) == 3):
        return False
    weights = graph.outputs[-1]
    while weights.op.type == "Identity":
        weights = weights.op.inputs[0]
    inputs = len(graph.inputs) - len(graph.captures)
    return weights is graph.inputs[inputs - 1]


def is_presharded(dataset: tf.data.Dataset) -> bool:
    """Whether a dataset is marked by `mark_as_presharded`, derives from one that is, or reads this node's own files."""
    return any(getattr(source, _MARK, None) is not None or _names_own_files(source) for source in sources_of(dataset))


def remember_own_files(paths: Iterable[str]) -> None:
    """Take a dataset that reads files of these names, and no others, for this worker's part of the data."""
    _own_files.update(path.encode() for path in paths)


def _names_own_files(source: tf.data.Dataset) -> bool:
    """Whether these are names of files, all of which are this node's own."""
    if not _own_files:
        return False
    if hasattr(named := getattr(source, "_filenames", None), "element_spec"):
        return any(_names_own_files(inner) for inner in sources_of(named))
    tensors = getattr(source, "_tensors", None) or [named]
    if any(getattr(tensor, "dtype", None) != "string" or not hasattr(tensor, "numpy") for tensor in tensors):
        return False
    names = {name for tensor in tensors for name in np.ravel(tensor.numpy())}
    return bool(names) and names <= _own_files


def keeps_steps(dataset: tf.data.Dataset) -> bool:
    """Whether a dataset derives from a marked one only by transformations that keep the workers' steps equal."""
    for source in sources_of(dataset):
        if getattr(source, _MARK, None) is not None:
            return True
        if type(source).__name__ not in _KEEPING_STEPS:
            return False
    return False


def ends_together(dataset: tf.data.Dataset) -> bool:
    """Whether workers take their last step over a dataset together, as over that of a feed, without asking."""
    return presharded_of(dataset) is not None and keeps_steps(dataset)


def is_statically_shaped(dataset: tf.data.Dataset | tf.distribute.DistributedDataset) -> bool:
    """Whether all elements of a dataset, distributed or not, have the same known shapes."""
    import tensorflow as tf

    specs = [getattr(spec, "_value_specs", (spec,))[0] for spec in tf.nest.flatten(dataset.element_spec)]
    return all(isinstance(spec, tf.TensorSpec) and spec.shape.rank and spec.shape.is_fully_defined() for spec in specs)


def forget_count_of_rows(*batch: Any) -> Any:
    """Return a batch whose tensors have no static number of rows."""
    import tensorflow as tf

    def forget(rows: Any) -> Any:
        if not tf.is_tensor(rows) or not rows.shape.rank:
            return rows
        return tf.compat.v1.placeholder_with_default(rows, [None, *rows.shape[1:]])

    batch = tf.nest.map_structure(forget, batch)
    return batch if len(batch) > 1 else batch[0]


def sources_of(dataset: tf.data.Dataset) -> Iterator[tf.data.Dataset]:
    """Yield the dataset and all datasets that it derives from."""
    pending = [dataset]
    while pending:
        source = pending.pop()
        yield source
        # There is no public way to ask. A distributed dataset, or one that has passed through a tf.function, has none.
        pending.extend(getattr(source, "_inputs", list)())
