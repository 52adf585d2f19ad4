"""What can be fed, and in which form: columns, Python objects, or what the nodes ask for."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tfos_lab.engine.feed.request import make_request
from tfos_lab.errors import ClusterEnded, ConfigError


@pytest.fixture
def request_for(spark):
    """Make the request of a cluster that runs."""

    def make(data, *, ended=False, **options):
        cluster = SimpleNamespace(name="cluster", state="done", ended=ended, spark=spark)
        options = {"epochs": 1, "columns": None, "remainder": "exact", "timeout_s": 9.0, "spool_bytes": None, **options}
        return make_request(cluster, data, **options)

    return make


@pytest.fixture
def rdd(spark):
    return lambda *rows: spark.sparkContext.parallelize(rows, 2)


def forms(request):
    return request.frame is not None, request.objects is not None


def test_a_dataframe_goes_as_columns_unless_objects_are_asked_for(spark, request_for):
    frame = spark.range(3)
    assert forms(request_for(frame)) == (True, False)
    assert forms(request_for(frame, objects=False)) == (True, False)
    asked = request_for(frame, objects=True)
    assert forms(asked) == (False, True)
    assert asked.objects.rdd.collect() == frame.collect()


@pytest.mark.parametrize(
    "row",
    ["text", 3, None, [], (1, {"a": 1}), ([1, [2]],), np.arange(3), (np.float32(1), 1), object],
    ids=["text", "number", "None", "empty", "dict within", "ragged", "array", "NumPy within", "class"],
)
def test_rows_of_which_spark_makes_no_columns_go_as_objects_with_advice_for_datasets(request_for, rdd, row):
    request = request_for(rdd(row))
    assert forms(request) == (False, True)
    assert "; or read the rows as they are with ctx.data_feed()" in request.objects.advice
    with pytest.raises(ConfigError) as refused:
        request_for(rdd(row), objects=False)
    assert str(refused.value) in request.objects.advice


def test_an_rdd_without_rows_goes_as_objects(request_for, rdd):
    request = request_for(rdd())
    assert forms(request) == (False, True)
    assert request.objects.advice.startswith(
        "data: this RDD is empty, and Spark learns columns from an RDD's first row"
    )


def test_rows_that_can_be_columns_go_as_the_nodes_ask(request_for, rdd):
    request = request_for(rdd((1, "a"), (2, None)))
    assert forms(request) == (True, True)
    assert request.is_open_choice
    assert request.rows_as(objects=True) is request.objects
    assert request.rows_as(objects=False).frame is request.frame


@pytest.mark.parametrize("options", [{"objects": False}, {"columns": ["_2"]}])
def test_columns_that_are_asked_for_are_columns(request_for, rdd, options):
    assert forms(request_for(rdd((1, "a")), **options)) == (True, False)


def test_columns_of_what_has_none_are_refused_as_before(request_for, rdd):
    with pytest.raises(ConfigError, match="make a tuple of each value"):
        request_for(rdd("text"), columns=["_1"])


def test_objects_are_not_looked_at_beforehand(request_for, rdd):
    rows = rdd(1).map(lambda x: x / 0)
    assert request_for(rows, objects=True).objects.rdd is rows


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"objects": "yes"}, "objects='yes': say True for rows as Python objects, False for columns, or leave it out"),
        ({"objects": True, "columns": ["id"]}, "rows that are objects have none; leave columns out, or objects=True"),
        ({"queue": ""}, "queue='': the name of a queue is needed, such as 'input'"),
        ({"queue": 3}, "queue=3: the name of a queue is needed"),
        ({"spool_bytes": 0}, "spool_bytes=0: a whole number of bytes is needed"),
    ],
)
def test_options_that_do_not_fit_are_told_in_one_sentence(spark, request_for, options, words):
    with pytest.raises(ConfigError) as refused:
        request_for(spark.range(1), **options)
    assert words in str(refused.value)


def test_the_objects_of_a_stream_are_refused(spark, request_for):
    with pytest.raises(ConfigError, match="a stream's rows come as columns"):
        request_for(spark.readStream.format("rate").load(), objects=True)


def test_a_cluster_that_has_ended_takes_no_rows(spark, request_for):
    with pytest.raises(ClusterEnded):
        request_for(spark.range(1), ended=True)
