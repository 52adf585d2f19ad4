"""Reads and writes TFRecord files by `mapInArrow`, for Spark 3.5, which knows no formats that Python declares."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tfos_lab.core.code_archive import make_finder
from tfos_lab.data.frames import default_fs
from tfos_lab.data.spark_python import use_right_python
from tfos_lab.data.spark_versions import parsed_schema
from tfos_lab.data.tfrecords.options import with_whole_paths
from tfos_lab.data.tfrecords.reading import infer_schema, plan_read
from tfos_lab.data.tfrecords.writing import abort, commit, start_write

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def read_mapped(spark: SparkSession, options: dict[str, str], schema: StructType | str | None) -> DataFrame:
    """Read files as ``spark.read.format("tfrecord")`` does; takes its options."""
    use_right_python(spark)
    options = with_whole_paths(options, default_fs(spark))
    if schema is None:
        schema = infer_schema(options)
    wanted = parsed_schema(schema) if isinstance(schema, str) else schema
    groups = [(json.dumps(group),) for group in plan_read(options, wanted)]
    find = make_finder()

    # A local function is pickled by value. It must not refer to any name of this module.
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import json

        for batch in batches:
            for group in batch.column(0).to_pylist():
                yield from find("tfos_lab.data.tfrecords.reading", "read_group")(wanted, json.loads(group))

    # One partition for each group, or an empty one: Spark makes no DataFrame of no partitions.
    parts = spark.sparkContext.parallelize(groups, max(1, len(groups)))
    return spark.createDataFrame(parts, "files string").mapInArrow(read, wanted)


def write_mapped(df: DataFrame, options: dict[str, str], *, overwrite: bool) -> None:
    """Write files as ``df.write.format("tfrecord")`` does; takes its options."""
    spark = df.sparkSession
    use_right_python(spark)
    job = start_write(with_whole_paths(options, default_fs(spark)), df.schema, overwrite=overwrite)
    find, fields = make_finder(), vars(job)

    # As above.
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import json

        import pyarrow as pa
        from pyspark import TaskContext

        writing = "tfos_lab.data.tfrecords.writing"
        task: Any = TaskContext.get()
        known = find(writing, "WriteJob")(**fields)
        written = find(writing, "write_task")(known, batches, task.partitionId(), task.taskAttemptId())
        yield pa.RecordBatch.from_pylist([{"files": json.dumps(written)}])

    try:
        rows = df.mapInArrow(write, "files string").collect()
    except BaseException:
        abort(job, [])
        raise
    commit(job, [(staged, final) for row in rows for staged, final in json.loads(row["files"])])
