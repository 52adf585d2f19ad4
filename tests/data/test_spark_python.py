"""Which Python Spark's workers run, and what users read where it lacks what is needed."""

import sys

import pytest

import tfos_lab
from tests.support.bare_python import make_bare_python
from tests.support.quick import QUICK_ENV
from tfos_lab.data import read_tfrecords, register_tfrecords, write_tfrecords
from tfos_lab.errors import ConfigError, FeedError


def count(args, ctx):
    feed, rows = ctx.data_feed(), 0
    while not feed.should_stop():
        rows += len(feed.next_batch(10))
    return rows


def run_on(rows):
    """Return how many rows a node has read."""
    return tfos_lab.run(count, cluster_size=1, data=rows, env=QUICK_ENV).wait()["chief:0"]


@pytest.mark.full
def test_records_are_written_with_this_python_unless_another_was_chosen(spark, monkeypatch, tmp_path):
    # What the first `python3` of the PATH often is: one without our packages.
    poor_python = str(make_bare_python(tmp_path / "poor", hidden={"numpy", "pyarrow"}))
    monkeypatch.setenv("PYSPARK_PYTHON", poor_python)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", poor_python)
    rows, path = spark.range(10), str(tmp_path / "records")
    with pytest.raises(ConfigError) as refused:
        write_tfrecords(rows, path)
    lacks = "an executor lacks {}; executors run '" + poor_python + "': install what is missing there, or set"
    assert str(refused.value).startswith(lacks.format("numpy"))
    with pytest.raises(FeedError) as failed:
        run_on(rows)
    assert str(failed.value).startswith(f"Spark's job failed: {lacks.format('pyarrow')}")

    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)  # the cure, as it is told
    write_tfrecords(rows, path)
    assert read_tfrecords(spark, path).count() == 10

    monkeypatch.delenv("PYSPARK_PYTHON")
    spark.sparkContext.pythonExec = poor_python  # what Spark took from the PATH when the session was made
    write_tfrecords(rows, path, mode="append")
    spark.sparkContext.pythonExec = poor_python
    register_tfrecords(spark)
    assert spark.read.format("tfrecord").load(path).count() == 20


def test_functions_that_were_made_while_spark_ran_another_python_are_made_again(spark, monkeypatch, tmp_path):
    poor_python = str(make_bare_python(tmp_path / "poor", hidden={"pyarrow"}))
    monkeypatch.setattr(spark.sparkContext, "pythonExec", poor_python)

    def made():
        return spark.range(10).mapInArrow(lambda batches: batches, "id long")

    before, spark.sparkContext.pythonExec = made(), sys.executable  # which a first start chooses
    with pytest.raises(FeedError) as failed:
        run_on(before)
    assert str(failed.value).startswith(
        "Spark's job failed: a Python function of the DataFrame runs with another Python, which lacks pyarrow: Spark "
        f"remembers the one of when the function was made. It is {sys.executable} now: make the DataFrame again"
    )
    assert run_on(made()) == 10
