"""TFRecord files as the tasks of Spark write and read them: tests play its driver and its tasks, with Spark's own API.

What they raise is of the code that travels with the format to executors, so that only its builtin can be caught here.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from pyspark_tfrecord import DefaultSource


def start_job(path, schema, *, overwrite=False, **options):
    """Begin to write rows of an Arrow schema, as the driver does; returns the job."""
    return DefaultSource({"path": str(path), **options}).writer(from_arrow_schema(schema), overwrite)


def run_task(job, *batches, number=0, attempt=1):
    """Run one attempt of a task; returns what it tells the driver."""
    context = SimpleNamespace(partitionId=lambda: number, taskAttemptId=lambda: attempt)
    with mock.patch("pyspark.TaskContext.get", return_value=context):
        return [job.write(iter(batches))]


def write(path, *batches, **options):
    """Write a folder in one task; returns its files by name."""
    job = start_job(path, batches[0].schema, **options)
    job.commit(run_task(job, *batches))
    return sorted(Path(path).rglob("part-*"))


def read(path, schema):
    """Read files into a table of this schema."""
    reader = DefaultSource({"path": str(path)}).reader(from_arrow_schema(schema))
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return pa.Table.from_batches([batch.cast(schema) for batch in batches], schema)
