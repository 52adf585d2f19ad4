"""Training input from files: by a cluster that is given their paths, by tf.data by hand, and as rows from Spark.

Two nodes read the same Parquet and TFRecord files in turns with tf.data pipelines over the same files, and medians
count: on a machine whose speed drifts, it drifts for both. By hand, each node reads its half of the files. Parquet has
no reader in tf.data, so by hand it is pyarrow's batches through ``from_generator``, cut into batches by ``rebatch``.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tfos_lab
from benchmarks.feed import warm_up
from benchmarks.measure import Row, median
from benchmarks.sessions import local_session
from tfos_lab.data.tfrecords.codecs import encode
from tfos_lab.data.tfrecords.framing import frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROUNDS = 3
_PASSES = 5
_BATCH = 128
_PIXELS = 784
_FILES = 4
# As many as MNIST has for training, and as many rows of ten numbers as take about as long.
_ROWS = {"images": 60_000, "ten numbers": 400_000}
_FORMATS = ("parquet", "tfrecord")


def measure() -> Iterator[Row]:
    """Take turns, so that changes of the machine's speed affect all sides."""
    with tempfile.TemporaryDirectory() as folder, local_session() as spark:
        for what, rows in _ROWS.items():
            write_files(what, rows, Path(folder))
            for kind in _FORMATS:
                path = f"{folder}/{what}/*.{kind}"
                yield _later_epochs(f"{kind}, {what}", rows, path)
            frame_ = spark.read.parquet(f"{folder}/{what}/*.parquet")
            yield from _first_epochs(what, rows, f"{folder}/{what}", frame_)


def write_files(what: str, rows: int, folder: Path) -> None:
    """Write the same rows as Parquet files and as TFRecord files."""
    (folder / what).mkdir()
    random = np.random.default_rng(0)
    for number in range(_FILES):
        batch = _images(random, rows // _FILES) if what == "images" else _numbers(random, rows // _FILES)
        size = max(1, rows // _FILES // 4)
        pq.write_table(pa.Table.from_batches([batch]), folder / what / f"{number}.parquet", row_group_size=size)
        with (folder / what / f"{number}.tfrecord").open("wb") as sink:
            for first in range(0, batch.num_rows, 1000):
                sink.write(frame(encode(batch.slice(first, 1000))))


def _images(random: np.random.Generator, rows: int) -> pa.RecordBatch:
    pixels = pa.array(random.random(rows * _PIXELS, np.float32))
    lists = pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32) * _PIXELS), pixels)
    return pa.RecordBatch.from_pydict({"x": lists, "label": pa.array(random.integers(0, 10, rows))})


def _numbers(random: np.random.Generator, rows: int) -> pa.RecordBatch:
    columns = {f"x{i}": pa.array(random.random(rows, np.float32)) for i in range(6)}
    return pa.RecordBatch.from_pydict({**columns, **{f"n{i}": random.integers(0, 100_000, rows) for i in range(4)}})


def _later_epochs(what: str, rows: int, path: str) -> Row:
    """Compare whole passes, epoch by epoch; each of ours reads the files again, as by hand."""
    ours, by_hand = [], []
    for _ in range(_ROUNDS):
        with tfos_lab.run(read_in_turns, path, cluster_size=2, master_node=None) as cluster:
            cluster.train(path, epochs=1 + _PASSES)
            results = cluster.wait()
        ours.append(rows / max(result["ours_s"] for result in results.values()))
        by_hand.append(rows / max(result["by_hand_s"] for result in results.values()))
    met = median(ours) >= 0.9 * median(by_hand)
    return Row(f"{what}: an epoch (tf.data by hand)", "rows/s", median(ours), median(by_hand), "≥ 0.9 ×", met, _ROUNDS)


def _first_epochs(what: str, rows: int, folder: str, frame_: DataFrame) -> Iterator[Row]:
    """Compare the first epoch, from the call of train to the last row, with the same rows from Spark."""
    rates: dict[str, list[float]] = {kind: [] for kind in ("spark", *_FORMATS)}
    for _ in range(_ROUNDS):
        for kind, some in rates.items():
            data = frame_ if kind == "spark" else f"{folder}/*.{kind}"
            some.append(rows / _first_epoch(data, frame_))
    spark = median(rates["spark"])
    for kind in _FORMATS:
        ours = median(rates[kind])
        title = f"{kind}, {what}: first epoch from train's call (rows from Spark)"
        yield Row(title, "rows/s", ours, spark, "beside", None, _ROUNDS)


def _first_epoch(data: Any, frame_: DataFrame) -> float:
    with tfos_lab.run(read_once, cluster_size=2, master_node=None) as cluster:
        warm_up(cluster, frame_)
        started = time.time()
        cluster.train(data)
        return max(cluster.wait().values()) - started


def read_once(_args: object, ctx: Any) -> float:
    """Read a few rows, then one epoch; return when it ended."""
    import time

    for _ in ctx.dataset(128):
        pass
    ctx.report(warm=1)
    for batch in ctx.dataset(128):
        next(iter(batch.values())).shape[0]
    return time.time()


def read_in_turns(path: str, ctx: Any) -> dict[str, float]:
    """Read epochs of the feed in turns with passes by hand over this node's half of the files; return seconds."""
    import time
    from statistics import median

    import pyarrow.parquet as pq
    import tensorflow as tf

    def seconds_of_pass(pipeline: tf.data.Dataset) -> float:
        started = time.perf_counter()
        for batch in pipeline:
            next(iter(batch.values())).shape[0]
        return time.perf_counter() - started

    def records(files: list[str]) -> tf.data.Dataset:
        features = {
            name: tf.io.FixedLenFeature(spec.shape[1:], tf.int64 if spec.dtype.is_integer else tf.float32)
            for name, spec in signature.items()
        }
        rows = tf.data.TFRecordDataset(files, num_parallel_reads=1).batch(batch_size)
        return rows.map(lambda some: tf.io.parse_example(some, features), num_parallel_calls=1)

    def row_groups(files: list[str]) -> tf.data.Dataset:
        def batches():  # noqa: ANN202 - what the signature below says
            for file in files:
                for batch in pq.ParquetFile(file).iter_batches(2048):
                    yield {
                        name: batch.column(name).to_numpy()
                        if spec.shape.rank == 1
                        else batch.column(name).flatten().to_numpy().reshape(-1, *spec.shape[1:])
                        for name, spec in signature.items()
                    }

        return tf.data.Dataset.from_generator(batches, output_signature=signature).rebatch(batch_size)

    batch_size = 128
    dataset = ctx.dataset(batch_size)
    seconds_of_pass(dataset)
    signature = {
        name: tf.TensorSpec((None, *spec.shape[1:]), spec.dtype)
        for name, spec in dataset.element_spec.items()
        if name != "sample_weight"
    }
    files = sorted(map(str, Path(path).parent.glob(Path(path).name)))[ctx.worker_num :: ctx.world_size]
    by_hand = (records if path.endswith(".tfrecord") else row_groups)(files).prefetch(2)
    seconds_of_pass(by_hand)
    turns = [(seconds_of_pass(dataset), seconds_of_pass(by_hand)) for _ in range(ctx.epochs - 1)]
    ours_s, by_hand_s = (median(times) for times in zip(*turns, strict=True))
    return {"ours_s": ours_s, "by_hand_s": by_hand_s}
