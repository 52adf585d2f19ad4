"""Reading files: by two nodes that are given them, and by Spark itself with as many threads on the same cores.

The nodes' time is that from the call of `train` until the last batch is a tensor; Spark's that of a job that reads all
columns and keeps none. Spark is given the schema of CSV and JSON, which saves it what the nodes do: one pass more.
TFRecords Spark reads by `tfos_lab.data.read_tfrecords`, as it has no reader of its own.
"""

from __future__ import annotations

import itertools
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

import tfos_lab
from benchmarks.measure import Row, median, seconds_of
from benchmarks.sessions import local_session
from tfos_lab.data.tfrecords.codecs import encode
from tfos_lab.data.tfrecords.framing import frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROUNDS = 3
_FILES = 4
_ROWS = 400_000
_GOAL = 0.8
_NAMES = {"parquet": "Parquet", "csv": "CSV", "json": "JSON", "tfrecord": "TFRecords"}


def measure() -> Iterator[Row]:
    """Take turns, so that changes of the machine's speed affect both sides."""
    with tempfile.TemporaryDirectory() as folder, local_session() as spark:
        schema = write_files(Path(folder))
        with tfos_lab.run(read_feeds, folder, cluster_size=2, master_node=None) as cluster:
            feeds = itertools.count()
            for kind, name in _NAMES.items():
                path = f"{folder}/*.{kind}"
                spark_s, ours_s = [], []
                for _ in range(1 + _ROUNDS):  # the first warms both
                    spark_s.append(seconds_of(_reader(spark, kind, path, schema)))
                    ours_s.append(_seconds_of_nodes(cluster, path, Path(folder), next(feeds)))
                ours, sparks = (_ROWS / median(times[1:]) for times in (ours_s, spark_s))
                size = sum(file.stat().st_size for file in Path(folder).glob(f"*.{kind}")) >> 20
                what = f"{name}, {size} MiB: read from train's call on (Spark's own read)"
                yield Row(what, "rows/s", ours, sparks, f"≥ {_GOAL} ×", ours >= _GOAL * sparks, _ROUNDS)
            cluster.stop()


def write_files(folder: Path) -> str:
    """Write the same rows of ten numbers in each format; return their schema."""
    random = np.random.default_rng(0)
    for number in range(_FILES):
        rows = _ROWS // _FILES
        floats = {f"x{i}": random.random(rows, np.float32) for i in range(6)}
        batch = pa.RecordBatch.from_pydict(floats | {f"n{i}": random.integers(0, 100_000, rows) for i in range(4)})
        table = pa.Table.from_batches([batch])
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=rows // 4)
        csv.write_csv(table, folder / f"{number}.csv")
        with (folder / f"{number}.json").open("w") as lines, (folder / f"{number}.tfrecord").open("wb") as records:
            for first in range(0, rows, 1000):
                some = batch.slice(first, 1000)
                lines.writelines(json.dumps(row) + "\n" for row in some.to_pylist())
                records.write(frame(encode(some)))
    return ", ".join(f"{field.name} {'double' if field.name[0] == 'x' else 'long'}" for field in batch.schema)


def _reader(spark: SparkSession, kind: str, path: str, schema: str) -> Callable[[], None]:
    def frame_of() -> DataFrame:
        match kind:
            case "parquet":
                return spark.read.parquet(path)
            case "tfrecord":
                return tfos_lab.data.read_tfrecords(spark, path, schema.replace("double", "float"))
        return spark.read.schema(schema).option("header", "true").format(kind).load(path)

    return lambda: frame_of().write.format("noop").mode("overwrite").save()


def _seconds_of_nodes(cluster: tfos_lab.Cluster, path: str, folder: Path, feed: int) -> float:
    started = time.time()
    cluster.train(path)
    while len(ends := list(folder.glob(f"{feed}-*.end"))) < len(cluster.nodes):
        if cluster.ended:
            cluster.wait()  # raises what has happened
        time.sleep(0.01)
    return max(end.stat().st_mtime for end in ends) - started


def read_feeds(folder: str, ctx: Any) -> None:
    """Read one feed after the other, and leave a file at the end of each."""
    import itertools
    from pathlib import Path

    for feed in itertools.count():
        for _ in ctx.dataset(1024):
            pass
        Path(folder, f"{feed}-{ctx.worker_num}.end").touch()
