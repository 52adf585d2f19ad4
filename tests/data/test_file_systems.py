"""File systems, found by the scheme of a path: pyarrow's, fsspec's, and the error where neither knows it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from socket import gethostname
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyarrow import fs
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tests.support.bare_python import make_bare_python
from tfos_lab.data import file_systems
from tfos_lab.data.file_systems import open_path
from tfos_lab.data.tfrecords.reading import infer_schema, plan_read, read_group
from tfos_lab.data.tfrecords.writing import abort, commit, start_write, write_task
from tfos_lab.errors import ConfigError

SCHEMA = StructType([StructField("id", LongType()), StructField("part", StringType())])


@pytest.mark.parametrize(
    ("path", "kind", "plain"),
    [
        ("/tmp/x", "local", "/tmp/x"),
        ("file:/tmp/a b", "local", "/tmp/a b"),
        ("file:///tmp/x", "local", "/tmp/x"),
        ("file://localhost/tmp/x", "local", "/tmp/x"),
        ("gs://bucket/a b/k=v%2F1", "gcs", "bucket/a b/k=v%2F1"),
        ("gcs://bucket/x", "gcs", "bucket/x"),
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
        ("adl://lake/x", "fsspec and adlfs"),
        ("swift://place/x", "fsspec, and the package that makes swift:// known to it"),
        ("maprfs:///x", "a mount of the cluster"),
    ],
)
def test_an_unknown_scheme_is_an_error_that_says_what_to_install(path, needs):
    with pytest.raises(ConfigError) as error:
        open_path(path)
    assert f"neither pyarrow nor fsspec can open {path.partition(':')[0]}:// on {gethostname()}; it needs {needs}" in (
        str(error.value)
    )
    assert "on the driver and on all executors" in str(error.value)
    assert "\n" not in str(error.value)


def test_hadoop_s_own_need_its_client(monkeypatch):
    # What pyarrow says where it finds no Java, and again where it has found none before.
    for words in ("Unable to load libjvm\ndlopen(...) failed", "Prior attempt to load libhdfs failed"):

        def refuse(address, words=words):
            raise OSError(words)

        monkeypatch.setattr(file_systems.fs, "FileSystem", SimpleNamespace(from_uri=refuse))
        with pytest.raises(ConfigError, match="Hadoop's client, with JAVA_HOME, HADOOP_HOME, and CLASSPATH"):
            open_path("hdfs://nn:8020/x")


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


def test_the_answer_of_a_file_system_is_in_the_error():
    with pytest.raises(ConfigError, match=r"path='abfs://x': .* cannot open it: "):
        open_path("abfs://x")


def test_what_a_user_installed_for_a_store_comes_before_pyarrow(monkeypatch):
    asked = []

    def from_uri(address):
        asked.append(address)
        return fs.LocalFileSystem(), "x"

    monkeypatch.setattr(file_systems.fs, "FileSystem", SimpleNamespace(from_uri=from_uri))
    paths = ["gs://bucket/x", "abfs://box/x", "wasbs://box@account.blob.core.windows.net/x", "s3a://bucket/x"]
    for package_is_there in (False, True):
        monkeypatch.setattr(
            file_systems.importlib.util, "find_spec", lambda name, is_there=package_is_there: is_there or None
        )
        for path in paths:
            open_path(path)
    assert asked == [
        # pyarrow would try for 15 minutes.
        "gs://bucket/x?retry_limit_seconds=60",
        "abfs://box/x",
        "abfss://box@account.dfs.core.windows.net/x",
        "s3://bucket/x",
        "fsspec+gs://bucket/x",
        "fsspec+abfs://box/x",
        "fsspec+abfss://box@account.dfs.core.windows.net/x",
        "s3://bucket/x",
    ]


def test_what_pyarrow_cannot_open_is_an_error_that_names_a_package():
    with pytest.raises(
        ConfigError, match=r"account name \(so says pyarrow; adlfs finds keys in more places: install it"
    ):
        open_path("abfs://box/x")


def batches(*ids):
    return [pa.RecordBatch.from_pydict({"id": list(ids), "part": [f"p{i % 2}" for i in ids]})]


def read(path):
    rows = []
    for group in plan_read({"path": path}, infer_schema({"path": path})):
        rows += [row for batch in read_group(infer_schema({"path": path}), group) for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: row["id"])


def test_records_are_written_and_read_where_only_fsspec_knows_the_way():
    place = "memory://records/out"
    for overwrite, ids in ((False, (1, 2)), (False, (3,)), (True, (4, 5))):
        job = start_write({"path": place, "partitionBy": "part"}, SCHEMA, overwrite=overwrite)
        commit(job, write_task(job, batches(*ids), task=0, attempt=1))
    assert read(place) == [{"id": 4, "part": "p0"}, {"id": 5, "part": "p1"}]
    job = start_write({"path": place}, SCHEMA, overwrite=False)
    abort(job, write_task(job, batches(6), task=0, attempt=1))
    assert [row["id"] for row in read(place)] == [4, 5]
    system, plain = open_path(place)
    found = [info.base_name for info in system.get_file_info(fs.FileSelector(plain, recursive=True))]
    assert not [name for name in found if name.startswith("_temporary")]
    assert "_SUCCESS" in found
