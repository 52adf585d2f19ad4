"""`TFParallel.run`: the context that an instance sees, barriers, refusals."""

from __future__ import annotations

import argparse
import os
import sys

import pytest

from tests.support.quick import QUICK_ENV
from tfos_lab.compat import TFParallel
from tfos_lab.compat.instance_function import InstanceSettings, run_instance
from tfos_lab.errors import ConfigError, NotAllAtOnce, ParallelFailed


@pytest.fixture(autouse=True)
def _runs_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "runs"))
    for name, value in QUICK_ENV.items():
        monkeypatch.setenv(name, value)


def tell(args, ctx):
    """Write what the context says."""
    from pathlib import Path

    facts = (ctx.worker_num, ctx.executor_id, ctx.num_workers, ctx.defaultFS, ctx.absolute_path("/x"))
    Path(args.folder, str(ctx.worker_num)).write_text(repr(facts))
    return object()  # what it returns need not be sendable


def told(folder, count):
    return [(folder / str(number)).read_text() for number in range(count)]


@pytest.mark.parametrize(("count", "barrier"), [(2, True), (5, False)])
def test_each_instance_has_its_number(spark, tmp_path, count, barrier):
    TFParallel.run(spark.sparkContext, tell, argparse.Namespace(folder=str(tmp_path)), count, use_barrier=barrier)
    assert told(tmp_path, count) == [repr((number, number, count, "file://", "file:///x")) for number in range(count)]


def test_more_instances_than_slots_need_no_barrier(spark):
    with pytest.raises(NotAllAtOnce, match=r"3 instances are to run at once .* 2 free task slots of 2"):
        TFParallel.run(spark.sparkContext, tell, argparse.Namespace(), 3)


def test_an_exception_of_an_instance_comes_with_its_traceback(spark):
    def fail(args, ctx):
        if ctx.worker_num == 1:
            raise ValueError("FAKE exception")

    with pytest.raises(ParallelFailed, match=r"(?s)1 of 2 runs failed.*FAKE exception.*Traceback"):
        TFParallel.run(spark.sparkContext, fail, argparse.Namespace(), 2)


@pytest.mark.parametrize("count", [0, -1, "2", None])
def test_a_number_of_instances_is_needed(spark, count):
    with pytest.raises(ConfigError, match="num_executors="):
        TFParallel.run(spark.sparkContext, tell, argparse.Namespace(), count)


def test_something_else_than_a_spark_context_is_refused():
    with pytest.raises(ConfigError, match="sc=str: a SparkContext is needed"):
        TFParallel.run("local[2]", tell, argparse.Namespace(), 1)


SETTINGS = InstanceSettings(num_workers=4, default_fs="hdfs://names:8020", working_dir="/home/me", num_gpus=1)


class Native:
    """Stands for a node's own context."""

    gpus = ()
    log_dir = "/logs"


def test_a_list_of_arguments_is_the_command_line(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["before"])
    seen = []
    run_instance(lambda args, ctx: seen.append((args, list(sys.argv))), SETTINGS, ["x", "--y"], 2, Native())
    assert seen == [(["x", "--y"], ["x", "--y"])]


def test_an_instance_sees_the_gpus_that_spark_assigned(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    native = Native()
    native.gpus = ["3"]
    seen = []

    def look(args, ctx):
        seen.append((os.environ["CUDA_VISIBLE_DEVICES"], ctx.log_dir, ctx.num_workers))

    run_instance(look, SETTINGS, None, 2, native)
    assert seen == [("3", "/logs", 4)]


def test_without_gpus_none_is_visible(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    run_instance(lambda args, ctx: None, SETTINGS, None, 0, Native())
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
