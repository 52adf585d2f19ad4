"""Lets all nodes take equally many steps over their own datasets of batches; see `NodeContext.even`.

Batches stay within TensorFlow. Beside them run two small conversations with `LockStep`: each batch that has been read
ahead is announced by its number of rows, and each step waits for what all nodes have announced for it. A node that has
run out goes on with its last batch, whose rows have the weight -0.0.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tfos_lab.data.schema import WEIGHT_KEY
from tfos_lab.errors import ConfigError
from tfos_lab.node.feed.dataset import FILLER_WEIGHT
from tfos_lab.node.feed.epoch import IDLE_S
from tfos_lab.node.generator_dataset import generator_dataset
from tfos_lab.node.keras.presharded import Presharded, mark_as_presharded
from tfos_lab.node.keras.workers import patch_keras

if TYPE_CHECKING:
    import tensorflow as tf

    from tfos_lab.node.lock_step import LockStep

# So many batches are read ahead. Steps of half a millisecond do not wait for the driver then.
_BATCHES_AHEAD = 8


def even_dataset(dataset: tf.data.Dataset, lock_step: LockStep | None, remainder: str) -> tf.data.Dataset:
    """Return the batches of a node such that all nodes have equally many; see `NodeContext.even`."""
    import tensorflow as tf

    patch_keras()  # the function may have imported Keras itself
    spec = dataset.element_spec
    _check(dataset, weighted=remainder == "exact")
    is_alone = lock_step is None or lock_step.nodes == 1
    rows = Presharded(weighted=True, padded=not is_alone, has_weights=remainder == "exact")
    if lock_step is None or is_alone:
        even = dataset if remainder == "drop" else dataset.map(lambda *batch: _weigh(_element(spec, batch), 1.0))
        return mark_as_presharded(even, rows)
    passes = _Passes(lock_step, lock_step.open(), drop=remainder == "drop")
    batches = _with_fillers(dataset, passes).prefetch(_BATCHES_AHEAD)
    factors = generator_dataset(passes.factors, tf.TensorSpec((1,), tf.float64)).filter(lambda factor: factor[0] >= 0)
    even = tf.data.Dataset.zip((batches, factors)).map(
        lambda batch, factor: batch if passes.drop else _weigh(batch, factor[0])
    )
    options = tf.data.Options()
    # TensorFlow cannot optimize a pipeline that has parts in Python, and would log that in every pass.
    options.experimental_optimization.apply_default_optimizations = False
    return mark_as_presharded(even.prefetch(1).with_options(options), rows)


def _check(dataset: tf.data.Dataset, *, weighted: bool) -> None:
    import tensorflow as tf

    spec, problems = dataset.element_spec, []
    if int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
        problems.append("it is endless, and endless datasets are even: end it with take(n), or leave ctx.even out")
    tensors = tf.nest.flatten(spec)
    if not all(isinstance(part, tf.TensorSpec) and part.shape.rank for part in tensors):
        problems.append("its elements are no batches of dense tensors: batch it before, as in dataset.batch(32)")
    is_weighable = isinstance(spec, dict) or (isinstance(spec, tuple) and len(spec) == 2)
    if isinstance(spec, tuple) and len(spec) == 3:
        is_weighable = isinstance(spec[2], tf.TensorSpec) and spec[2].dtype.is_floating
    if weighted and not is_weighable:
        problems.append(
            "remainder='exact' needs elements (x, y), (x, y, w) or a dict, so that rows can have weights (w: one float "
            "for each row); with remainder='drop' they may be anything"
        )
    if problems:
        raise ConfigError([f"ctx.even(dataset): {problem}" for problem in problems])


def _element(spec: Any, batch: tuple[Any, ...]) -> Any:
    """Undo that ``map`` calls its function with the parts of a tuple."""
    return batch if isinstance(spec, tuple) else batch[0]


# ---- batches --------------------------------------------------------------------------------------------------------


def _with_fillers(dataset: tf.data.Dataset, passes: _Passes) -> tf.data.Dataset:
    """Return the dataset's batches, announced as they are read, and then its last one again and again."""
    import tensorflow as tf

    spec = dataset.element_spec
    # What stands for a batch where a node has had none: one row of zeros, or as many as all batches have.
    nothing = tf.nest.map_structure(lambda part: tf.zeros([size or 1 for size in part.shape], part.dtype), spec)
    real = dataset.map(lambda *batch: (1, _element(spec, batch)))
    rest = tf.data.Dataset.from_tensors((0, nothing)).repeat()

    def step(last: Any, item: Any) -> tuple[Any, Any]:
        index, (count, batch) = item
        is_real = count > 0
        batch = tf.cond(is_real, lambda: batch, lambda: last)
        rows = tf.where(is_real, tf.shape(tf.nest.flatten(batch)[0], out_type=tf.int64)[0], -1)
        noted = tf.numpy_function(passes.note, [index, rows], tf.int64)
        with tf.control_dependencies([noted]):
            batch = tf.nest.map_structure(tf.identity, batch)
        return batch, batch

    return real.concatenate(rest).enumerate().scan(nothing, step)


@dataclass
class _Passes:
    """This node's passes over one dataset; tf.data's threads call its methods."""

    lock_step: LockStep
    dataset_id: int
    drop: bool
    passage: int = -1
    has_ended: bool = False

    def note(self, index: np.int64, rows: np.int64) -> np.int64:
        """Announce the rows of a batch that has been read ahead, or the end where there are none (-1)."""
        if index == 0:
            self.passage += 1
            self.has_ended = False
        if rows >= 0:
            self.lock_step.add_step(self.dataset_id, self.passage, int(rows), drop=self.drop)
        elif not self.has_ended:
            self.has_ended = True
            self.lock_step.end_pass(self.dataset_id, self.passage, drop=self.drop)
        return index

    def factors(self) -> Iterator[np.ndarray]:
        """Yield the factor of each step of the pass that has begun last; -1 now and then while it is not known."""
        passage = self.passage
        for step in itertools.count():
            factor = None
            while factor is None:
                factor = self.lock_step.factor(self.dataset_id, passage, step, IDLE_S, drop=self.drop)
                if factor is None:
                    yield np.array([-1.0])
            if factor < 0:
                return
            yield np.array([factor])


# ---- weights --------------------------------------------------------------------------------------------------------


def _weigh(batch: Any, factor: Any) -> Any:
    """Return a batch with weights, multiplied by the factor; those of filler rows are -0.0."""
    import tensorflow as tf

    if isinstance(batch, dict):
        rest = {name: rows for name, rows in batch.items() if name != WEIGHT_KEY}
        weights = batch.get(WEIGHT_KEY)
    else:
        rest, weights = batch[:2], batch[2] if len(batch) == 3 else None
    first = tf.nest.flatten(rest)[0]
    weights = tf.ones(tf.shape(first)[:1], tf.float32) if weights is None else weights
    scaled = tf.cast(tf.cast(weights, tf.float64) * factor, weights.dtype)
    filler = tf.fill(tf.shape(weights), tf.cast(FILLER_WEIGHT, weights.dtype))
    weights = tf.where(tf.cast(factor, tf.float64) > 0, scaled, filler)
    weights.set_shape(first.shape[:1].concatenate(weights.shape[1:]))
    return {**rest, WEIGHT_KEY: weights} if isinstance(batch, dict) else (*rest, weights)
