"""A job's files on their way into place, without Spark: repeated attempts, failed jobs, existing folders."""

from __future__ import annotations

import fsspec
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from tfos_lab.data.tfrecords import writing
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
    with pytest.raises(RecordError, match="the folder that the driver made for this job cannot be seen on"):
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
    others = [f"_temporary-{other.job_id}", f"_temporary-{other.job_id}/_is_on"]
    assert tree(tmp_path) == ["_SUCCESS", *others, f"part-00000-{job.job_id}.tfrecord"]


class ObjectStore(MemoryFileSystem):
    """As those of Azure and Google are by fsspec: no folders that have to be made, and lists of all that is below."""

    protocol = "objects"
    store = {}  # noqa: RUF012 - fsspec's way
    pseudo_dirs = [""]  # noqa: RUF012

    def find(self, path, maxdepth=None, withdirs=False, detail=False, **kwargs):
        return super().find(path, withdirs=withdirs, detail=detail, **kwargs)


@pytest.fixture
def store():
    fsspec.register_implementation("objects", ObjectStore, clobber=True)
    yield ObjectStore.store
    ObjectStore.store.clear()
    ObjectStore.pseudo_dirs[:] = [""]


def test_overwriting_in_a_store_of_objects_leaves_the_new_files_alone(store):
    for part in (0, 1):
        old = start("objects://box/out", partitionBy="part")
        commit(old, write_task(old, batches(part), task=0, attempt=1))
    job = start("objects://box/out/", overwrite=True, partitionBy="part")
    commit(job, write_task(job, batches(2), task=0, attempt=1))
    there = sorted(name.partition("box/out/")[2] for name in store)
    assert there == ["_SUCCESS", f"part=p0/part-00000-{job.job_id}.tfrecord"]


def test_a_task_that_outlives_its_job_leaves_nothing_in_a_store_of_objects(store):
    job = start("objects://box/out")
    abort(job, [])
    with pytest.raises(RecordError, match="the folder that the driver made for this job cannot be seen on"):
        write_task(job, batches(1), task=0, attempt=1)
    assert not store


def test_an_overwrite_that_fails_on_its_way_leaves_the_old_files(tmp_path):
    old = start(tmp_path, partitionBy="part")
    commit(old, write_task(old, batches(1, 2), task=0, attempt=1))
    before = tree(tmp_path)
    job = start(tmp_path, overwrite=True, partitionBy="part")
    written = write_task(job, batches(3, 4), task=0, attempt=1)
    (tmp_path / f"_temporary-{job.job_id}" / written[1][0].rpartition("/")[2]).unlink()
    with pytest.raises(ConfigError, match=r"path='.*': .* cannot write to it: "):
        commit(job, written)
    abort(job, written)
    assert tree(tmp_path) == before


def test_a_job_whose_files_cannot_be_put_in_place_leaves_nothing(tmp_path):
    job = start(tmp_path / "out", partitionBy="part")
    rows = [pa.RecordBatch.from_pydict({"id": [1, 2], "part": ["short", "x" * 300]})]
    written = write_task(job, rows, task=0, attempt=1)
    with pytest.raises(ConfigError, match="File name too long"):
        commit(job, written)
    abort(job, written)
    assert tree(tmp_path) == []


def test_an_overwrite_that_cannot_remove_the_old_files_keeps_the_new_ones(tmp_path, monkeypatch):
    old = start(tmp_path)
    commit(old, write_task(old, batches(1), task=0, attempt=1))
    job = start(tmp_path, overwrite=True)
    written = write_task(job, batches(2), task=0, attempt=1)

    def refuse(*given):
        raise PermissionError("not yours")

    monkeypatch.setattr(writing, "_clear", refuse)
    with pytest.raises(ConfigError, match="not yours"):
        commit(job, written)
    abort(job, written)
    assert f"part-00000-{job.job_id}.tfrecord" in tree(tmp_path)


def test_overwriting_removes_folders_that_have_no_new_files(tmp_path):
    old = start(tmp_path, partitionBy="part")
    commit(old, write_task(old, batches(1, 2), task=0, attempt=1))
    (tmp_path / "part=p1" / "deep").mkdir()
    (tmp_path / "part=p0" / "deep").mkdir()
    (tmp_path / "part=p0" / "deep" / "file").touch()
    job = start(tmp_path, overwrite=True, partitionBy="part")
    commit(job, write_task(job, batches(4), task=0, attempt=1))
    assert tree(tmp_path) == ["_SUCCESS", "part=p0", f"part=p0/part-00000-{job.job_id}.tfrecord"]


def test_a_folder_without_write_permission_is_an_error_in_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"path='.*file/out': .* cannot write to it: .*Not a directory"):
        start(tmp_path / "file" / "out")


def test_columns_that_cannot_name_folders_are_refused(tmp_path):
    tree = StructType([StructField("a", IntegerType())])
    kinds = {"id": LongType(), "list": ArrayType(IntegerType()), "raw": BinaryType(), "tree": tree, "day": DateType()}
    schema = StructType([StructField(name, kind) for name, kind in kinds.items()])
    with pytest.raises(ConfigError) as error:
        start_write({"path": str(tmp_path / "out"), "partitionBy": "list,raw,tree,day"}, schema, overwrite=False)
    for name, label in (("list", "array<int>"), ("raw", "binary"), ("tree", "struct<a:int>")):
        assert f"column '{name}' of type {label} cannot name folders: make it a string" in str(error.value)
    assert "day" not in str(error.value)
    with pytest.raises(ConfigError, match="has no columns: there is nothing to write"):
        start_write({"path": str(tmp_path / "out")}, StructType([]), overwrite=False)


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
