"""Paths as Hadoop resolves them: what `ctx.absolute_path` returns, and what is read and written by a path."""

import getpass
from types import SimpleNamespace

import pytest

import tfos_lab

HDFS = "hdfs://nn:8020"
# Those that TensorFlowOnSpark lists, and those that came after it.
SCHEMES = (
    "adl", "file", "hdfs", "oss", "s3", "s3a", "s3n", "swift", "viewfs", "wasb",
    "abfs", "abfss", "cosn", "gs", "har", "maprfs", "o3fs", "ofs", "wasbs", "webhdfs",
)  # fmt: skip


def resolved(path, default_fs=HDFS):
    return tfos_lab.NodeContext.absolute_path(SimpleNamespace(defaultFS=default_fs, working_dir="/work"), path)


def test_a_path_with_a_scheme_stays_as_it_is():
    assert [resolved(f"{scheme}://place/x") for scheme in SCHEMES] == [f"{scheme}://place/x" for scheme in SCHEMES]


@pytest.mark.parametrize(
    ("path", "default_fs", "expected"),
    [
        ("file:/tmp/x", HDFS, "file:///tmp/x"),
        # A name node is that of the default file system, where a path names none.
        ("hdfs:///x", HDFS, "hdfs://nn:8020/x"),
        ("hdfs:/x", HDFS + "/", "hdfs://nn:8020/x"),
        ("hdfs:///x", "viewfs://ns", "hdfs:///x"),
        ("/data/x", HDFS + "/", "hdfs://nn:8020/data/x"),
        ("/data/x", "", "file:///data/x"),
        ("/data/x", "file://", "file:///data/x"),
        ("/data/x", "viewfs://ns", "viewfs://ns/data/x"),
        ("x/y", HDFS, f"hdfs://nn:8020/user/{getpass.getuser()}/x/y"),
        ("x/y", "file:///", "file:///work/x/y"),
        ("x", "s3a://bucket", f"s3a://bucket/user/{getpass.getuser()}/x"),
        ("x", "gs://bucket/", "gs://bucket/x"),
        # What is no scheme to Hadoop is a name.
        ("model:1/x", "file:///", "file:///work/model:1/x"),
    ],
)
def test_a_path_gets_its_scheme_and_its_place(path, default_fs, expected):
    assert resolved(path, default_fs) == expected


def test_the_home_is_that_of_whoever_runs_the_spark_application(monkeypatch):
    monkeypatch.setenv("HADOOP_USER_NAME", "hadoop")
    assert resolved("x") == f"{HDFS}/user/hadoop/x"
    monkeypatch.setenv("SPARK_USER", "ada")
    assert resolved("x") == f"{HDFS}/user/ada/x"
