"""Paths as Hadoop resolves them."""

from __future__ import annotations

import doctest
import getpass
from pathlib import Path

import pytest

from tfos_lab.core import paths
from tfos_lab.core.paths import absolute, hadoop_path, hadoop_user, is_local

HDFS = "hdfs://nn:8020"
# Those that TensorFlowOnSpark lists, and those that came after it.
SCHEMES = (
    "adl", "file", "hdfs", "oss", "s3", "s3a", "s3n", "swift", "viewfs", "wasb",
    "abfs", "abfss", "cosn", "gs", "har", "maprfs", "o3fs", "ofs", "wasbs", "webhdfs",
)  # fmt: skip


@pytest.mark.parametrize(
    ("path", "default_fs", "expected"),
    [
        ("hdfs://other:9000/x", HDFS, "hdfs://other:9000/x"),
        ("s3a://bucket/key", "file://", "s3a://bucket/key"),
        ("s3://bucket", HDFS, "s3://bucket"),
        ("viewfs://cluster/x", HDFS, "viewfs://cluster/x"),
        ("file:///tmp/x", HDFS, "file:///tmp/x"),
        ("file:/tmp/x", HDFS, "file:///tmp/x"),
        # A name node is that of the default file system, where a path names none.
        ("hdfs:///x", HDFS, "hdfs://nn:8020/x"),
        ("hdfs:/x", HDFS + "/", "hdfs://nn:8020/x"),
        ("hdfs:///x", "viewfs://ns", "hdfs:///x"),
        ("/data/x", HDFS, "hdfs://nn:8020/data/x"),
        ("/data/x", HDFS + "/", "hdfs://nn:8020/data/x"),
        ("/data/x", "file://", "file:///data/x"),
        ("/data/x", "file:///", "file:///data/x"),
        ("/data/x", "", "file:///data/x"),
        ("/data/x", "viewfs://ns", "viewfs://ns/data/x"),
        ("x/y", HDFS, f"hdfs://nn:8020/user/{getpass.getuser()}/x/y"),
        ("x/y", "file://", "file:///work/x/y"),
        ("x/y", "file:///", "file:///work/x/y"),
        ("x", "s3a://bucket", f"s3a://bucket/user/{getpass.getuser()}/x"),
        ("x", "gs://bucket/", "gs://bucket/x"),
        # What is no scheme to Hadoop is a name.
        ("model:1/x", "file:///", "file:///work/model:1/x"),
    ],
)
def test_a_path_gets_its_scheme_and_its_place(path, default_fs, expected):
    assert hadoop_path(path, default_fs, "/work") == expected


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_is_known(scheme):
    assert hadoop_path(f"{scheme}://place/x", HDFS, "/work") == f"{scheme}://place/x"


def test_the_home_is_that_of_whoever_runs_the_spark_application(monkeypatch):
    monkeypatch.setenv("HADOOP_USER_NAME", "hadoop")
    assert hadoop_path("x", HDFS, "/work") == f"{HDFS}/user/hadoop/x"
    monkeypatch.setenv("SPARK_USER", "ada")
    assert hadoop_user() == "ada"
    assert hadoop_path("x", HDFS, "/work", user="grace") == f"{HDFS}/user/grace/x"


def test_local_paths_are_recognised(monkeypatch, tmp_path):
    assert [is_local(path) for path in ("/x", "x", "file:/x", "file:///x", "s3://b/x")] == [True] * 4 + [False]
    monkeypatch.chdir(tmp_path)
    assert absolute("x") == str(tmp_path / "x")
    assert absolute("~/x") == str(Path.home() / "x")
    assert absolute("s3://b/x") == "s3://b/x"


def test_the_examples_of_the_documentation_hold():
    assert doctest.testmod(paths).failed == 0
