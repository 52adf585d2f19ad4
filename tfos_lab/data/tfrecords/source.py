"""The format ``tfrecord`` as a Python data source of Spark.

Spark pickles these classes by value, with tfos_lab's code as an archive (`core.code_archive`), because executors and
the workers of a Spark Connect server need not have tfos_lab. So the classes only delegate: `reading` and `writing` do
the work, and are imported where Spark calls them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from tfos_lab.core.code_archive import make_finder
from tfos_lab.data.frames import default_fs, is_connect, require_session
from tfos_lab.data.spark_python import use_right_python
from tfos_lab.data.spark_versions import register_data_source, require_data_sources, writer_of_data_source

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter, Filter
    from pyspark.sql.types import StructType

Find = Callable[[str, str], Any]

FORMAT = "tfrecord"
_OPTIONS = "tfos_lab.data.tfrecords.options"
_READING = "tfos_lab.data.tfrecords.reading"
_WRITING = "tfos_lab.data.tfrecords.writing"
# What each session has registered last.
_registered: WeakKeyDictionary[SparkSession, tuple[type[DataSource], str]] = WeakKeyDictionary()


def register(spark: SparkSession) -> None:
    """Register ``spark.read.format("tfrecord")`` and ``df.write.format("tfrecord")`` with a session.

    `read_tfrecords` and `write_tfrecords` do so themselves. Where tfos_lab is installed on the driver, Spark finds the
    format by itself, through the package ``pyspark_tfrecord``.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        Classic or Spark Connect.
    """
    require_data_sources()
    require_session(spark)
    source, python = _wanted(spark)
    register_data_source(spark, source)
    _registered[spark] = source, python


def ensure_registered(spark: SparkSession) -> None:
    """Register the format with a session that does not have it yet; registering takes 10 ms."""
    if _registered.get(spark) != _wanted(spark):
        register(spark)


def _wanted(spark: SparkSession) -> tuple[type[DataSource], str]:
    """Return what to register: the source, and the Python that runs it."""
    use_right_python(spark)
    return source_class(default_fs(spark)), "" if is_connect(spark) else spark.sparkContext.pythonExec


@functools.cache
def source_class(file_system: str = "") -> type[DataSource]:
    """Return the class to register; paths without a scheme are on ``file_system``, by default on local disks."""
    from pyspark.sql.datasource import DataSource

    find = make_finder()
    make_reader, writer_class = _reader_maker(find), _writer_class(find)
    name_of_format, options, reading, writing = FORMAT, _OPTIONS, _READING, _WRITING

    class TFRecords(DataSource):
        """The format itself."""

        @classmethod
        def name(cls) -> str:
            return name_of_format

        def schema(self) -> StructType:
            schema: StructType = find(reading, "infer_schema")(self._given())
            return schema

        def reader(self, schema: StructType) -> DataSourceReader:
            return make_reader(self._given(), schema)

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's own
            job = find(writing, "start_write")(self._given(), schema, overwrite=overwrite)
            return writer_class(vars(job), schema)

        def _given(self) -> dict[str, str]:
            given: dict[str, str] = find(options, "with_whole_paths")(dict(self.options), file_system)
            return given

    return TFRecords


def _reader_maker(find: Find) -> Callable[[dict[str, str], StructType], DataSourceReader]:
    from pyspark.sql.datasource import DataSourceReader, InputPartition

    reading = _READING

    class Reader(DataSourceReader):
        """Reads files."""

        def __init__(self, options: dict[str, str], schema: StructType) -> None:
            self._options = options
            self._schema = schema
            self._filters: list[Filter] = []

        def partitions(self) -> list[InputPartition]:
            groups = find(reading, "plan_read")(self._options, self._schema, self._filters)
            return [InputPartition(group) for group in groups]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            batches: Iterator[pa.RecordBatch] = find(reading, "read_group")(self._schema, partition.value)
            return batches

    class FilteringReader(Reader):
        """Accepts filters, which Spark allows only if it is set to push them."""

        def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
            self._filters = filters
            return filters  # Spark still tests the rows

    def make(options: dict[str, str], schema: StructType) -> DataSourceReader:
        takes_filters = {name.lower(): value for name, value in options.items()}.get("pushfilters", "false")
        return (FilteringReader if takes_filters.lower() == "true" else Reader)(options, schema)

    return make


def _writer_class(find: Find) -> Callable[[dict[str, Any], StructType], DataSourceWriter]:
    from pyspark.sql.datasource import WriterCommitMessage

    base, takes_batches = writer_of_data_source()
    writing = _WRITING

    class Written(WriterCommitMessage):
        """The files of one task."""

        def __init__(self, files: list[tuple[str, str]]) -> None:
            self.files = files

    class Writer(base):  # type: ignore[misc, valid-type]
        """Writes files, and moves them into place."""

        def __init__(self, job: dict[str, Any], schema: StructType) -> None:
            self._job = job
            self._schema = schema

        def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
            from pyspark import TaskContext

            context = TaskContext.get()
            assert context is not None
            task, attempt = context.partitionId(), context.taskAttemptId()
            batches = iterator if takes_batches else find(writing, "batches_of")(iterator, self._schema)
            return Written(find(writing, "write_task")(self._known(), batches, task, attempt))

        def commit(self, messages: list[WriterCommitMessage | None]) -> None:
            find(writing, "commit")(self._known(), self._files(messages))

        def abort(self, messages: list[WriterCommitMessage | None]) -> None:
            find(writing, "abort")(self._known(), self._files(messages))

        def _known(self) -> Any:
            return find(writing, "WriteJob")(**self._job)

        def _files(self, messages: list[WriterCommitMessage | None]) -> list[tuple[str, str]]:
            return [file for message in messages for file in getattr(message, "files", ())]

    return Writer
