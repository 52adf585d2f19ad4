"""Paths as Hadoop reads them."""

from __future__ import annotations

import doctest
import getpass

import pytest

from tfos_lab.node import paths
from tfos_lab.node.paths import hadoop_path

HDFS = "hdfs://nn:8020"


@pytest.mark.parametrize(
    ("path", "default_fs", "expected"),
    [
        ("hdfs://other:9000/x", HDFS, "hdfs://other:9000/x"),
        ("s3a://bucket/key", "file://", "s3a://bucket/key"),
        ("viewfs://cluster/x", HDFS, "viewfs://cluster/x"),
        ("file:///tmp/x", HDFS, "file:///tmp/x"),
        ("file:/tmp/x", HDFS, "file:/tmp/x"),
        ("/data/x", HDFS, "hdfs://nn:8020/data/x"),
        ("/data/x", HDFS + "/", "hdfs://nn:8020/data/x"),
        ("/data/x", "file://", "file:///data/x"),
        ("/data/x", "file:///", "file:///data/x"),
        ("/data/x", "viewfs://ns", "viewfs://ns/data/x"),
        ("x/y", HDFS, f"hdfs://nn:8020/user/{getpass.getuser()}/x/y"),
        ("x/y", "file://", "file:///work/x/y"),
        ("x/y", "file:///", "file:///work/x/y"),
    ],
)
def test_a_path_gets_its_scheme_and_its_place(path, default_fs, expected):
    assert hadoop_path(path, default_fs, "/work") == expected


def test_the_examples_of_the_documentation_hold():
    assert doctest.testmod(paths).failed == 0
