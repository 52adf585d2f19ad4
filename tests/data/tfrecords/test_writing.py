"""A job's files on their way into place, without Spark: attempts repeated, jobs that fail, folders that are there."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tfos_lab.data.tfrecords.writing import abort, commit, start_write, write_task
from tfos_lab.errors import ConfigError, RecordError

SCHEMA = StructType([StructField("id", LongType()), StructField("part", StringType())])


def batches(*ids):
    return [pa.RecordBatch.from_pydict({"id": list(ids), "part": [f"p{i % 2}" for i in ids]})]


def start(folder, *, overwrite=False, **options):
    return start_write({"path": str(folder), **options}, SCHEMA, overwrite=overwrite)


def tree(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_only_the_attempt_that_succeeded_is_moved(tmp_path):
    job = start(tmp_path / "out")
    write_task(job, batches(1, 2), task=0, attempt=1)
    second = write_task(job, batches(1, 2), task=0, attempt=2)
    commit(job, [*second, *write_task(job, [], task=1, attempt=3)])
    assert tree(tmp_path / "out") == ["_SUCCESS", f"part-00000-{job.job_id}.tfrecord"]


def test_a_job_that_fails_leaves_neither_files_nor_its_folder(tmp_path):
    job = start(tmp_path / "deep" / "out", partitionBy="part")
    written = write_task(job, batches(1, 2), task=0, attempt=1)
    commit(job, written)
    assert "part=p0" in tree(tmp_path / "deep" / "out")
    again = start(tmp_path / "deep" / "out", partitionBy="part")
    before = tree(tmp_path / "deep" / "out")
    write_task(again, batches(3), task=0, attempt=1)
    abort(again, [])
    assert [name for name in before if again.job_id not in name] == tree(tmp_path / "deep" / "out")
    never = start(tmp_path / "never")
    abort(never, write_task(never, batches(1), task=0, attempt=1))
    assert not (tmp_path / "never").exists()


def test_a_task_that_outlives_its_job_cannot_write(tmp_path):
    job = start(tmp_path / "out")
    abort(job, [])
    with pytest.raises(RecordError, match="the folder that the driver made for this job is not to be seen on"):
        write_task(job, batches(1), task=0, attempt=1)
    assert not (tmp_path / "out").exists()


def test_overwriting_keeps_the_old_files_until_the_new_ones_are_there(tmp_path):
    old = start(tmp_path)
    commit(old, write_task(old, batches(1), task=0, attempt=1))
    job = start(tmp_path, overwrite=True)
    other = start(tmp_path)
    written = write_task(job, batches(2), task=0, attempt=1)
    assert f"part-00000-{old.job_id}.tfrecord" in tree(tmp_path)
    commit(job, written)
    # What another job is writing right now is not this one's to remove.
    assert tree(tmp_path) == ["_SUCCESS", f"_temporary-{other.job_id}", f"part-00000-{job.job_id}.tfrecord"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partitionBy": "prat"}, "column 'prat' is not in the data; did you mean 'part'"),
        ({"partitionBy": "id,part"}, "leaves no column to write"),
        (
            {"compression": "zip", "mode": "ignore"},
            "compression='zip': use one of none, gzip; mode='ignore': use one of",
        ),
        ({"path": ""}, "no path: give one to save"),
        ({"path": "nosuch://host/x"}, "neither pyarrow nor fsspec can open nosuch://"),
    ],
)
def test_what_cannot_be_written_is_refused_before_a_folder_is_made(tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        start_write({"path": str(tmp_path / "out"), **options}, SCHEMA, overwrite=False)
    assert not (tmp_path / "out").exists()
