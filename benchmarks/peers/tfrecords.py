"""TFRecord files of a Spark job, compared with what TensorFlowOnSpark's dfutil does for each row.

dfutil reads and writes files through a JAR that is not available as a Python package. Here it does all but that: it
converts a DataFrame's rows to ``tf.train.Example``s, and records in memory to a DataFrame. With files it could only be
slower. Ours does everything: from a DataFrame to files in their final place, and from files to a DataFrame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import tfos_lab
from benchmarks.measure import Row, median, not_measured, seconds_of
from benchmarks.peers.digits import MANY, write_digits
from benchmarks.peers.peer import PeerFailed
from benchmarks.peers.rig import Rig, take_turns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CORES = 2
_TABLE_ROWS = 50_000
_ROUNDS = 2
_TIMES = 3


def measure(rig: Rig) -> Iterator[Row]:
    """Write and read images, and tables of ten columns; rows per second on each of two cores."""
    sources = {"MNIST as integers": write_digits(rig, MANY), "10 columns": _write_table(rig)}
    for name, source in sources.items():
        frame = rig.spark.read.parquet(source).repartition(_CORES).cache()
        frame.count()
        for comparison in (
            _Comparison(f"TFRecords written, {name}", _write, "make_examples"),
            _Comparison(f"TFRecords read, {name}", _read, "take_examples"),
        ):
            yield comparison.measure(rig, frame, source)
        frame.unpersist()


def _write_table(rig: Rig) -> str:
    path = str(rig.folder / "table")
    numbers = [f"cast(id / {i} as float) x{i}" for i in range(1, 6)] + [f"id * {i} n{i}" for i in range(1, 5)]
    rig.spark.range(_TABLE_ROWS).selectExpr(*numbers, "concat('row ', id) name").write.parquet(path)
    return path


@dataclass(frozen=True)
class _Comparison:
    """Something that both do: ours with a DataFrame and a path for TFRecord files, theirs by a function of `inside`."""

    what: str
    ours: Callable[[DataFrame, str], None]
    request: str

    def measure(self, rig: Rig, frame: DataFrame, source: str) -> Row:
        """Take turns with the rows of a DataFrame, which are also the parquet files of `source`."""
        what = f"{self.what}, on a core (dfutil without its files)"
        rows, files = frame.count(), f"{source}.tfrecords"

        def ours() -> float:
            return rows / seconds_of(lambda: self.ours(frame, files)) / _CORES

        def theirs() -> float:
            answer = rig.peer.ask(self.request, path=source, partitions=_CORES)
            assert answer["rows"] == rows
            return rows / answer["seconds"] / _CORES

        ours()
        try:
            theirs()
            fast, slow = (median(side) for side in take_turns(_ROUNDS, ours, theirs))
        except PeerFailed as why:
            return not_measured(what, why)
        return Row(what, "rows/s", fast, slow, f"≥ {_TIMES} ×", fast >= _TIMES * slow, _ROUNDS)


def _write(frame: DataFrame, files: str) -> None:
    tfos_lab.data.write_tfrecords(frame, files, mode="overwrite")


def _read(frame: DataFrame, files: str) -> None:
    again = tfos_lab.data.read_tfrecords(frame.sparkSession, files, schema=frame.schema)
    again.write.format("noop").mode("overwrite").save()
