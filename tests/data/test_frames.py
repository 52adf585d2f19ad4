"""The file system of a session's paths."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest

from tfos_lab.data import register_tfrecords
from tfos_lab.data.frames import default_fs, path_in_full


@pytest.fixture
def on_hdfs(spark):
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    before = configuration.get("fs.defaultFS")
    configuration.set("fs.defaultFS", "hdfs://nn:8020")
    yield spark
    configuration.set("fs.defaultFS", before)


def test_paths_of_this_machine_get_no_scheme(spark):
    assert default_fs(spark) == "file:///"
    assert path_in_full("x", spark) == str(Path.cwd() / "x")
    assert path_in_full("hdfs://nn/x", spark) == "hdfs://nn/x"


def test_paths_are_on_the_session_s_file_system_in_the_user_s_home(on_hdfs):
    assert path_in_full("/data/x", on_hdfs) == "hdfs://nn:8020/data/x"
    assert path_in_full("x", on_hdfs) == f"hdfs://nn:8020/user/{getpass.getuser()}/x"
    assert path_in_full("hdfs:///x", on_hdfs) == "hdfs://nn:8020/x"
    assert path_in_full("file:///x", on_hdfs) == "file:///x"


@pytest.mark.parametrize("spark_mode", ["connect"])
def test_a_connect_session_has_a_file_system_too(spark):
    assert default_fs(spark) == "file:///"


def test_the_format_s_paths_are_there_too(on_hdfs):
    register_tfrecords(on_hdfs)
    writer = on_hdfs.range(1).write.format("tfrecord").mode("append")
    with pytest.raises(Exception, match=r"path='hdfs://nn:8020/data/x': "):
        writer.save("/data/x")
    with pytest.raises(Exception, match=rf"path='hdfs://nn:8020/user/{getpass.getuser()}/[xy]': "):
        on_hdfs.read.format("tfrecord").load(["x", "y"])
