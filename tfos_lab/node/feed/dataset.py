"""Makes the ``tf.data.Dataset`` that ``ctx.dataset`` returns: batches of this node's rows."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tfos_lab.core.config import REMAINDER_CHOICES
from tfos_lab.core.messages import INPUT_QUEUE, TRAIN
from tfos_lab.data.rows import count_rows, slice_rows, zeros
from tfos_lab.data.schema import WEIGHT_KEY, ColumnSpec, columns_of_label, select_columns
from tfos_lab.errors import ConfigError, FeedError
from tfos_lab.node.activity.steps import STEPS
from tfos_lab.node.feed.epoch import Piece
from tfos_lab.node.generator_dataset import generator_dataset

if TYPE_CHECKING:
    import tensorflow as tf

    from tfos_lab.node.feed.node_feed import Reading
    from tfos_lab.node.feed.reader import FeedReader


# The weight of filler rows: a zero that no real row has, whatever its weight, and that sums like any other zero.
FILLER_WEIGHT = np.float32(-0.0)
# By then all nodes that train have opened their dataset, unless the user's function opens it on some nodes only.
_PLAN_PATIENCE_S = 10.0
_OTHER_ROWS = (
    "this dataset was made for rows that fill all their batches, and those that come now do not: call ctx.dataset anew "
    "for each cluster.train"
)


@dataclass(frozen=True)
class DatasetRequest:
    """The arguments of ``ctx.dataset``; see there."""

    batch_size: int
    split: str
    features: Sequence[str] | None
    label: str | Sequence[str] | Mapping[str, str] | None
    weight: str | None
    shuffle: bool
    seed: int | None
    remainder: str | None
    prefetch: int
    decode_raw: Mapping[str, tuple[str, Sequence[int]]] | None

    def __post_init__(self) -> None:
        problems = []
        if isinstance(self.batch_size, bool) or not isinstance(self.batch_size, int) or self.batch_size < 1:
            problems.append(f"batch_size={self.batch_size!r}: a whole number of rows, at least 1, is needed")
        if not isinstance(self.split, str) or not self.split or self.split == INPUT_QUEUE:
            problems.append(f"split={self.split!r}: the name of a split is needed, such as 'train' or 'validation'")
        if self.remainder not in (None, *REMAINDER_CHOICES):
            problems.append(f"remainder={self.remainder!r}: use 'exact', 'pad' or 'drop'")
        if problems:
            raise ConfigError(problems)


def make_dataset(feed: FeedReader, request: DatasetRequest) -> tf.data.Dataset | NumpyBatches:
    """Return the dataset, or NumPy batches where none can be made; see `NodeContext.dataset`."""
    queue = INPUT_QUEUE if request.split == TRAIN else request.split
    layout = _Layout(feed.specs(queue), request)
    reading = feed.open(request.batch_size, request.remainder, shuffle=request.shuffle, seed=request.seed, queue=queue)

    def numpy_epoch() -> Iterator[Any]:
        for piece in feed.epoch(reading):
            if piece is not None:
                for batch in _single_batches(piece, reading.batch_size):
                    STEPS.take_batch()
                    yield layout.arrange(batch)

    batches = NumpyBatches(numpy_epoch)
    graph = _plain_graph()
    if graph is not None and graph.finalized:
        return batches  # nothing can be added to it
    return _with_numpy_batches(_tensor_dataset(feed, reading, layout, request), batches)


def _tensor_dataset(feed: FeedReader, reading: Reading, layout: _Layout, request: DatasetRequest) -> tf.data.Dataset:
    """Return the dataset, marked as this node's part of the rows."""
    import tensorflow as tf

    from tfos_lab.node.keras.presharded import Presharded, mark_as_presharded
    from tfos_lab.node.keras.workers import patch_keras

    patch_keras()  # the function may have imported Keras itself
    remainder = reading.remainder
    schedule = feed.known_schedule(reading, _PLAN_PATIENCE_S)
    static = remainder != "exact" or (schedule is not None and schedule.even_steps == schedule.steps)
    if feed.is_stream(reading.queue) and not static:
        dataset = _batch_by_batch(feed, reading, layout)
    else:
        has_tail = not static and (schedule is None or schedule.steps - schedule.full > 1)
        dataset = _cut_from_pieces(feed, reading, layout, static=static, has_tail=has_tail)
    if schedule is not None:
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(schedule.steps))
    options = tf.data.Options()
    # TensorFlow cannot optimize a pipeline that begins in Python, and would log that in every epoch.
    options.experimental_optimization.apply_default_optimizations = False
    # There is nothing to tune, and on busy cores an iterator that ends often has to wait for the tuner's thread, whose
    # rounds come after 0.31, 0.63, 1.27, 2.55 s and so on (seen on TensorFlow 2.21).
    options.autotune.enabled = False
    # A stream's rows count as read once the function asks for the next ones, so nothing else may ask ahead.
    is_stream = feed.is_stream(reading.queue)
    if request.prefetch and not is_stream:
        dataset = dataset.prefetch(request.prefetch)
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    rows = Presharded(
        weighted=request.weight is not None,
        padded=remainder == "pad",
        is_stream=is_stream,
        to_train=request.split == TRAIN,
    )
    return mark_as_presharded(dataset.with_options(options), rows)


def _cut_from_pieces(
    feed: FeedReader, reading: Reading, layout: _Layout, *, static: bool, has_tail: bool
) -> tf.data.Dataset:
    """Return batches that are cut from larger pieces: crossing from Python to TensorFlow costs more than cutting.

    The short batch that ends an epoch is what remains of its last piece. If more short batches follow, they come from a
    second dataset.
    """
    ended: list[Iterator[Piece | None]] = []

    # TensorFlow waits for the generator of an iterator that it discards, so empty pieces are yielded while there are no
    # rows.
    def pieces() -> Iterator[Any]:
        epoch = feed.epoch(reading)
        for piece in epoch:
            if piece is not None and piece.short and static:
                raise FeedError(reason=_OTHER_ROWS)
            yield layout.nothing() if piece is None else layout.arrange(piece)
            if piece is not None and piece.short and has_tail:
                ended.append(epoch)
                return

    def rest() -> Iterator[Any]:
        # The last epoch that has ended is that of the same iterator: TensorFlow starts the second dataset at once.
        for piece in ended.pop() if ended else ():
            if piece is not None:
                yield from map(layout.arrange, _single_batches(piece, reading.batch_size))

    dataset = generator_dataset(pieces, layout.signature()).rebatch(reading.batch_size, drop_remainder=static)
    # Only datasets of the same structure can be concatenated, and this one has lost its tensors' names.
    return dataset.concatenate(generator_dataset(rest, dataset.element_spec)) if has_tail else dataset


def _batch_by_batch(feed: FeedReader, reading: Reading, layout: _Layout) -> tf.data.Dataset:
    """Return the batches of a stream, any of which may be short."""
    import tensorflow as tf

    def batches() -> Iterator[Any]:
        for piece in feed.epoch(reading):
            if piece is None:
                yield layout.nothing()
            else:
                yield from map(layout.arrange, _single_batches(piece, reading.batch_size))

    dataset = generator_dataset(batches, layout.signature())
    return dataset.filter(lambda *batch: tf.shape(tf.nest.flatten(batch)[0])[0] > 0)


def _single_batches(piece: Piece, batch_size: int) -> Iterator[Piece]:
    for start in range(0, count_rows(piece.columns), batch_size):
        columns = slice_rows(piece.columns, start, start + batch_size)
        factor = piece.factor if isinstance(piece.factor, float) else piece.factor[start : start + batch_size]
        yield replace(piece, columns=columns, rows=max(0, min(piece.rows - start, batch_size)), factor=factor)


def _decoded_specs(specs: Sequence[ColumnSpec], asked: object) -> dict[str, ColumnSpec]:
    """Return what the columns of bytes become that ``decode_raw`` names."""
    by_name = {spec.name: spec for spec in specs}
    if not isinstance(asked, Mapping):
        raise ConfigError([f"decode_raw={asked!r}: a dict is needed, such as {{'image': ('uint8', (28, 28))}}"])
    decoded, problems = {}, []
    for name, form in asked.items():
        try:
            dtype, shape = form
            fixed = tuple(map(operator.index, shape))
            spec = ColumnSpec(name, "number", np.dtype(dtype).name, fixed)
        except (TypeError, ValueError):
            problems.append(f"decode_raw[{name!r}]={form!r}: a dtype and a shape are needed, as in ('uint8', (28, 28))")
            continue
        if name not in by_name or np.dtype(by_name[name].dtype) != object or by_name[name].shape:
            there = by_name.get(name, "no column of that name is fed")
            problems.append(f"decode_raw[{name!r}]: one value of bytes or text in each row is needed; {there}")
        elif np.dtype(dtype).kind not in "biuf" or any(size < 0 for size in fixed):
            problems.append(f"decode_raw[{name!r}]={form!r}: numbers of a known shape are needed")
        decoded[name] = spec
    if problems:
        raise ConfigError(problems)
    return decoded


def _decoded(values: np.ndarray, spec: ColumnSpec) -> np.ndarray:
    """Return the numbers that values of bytes hold, each of the same shape; see `NodeContext.dataset`."""
    shape = tuple(size or 0 for size in spec.shape)
    dtype, wanted = np.dtype(spec.dtype), np.dtype(spec.dtype).itemsize * math.prod(shape)
    found = next((len(value) for value in values if len(value) != wanted), wanted)
    if found != wanted:
        form = f"{spec.dtype} of the shape {shape}"
        raise FeedError(reason=f"decode_raw: {form} has {wanted} bytes, and a value of '{spec.name}' has {found}")
    if not wanted or not len(values):
        return np.zeros((len(values), *shape), dtype)
    return np.frombuffer(b"".join(values), dtype).reshape(len(values), *shape)


class _Layout:
    """Arranges columns as an element: a dict, or the triple ``(x, y, w)``, where y may be a tuple or a dict."""

    def __init__(self, specs: Sequence[ColumnSpec], request: DatasetRequest) -> None:
        self._by_name = {spec.name: spec for spec in specs}
        self._decoded = _decoded_specs(specs, request.decode_raw) if request.decode_raw is not None else {}
        self._label = request.label
        self._weight = request.weight
        labels = [] if request.label is None else columns_of_label(request.label)
        named = [*dict.fromkeys(labels), *filter(None, [request.weight])]
        asked = list(request.features or ())
        # A column may be a feature and a label, as for an autoencoder.
        asked += [name for name in named if name not in labels or name not in asked]
        select_columns(list(self._by_name), asked or None)
        rest = [name for name in self._by_name if name not in named]
        self._features = list(request.features) if request.features else rest
        if not self._features:
            raise ConfigError([f"no feature column is left beside {', '.join(named)}"])
        if self._label is None and WEIGHT_KEY in self._features:
            problem = f"column '{WEIGHT_KEY}': batches without a label have the weights of their rows under this name"
            raise ConfigError([f"{problem}; say weight='{WEIGHT_KEY}' if it holds them, or rename it"])

    def signature(self) -> Any:
        """Return the `tf.TensorSpec`s of a piece; its rows are the first dimension."""
        import tensorflow as tf

        tensors = {
            name: tf.TensorSpec((None, *spec.shape), getattr(tf, spec.tf_dtype), name=name)
            for name, spec in (self._by_name | self._decoded).items()
        }
        weights = tf.TensorSpec((None,), tf.float32, name=WEIGHT_KEY)
        return self._shape_up(tensors, weights)

    def arrange(self, piece: Piece) -> Any:
        """Return the element of a piece's rows. Filler rows have the weight -0.0, which no other row has.

        Raises FeedError if the columns are not those that the dataset was made for.
        """
        columns = piece.columns
        for spec in self._by_name.values():
            if not _fits(columns.get(spec.name), spec):
                came = [ColumnSpec(name, "number", str(has.dtype), has.shape[1:]) for name, has in columns.items()]
                raise FeedError(
                    reason=f"this dataset was made for rows of ({_specs_text(self._by_name.values())}), and now come "
                    f"rows of ({_specs_text(came)}): call ctx.dataset anew for each cluster.train"
                )
        count = count_rows(columns)
        if self._decoded:
            columns = {**columns, **{name: _decoded(columns[name], spec) for name, spec in self._decoded.items()}}
        weights = np.ones(count, np.float32) if self._weight is None else columns[self._weight]
        if self._weight is not None or not isinstance(piece.factor, float) or piece.factor != 1.0:
            weights = (weights.astype(np.float64) * piece.factor + 0.0).astype(np.float32)
        weights[piece.rows :] = FILLER_WEIGHT
        return self._shape_up(columns, weights)

    def nothing(self) -> Any:
        """Return an element without rows."""
        return self.arrange(Piece(zeros(self._by_name.values(), 0), 0))

    def _shape_up(self, columns: dict[str, Any], weights: Any) -> Any:
        features = {name: columns[name] for name in self._features}
        if self._label is None:
            return {**features, WEIGHT_KEY: weights}
        x = features[self._features[0]] if len(features) == 1 else features
        y: Any
        if isinstance(self._label, str):
            y = columns[self._label]
        elif isinstance(self._label, Mapping):
            y = {output: columns[name] for output, name in self._label.items()}
        else:
            y = tuple(columns[name] for name in self._label)
        return x, y, weights


def _fits(values: np.ndarray | None, spec: ColumnSpec) -> bool:
    if values is None or values.dtype != spec.dtype or values.ndim != 1 + len(spec.shape):
        return False
    return all(size in (known, None) for known, size in zip(values.shape[1:], spec.shape, strict=True))


def _specs_text(specs: Iterable[ColumnSpec]) -> str:
    return ", ".join(map(str, specs))


class NumpyBatches:
    """The batches of a dataset as (nested) NumPy arrays; each iteration is one epoch."""

    def __init__(self, epoch: Callable[[], Iterator[Any]]) -> None:
        self._epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        return self._epoch()


def _plain_graph() -> tf.Graph | None:
    """Return the default graph if it is one of TensorFlow 1, and not that of a ``tf.function``."""
    import tensorflow as tf

    return None if tf.compat.v1.executing_eagerly_outside_functions() else tf.compat.v1.get_default_graph()


def _with_numpy_batches(dataset: tf.data.Dataset, batches: NumpyBatches) -> tf.data.Dataset:
    """Return the dataset, over which Python can iterate in a plain graph, too: there it yields ``batches``."""
    kind = type(dataset)

    def iterate(dataset: tf.data.Dataset) -> Iterator[Any]:
        return kind.__iter__(dataset) if _plain_graph() is None else iter(batches)

    # TensorFlow and Keras know transformations by the names of their classes.
    dataset.__class__ = type(kind.__name__, (kind,), {"__iter__": iterate})
    return dataset
