"""The functions that users call: write a DataFrame as TFRecord files, and read files as a DataFrame."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tfos_lab.core.code_archive import make_finder
from tfos_lab.data.frames import is_connect, path_in_full, require_frame, session_or_active
from tfos_lab.data.spark_python import raises_own_errors, use_right_python
from tfos_lab.data.spark_versions import has_data_sources, parsed_schema
from tfos_lab.data.tfrecords.paths import find_files
from tfos_lab.data.tfrecords.reading import infer_schema, plan_read
from tfos_lab.data.tfrecords.source import FORMAT, ensure_registered
from tfos_lab.data.tfrecords.writing import abort, commit, start_write
from tfos_lab.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def write_tfrecords(
    df: DataFrame,
    path: str | os.PathLike[str],
    *,
    mode: str = "error",
    partition_by: str | Iterable[str] = (),
    compression: str | None = None,
) -> None:
    """Write a DataFrame as TFRecord files of `tf.train.Example`s, one feature for each column.

    The files appear when all are written, with ``_SUCCESS``; a job that fails leaves nothing.
    ``tf.data.TFRecordDataset`` with ``tf.io.parse_example`` reads them, and so does `read_tfrecords`.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        Classic or Spark Connect. `tfos_lab.data.tfrecords.codecs` lists which feature each type becomes; a null becomes
        no feature.
    path : str or Path
        The folder: on the file system that Spark writes to by default, or with a scheme that pyarrow or fsspec opens on
        the driver and the executors (file, hdfs, s3, gs, ...). Keys and addresses of stores are those of their
        environments (``AWS_...``, ``GOOGLE_APPLICATION_CREDENTIALS``, ``AZURE_STORAGE_CONNECTION_STRING`` where adlfs
        is installed; for executors ``spark.executorEnv.*``), not Spark's own ``fs.*`` settings.
    mode : str
        What to do if the folder exists: ``"error"``, ``"append"`` or ``"overwrite"``.
    partition_by : str or iterable of str
        Columns whose values become folders (``year=2024``) instead of features. Each task keeps a file open for each of
        its folders, so repartition by these columns if there are many.
    compression : str, optional
        ``"gzip"``, or None.

    Raises
    ------
    ConfigError
        For options and columns that cannot work, before anything is computed.
    RecordError
        For rows that cannot be written as records.

    Examples
    --------
    >>> write_tfrecords(df, "/data/train", mode="overwrite")  # doctest: +SKIP
    """
    require_frame(df, "write_tfrecords")
    columns = [partition_by] if isinstance(partition_by, str) else list(partition_by)
    options = {"mode": mode, "compression": compression or "none", "partitionBy": json.dumps(columns)}
    full, overwrite = path_in_full(path, df.sparkSession), mode == "overwrite"
    with raises_own_errors(df.sparkSession):
        if not has_data_sources():
            _write_mapped(df, {**options, "path": full}, overwrite=overwrite)
            return
        ensure_registered(df.sparkSession)
        df.write.format(FORMAT).options(**options).mode("overwrite" if overwrite else "append").save(full)


def read_tfrecords(
    spark: SparkSession | None,
    path: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    schema: StructType | str | None = None,
    binary_features: Iterable[str] = (),
    *,
    sample: int | None = None,
) -> DataFrame:
    """Read TFRecord files of `tf.train.Example`s, plain or compressed by gzip, as a lazy DataFrame.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession or None
        Classic or Spark Connect; None for the active session.
    path : str or Path, or iterable of these
        Files, folders, or patterns such as ``/data/train-*``; see `write_tfrecords`.
    schema : pyspark.sql.types.StructType or str, optional
        The columns wanted, such as ``"image array<float>, label int"``; other features cost nothing. Inferred by
        default: a feature with one value in each record is a scalar, others are arrays; of ``bigint``, ``float`` or
        ``string``.
    binary_features : iterable of str
        Features whose bytes are no text; inferred as ``binary`` instead of ``string``.
    sample : int, optional
        How many records inference reads, spread over the files; 0 for all. 100,000 by default.

    Returns
    -------
    pyspark.sql.DataFrame
        One row for each record; a feature that a record lacks is null. A damaged file fails the job that reads it, with
        an error that names the file and the byte at which the bad record begins. Filters on partition columns
        (``year=2024``) skip whole files if ``spark.sql.python.filterPushdown.enabled`` is on.

    Raises
    ------
    ConfigError, RecordError
        If the files do not exist, or no schema can be inferred from them.

    Examples
    --------
    >>> df = read_tfrecords(spark, "/data/train", "image array<float>, label int")  # doctest: +SKIP
    """
    session = session_or_active(spark)
    given = [path] if isinstance(path, str | os.PathLike) or not isinstance(path, Iterable) else path
    paths = [path_in_full(one, session) for one in given]
    if not paths:
        raise ConfigError(["path: one path at least is needed"])
    names = [binary_features] if isinstance(binary_features, str) else list(binary_features)
    options = {"binaryFeatures": json.dumps(names)} if names else {}
    if sample is not None:
        options["sample"] = str(sample)
    if str(session.conf.get("spark.sql.python.filterPushdown.enabled", "false")).lower() == "true":
        options["pushFilters"] = "true"
    if schema is not None and not is_connect(session):
        for one in paths:
            find_files(one)  # Spark looks for them when rows are wanted, and raises its own error then
    with raises_own_errors(session):
        if not has_data_sources():
            return _read_mapped(session, {**options, "paths": json.dumps(paths)}, schema)
        ensure_registered(session)
        reader = session.read.format(FORMAT).options(**options)
        reader = reader if schema is None else reader.schema(schema)
        df = reader.load(paths[0] if len(paths) == 1 else paths)
        df.schema  # noqa: B018 - has a Spark Connect session infer it now, not in the user's next call
    return df


# ---- by `mapInArrow`, for Spark 3.5, which knows no formats that Python declares ------------------------------------


def _read_mapped(spark: SparkSession, options: dict[str, str], schema: StructType | str | None) -> DataFrame:
    """Read files as ``spark.read.format("tfrecord")`` does; takes its options."""
    use_right_python(spark)
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


def _write_mapped(df: DataFrame, options: dict[str, str], *, overwrite: bool) -> None:
    """Write files as ``df.write.format("tfrecord")`` does; takes its options."""
    spark = df.sparkSession
    use_right_python(spark)
    job = start_write(options, df.schema, overwrite=overwrite)
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
