"""What `TFCluster.run` takes from Spark, and from the program's arguments."""

from __future__ import annotations

import argparse

import pytest

from tfos_lab.compat.driver import start


@pytest.mark.parametrize(
    ("found", "expected"),
    [("file:///", "file://"), ("hdfs://nn:8020", "hdfs://nn:8020"), ("hdfs://nn:8020/", "hdfs://nn:8020/")],
)
def test_the_default_file_system_is_written_as_paths_continue_it(found, expected, monkeypatch):
    monkeypatch.setattr(start, "default_fs", lambda _session: found)
    assert start.default_fs_of(None) == expected


@pytest.mark.parametrize(
    ("args", "gpus"),
    [
        (argparse.Namespace(num_gpus=2), 2),
        ({"num_gpus": 0}, 0),
        (argparse.Namespace(num_gpus=None), None),
        (argparse.Namespace(), None),
        (["--num_gpus", "1"], None),
        (None, None),
    ],
)
def test_arguments_may_say_how_many_gpus_a_node_has(args, gpus):
    assert start.gpus_wanted(args) == gpus
