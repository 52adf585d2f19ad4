"""TFRecord files of Arrow batches on one core: by the batch, compared with loops over `tf.train.Example`s."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.measure import Row, median, seconds_of
from tfos_lab.data.tfrecords.codecs import decode, encode
from tfos_lab.data.tfrecords.framing import frame, read_frames

_ROUNDS = 5
_ROWS = 10_000
_PIXELS = 784


def measure() -> Iterator[Row]:
    """Take turns, so that changes of the machine's speed affect both sides."""
    random = np.random.default_rng(1)
    batches = {"10 columns": _table(random), "MNIST images": _images(random)}
    with tempfile.TemporaryDirectory() as folder:
        for what, batch in batches.items():
            ours, theirs = Path(folder) / "ours", Path(folder) / "theirs"
            work = {
                "written": (lambda b=batch, p=ours: write(b, p), lambda b=batch, p=theirs: write_by_hand(b, p)),
                "read": (
                    lambda b=batch, p=ours: read(b.schema, p),
                    lambda b=batch, p=theirs: read_by_hand(b.schema, p),
                ),
            }
            for verb, (by_batch, by_hand) in work.items():
                pairs = [(seconds_of(by_batch), seconds_of(by_hand)) for _ in range(_ROUNDS)]
                fast, slow = (_ROWS / median(list(times)) for times in zip(*pairs, strict=True))
                yield Row(f"TFRecords {verb}, {what}", "rows/s", fast, slow, "≥ 10 ×", fast >= 10 * slow, _ROUNDS)
            assert read(batch.schema, theirs).equals(read_by_hand(batch.schema, ours))


def write(batch: pa.RecordBatch, path: Path) -> None:
    """Write a batch as a Spark task of tfos_lab does."""
    with path.open("wb") as sink:
        for first in range(0, batch.num_rows, 1000):
            sink.write(frame(encode(batch.slice(first, 1000))))


def read(schema: pa.Schema, path: Path) -> pa.Table:
    """Read a file as a Spark task of tfos_lab does."""
    with path.open("rb") as stream:
        return pa.Table.from_batches([decode(frames, schema) for frames in read_frames(stream, str(path))], schema)


def write_by_hand(batch: pa.RecordBatch, path: Path) -> None:
    """Write a batch row by row."""
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in batch.to_pylist():
            features = {}
            for name, value in row.items():
                values = value if isinstance(value, list) else [value]
                if isinstance(values[0], str):
                    encoded = [text.encode() for text in values]
                    features[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=encoded))
                elif isinstance(values[0], float):
                    features[name] = tf.train.Feature(float_list=tf.train.FloatList(value=values))
                else:
                    features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def read_by_hand(schema: pa.Schema, path: Path) -> pa.Table:
    """Read a file record by record."""
    import tensorflow as tf

    columns = {name: [] for name in schema.names}
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        features = tf.train.Example.FromString(record).features.feature
        for field in schema:
            feature = features[field.name]
            values = list(getattr(feature, feature.WhichOneof("kind")).value)
            columns[field.name].append(values if pa.types.is_list(field.type) else values[0])
    return pa.Table.from_pydict(columns, schema=schema)


def _table(random: np.random.Generator) -> pa.RecordBatch:
    columns = {f"x{i}": pa.array(random.random(_ROWS), pa.float32()) for i in range(5)}
    columns |= {f"n{i}": pa.array(random.integers(0, 100_000, _ROWS)) for i in range(4)}
    return pa.RecordBatch.from_pydict({**columns, "name": pa.array([f"row {i}" for i in range(_ROWS)])})


def _images(random: np.random.Generator) -> pa.RecordBatch:
    pixels = pa.array(random.random(_ROWS * _PIXELS), pa.float32())
    images = pa.ListArray.from_arrays(pa.array(np.arange(_ROWS + 1, dtype=np.int32) * _PIXELS), pixels)
    return pa.RecordBatch.from_pydict({"image": images, "label": pa.array(random.integers(0, 10, _ROWS))})
