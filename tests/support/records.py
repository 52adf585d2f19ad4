"""TFRecord files as the tasks of Spark write and read them; tests play its driver and its tasks."""

from pathlib import Path

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from tfos_lab.data.tfrecords import reading, writing

commit, abort = writing.commit, writing.abort


def start_job(path, schema, *, overwrite=False, **options):
    """Begin to write rows of an Arrow schema, as the driver does; returns the job."""
    return writing.start_write({"path": str(path), **options}, from_arrow_schema(schema), overwrite=overwrite)


def run_task(job, *batches, number=0, attempt=1):
    """Run one attempt of a task; returns what it tells the driver: its files."""
    return writing.write_task(job, batches, task=number, attempt=attempt)


def write(path, *batches, **options):
    """Write a folder in one task; returns its files by name."""
    job = start_job(path, batches[0].schema, **options)
    commit(job, run_task(job, *batches))
    return sorted(Path(path).rglob("part-*"))


def read(path, schema):
    """Read files into a table of this schema."""
    spark_schema = from_arrow_schema(schema)
    groups = reading.plan_read({"path": str(path)}, spark_schema)
    batches = [batch for group in groups for batch in reading.read_group(spark_schema, group)]
    return pa.Table.from_batches([batch.cast(schema) for batch in batches], schema)
