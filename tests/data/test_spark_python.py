"""Which Python Spark's workers run, and what users read instead of Spark's errors."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace

import pytest

from tests.support.bare_python import make_bare_python
from tfos_lab.data import read_tfrecords, register_tfrecords, write_tfrecords
from tfos_lab.data.spark_errors import raises_own_errors
from tfos_lab.errors import ConfigError, PythonWorkerKilled


def test_records_are_written_with_this_python_unless_another_was_chosen(new_spark, monkeypatch, tmp_path):
    # What the first `python3` of the PATH often is: one without our packages.
    poor_python = str(make_bare_python(tmp_path / "poor", hidden={"numpy", "pyarrow"}))
    spark = new_spark("local[1]", python=poor_python)
    rows, path = spark.range(10), str(tmp_path / "records")
    with pytest.raises(ConfigError) as refused:
        write_tfrecords(rows, path)
    assert str(refused.value).startswith(f"Spark's Python workers lack numpy; they run '{poor_python}': install it")

    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)  # the cure, as it is told
    write_tfrecords(rows, path)
    assert read_tfrecords(spark, path).count() == 10

    monkeypatch.delenv("PYSPARK_PYTHON")
    spark.sparkContext.pythonExec = poor_python  # what Spark took from the PATH when the session was made
    write_tfrecords(rows, path, mode="append")
    spark.sparkContext.pythonExec = poor_python
    register_tfrecords(spark)
    assert spark.read.format("tfrecord").load(path).count() == 20


SESSION = SimpleNamespace(sparkContext=SimpleNamespace(pythonExec="/bin/python9"))
SPARK_ERROR = '[PYTHON_DATA_SOURCE_ERROR] Failed:\n  File "x.py", line 1\n{}\n SQLSTATE: 38000\n\tat org.apache.spark'
# As Spark says it: while a worker works, and while it begins.
WHILE_IT_WORKS = """An error occurred while calling o51.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 7 in stage 5.0 failed 4 times, most recent \
failure: Lost task 7.3 in stage 5.0 (TID 18) (10.0.0.7 executor 1): org.apache.spark.SparkException: Python worker \
exited unexpectedly (crashed). Consider setting ...
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.hasNext(PythonRunner.scala:1034)
Caused by: java.io.EOFException
"""
WHILE_IT_BEGINS = """: org.apache.spark.SparkException: Job aborted due to stage failure: ...
Lost task 8.0 in stage 5.0 (TID 33) (10.0.0.7 executor driver): java.io.EOFException
\tat org.apache.spark.api.python.PythonWorkerFactory.createWorker$1(PythonWorkerFactory.scala:220)
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            WHILE_IT_WORKS,
            r"on 10\.0\.0\.7 \(executor 1\) was killed .*, 4 times for the same rows: .* memory",
        ),
        (WHILE_IT_BEGINS, r"on 10\.0\.0\.7 \(executor driver\) was killed or has crashed: as a rule"),
    ],
)
def test_a_killed_python_worker_is_told_by_its_place_and_not_as_an_end_of_file(text, told):
    with pytest.raises(PythonWorkerKilled, match=told), raises_own_errors(SESSION):
        raise RuntimeError(text)


@pytest.mark.parametrize(
    ("last_line", "kind", "message"),
    [
        (
            "ModuleNotFoundError: No module named 'pyarrow.fs'",
            ConfigError,
            (
                r"Python workers lack pyarrow; they run '/bin/python9': install it there, or set .*\['PYSPARK_PYTHON"
                rf"'\] .* \(the notebook's own is {re.escape(sys.executable)}\), and try again$"
            ),
        ),
        (
            "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has",
            ConfigError,
            r"workers are not of the notebook's version, 3\.\d+; they run '/bin/python9'",
        ),
        ("ValueError: something else", RuntimeError, "something else"),
        ("java.io.EOFException", RuntimeError, "java.io.EOFException"),  # perhaps of a file
    ],
)
def test_the_cause_is_raised_instead_of_spark_s_error(last_line, kind, message):
    with pytest.raises(kind, match=message), raises_own_errors(SESSION):
        raise RuntimeError(SPARK_ERROR.format(last_line))
