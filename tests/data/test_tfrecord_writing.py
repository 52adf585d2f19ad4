"""A job's files on their way into place, without Spark: repeated attempts, failed jobs, existing folders, stores."""

from __future__ import annotations

import subprocess
from pathlib import Path
from socket import gethostname

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

from tests.support.bare_python import make_bare_python
from tfos_lab.data.file_systems import open_path
from tfos_lab.data.tfrecords.writing import abort, commit, start_write, write_task
from tfos_lab.errors import ConfigError, RecordError

SCHEMA = StructType([StructField("id", LongType()), StructField("part", StringType())])


def batches(*ids):
    return [pa.RecordBatch.from_pydict({"id": list(ids), "part": [f"p{i % 2}" for i in ids]})]


def start(folder, *, overwrite=False, **options):
    return start_write({"path": str(folder), **options}, SCHEMA, overwrite=overwrite)


def write(folder, *ids, **options):
    """Write some rows as one task, and return the job."""
    job = start(folder, **options)
    commit(job, write_task(job, batches(*ids), task=0, attempt=1))
    return job


def tree(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_only_the_attempt_that_succeeded_is_moved(tmp_path):
    job = start(tmp_path / "out")
    write_task(job, batches(1, 2), task=0, attempt=1)
    second = write_task(job, batches(1, 2), task=0, attempt=2)
    commit(job, [*second, *write_task(job, [], task=1, attempt=3)])
    assert tree(tmp_path / "out") == ["_SUCCESS", f"part-00000-{job.job_id}.tfrecord"]


def test_a_job_that_fails_leaves_neither_files_nor_its_folder(tmp_path):
    write(tmp_path / "deep" / "out", 1, 2, partitionBy="part")
    before = tree(tmp_path / "deep" / "out")
    again = start(tmp_path / "deep" / "out", partitionBy="part")
    write_task(again, batches(3), task=0, attempt=1)
    abort(again, [])
    assert tree(tmp_path / "deep" / "out") == before
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
    old = write(tmp_path, 1)
    job, other = start(tmp_path, overwrite=True), start(tmp_path)
    written = write_task(job, batches(2), task=0, attempt=1)
    assert f"part-00000-{old.job_id}.tfrecord" in tree(tmp_path)
    commit(job, written)
    # What another job is writing right now is not this one's to remove.
    others = [f"_temporary-{other.job_id}", f"_temporary-{other.job_id}/_is_on"]
    assert tree(tmp_path) == ["_SUCCESS", *others, f"part-00000-{job.job_id}.tfrecord"]


def test_overwriting_removes_folders_that_have_no_new_files(tmp_path):
    write(tmp_path, 1, 2, partitionBy="part")
    (tmp_path / "part=p1" / "deep").mkdir()
    (tmp_path / "part=p0" / "deep").mkdir()
    (tmp_path / "part=p0" / "deep" / "file").touch()
    job = write(tmp_path, 4, overwrite=True, partitionBy="part")
    assert tree(tmp_path) == ["_SUCCESS", "part=p0", f"part=p0/part-00000-{job.job_id}.tfrecord"]


def test_an_overwrite_that_fails_on_its_way_leaves_the_old_files(tmp_path):
    write(tmp_path, 1, 2, partitionBy="part")
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


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_columns_that_cannot_name_folders_are_refused(tmp_path):
    of_one_field = StructType([StructField("a", IntegerType())])
    kinds = {"id": LongType(), "list": ArrayType(IntegerType()), "raw": BinaryType(), "tree": of_one_field}
    schema = StructType([StructField(name, kind) for name, kind in {**kinds, "day": DateType()}.items()])
    with pytest.raises(ConfigError) as error:
        start_write({"path": str(tmp_path / "out"), "partitionBy": "list,raw,tree,day"}, schema, overwrite=False)
    for name, label in (("list", "array<int>"), ("raw", "binary"), ("tree", "struct<a:int>")):
        assert f"column '{name}' of type {label} cannot name folders: make it a string" in str(error.value)
    assert "day" not in str(error.value)


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
        ({"path": "oss://bucket/x"}, "neither pyarrow nor fsspec can open oss://"),
    ],
)
def test_what_cannot_be_written_is_refused_before_a_folder_is_made(tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        start_write({"path": str(tmp_path / "out"), **options}, SCHEMA, overwrite=False)
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"path='.*file/out': .* cannot write to it: .*Not a directory"):
        start(tmp_path / "file" / "out")


# ---- file systems ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "kind", "plain"),
    [
        ("/tmp/x", "local", "/tmp/x"),
        ("file:/tmp/a b", "local", "/tmp/a b"),
        ("file://localhost/tmp/x", "local", "/tmp/x"),
        ("gs://bucket/a b/k=v%2F1", "gcs", "bucket/a b/k=v%2F1"),
        ("abfss://box@account.dfs.core.windows.net/x", "abfs", "box/x"),
        ("wasbs://box@account.blob.core.windows.net/x", "abfs", "box/x"),
        ("memory://a/x", "py::fsspec+memory", "/a/x"),
    ],
)
def test_a_path_is_opened_by_whoever_knows_its_scheme(path, kind, plain):
    system, found = open_path(path)
    assert (system.type_name.replace("('memory',)", "memory"), found) == (kind, plain)


@pytest.mark.parametrize(
    ("path", "needs"),
    [
        ("oss://bucket/x", "fsspec and ossfs"),
        ("swift://place/x", "fsspec, and the package that makes swift:// known to it"),
        ("maprfs:///x", "a mount of the cluster"),
    ],
)
def test_an_unknown_scheme_is_one_sentence_that_says_what_to_install(path, needs):
    with pytest.raises(ConfigError) as error:
        open_path(path)
    scheme = path.partition(":")[0]
    told = f"neither pyarrow nor fsspec can open {scheme}:// on {gethostname()}; it needs {needs}"
    assert told in str(error.value)
    assert "on the driver and on all executors" in str(error.value)
    assert "\n" not in str(error.value)


def test_what_pyarrow_cannot_open_is_an_error_that_names_a_package():
    with pytest.raises(ConfigError, match=r"account name \(so says pyarrow; adlfs finds keys in more places: install"):
        open_path("abfs://box/x")
    with pytest.raises(ConfigError, match=r"path='abfs://x': .* cannot open it: "):
        open_path("abfs://x")


def test_without_fsspec_pyarrow_opens_what_it_knows(tmp_path):
    python = make_bare_python(tmp_path, hidden={"fsspec"})
    code = "import sys; from tfos_lab.data.file_systems import open_path; print(open_path(sys.argv[1])[1])"
    env = {"PYTHONPATH": str(Path(__file__).parents[2])}
    known, unknown = (
        subprocess.run([python, "-c", code, path], capture_output=True, text=True, env=env, check=False)
        for path in ("gs://bucket/x", "memory://a/x")
    )
    assert known.stdout.strip() == "bucket/x", known.stderr
    assert "neither pyarrow nor fsspec can open memory://" in unknown.stderr


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


def test_in_a_store_of_objects_overwriting_leaves_the_new_files_and_a_late_task_none(store):
    for part in (0, 1):
        write("objects://box/out", part, partitionBy="part")
    job = write("objects://box/out/", 2, overwrite=True, partitionBy="part")
    there = sorted(name.partition("box/out/")[2] for name in store)
    assert there == ["_SUCCESS", f"part=p0/part-00000-{job.job_id}.tfrecord"]
    before = set(store)
    late = start("objects://box/late")
    abort(late, [])
    with pytest.raises(RecordError, match="the folder that the driver made for this job cannot be seen on"):
        write_task(late, batches(1), task=0, attempt=1)
    assert set(store) == before


def test_where_only_fsspec_knows_the_way_files_are_appended_and_replaced(store):
    first, second = write("objects://box/new", 1), write("objects://box/new", 2)
    names = {f"objects://box/new/part-00000-{job.job_id}.tfrecord" for job in (first, second)}
    assert set(store) == {*names, "objects://box/new/_SUCCESS"}
    failed = start("objects://box/new")
    abort(failed, write_task(failed, batches(6), task=0, attempt=1))
    assert set(store) == {*names, "objects://box/new/_SUCCESS"}
