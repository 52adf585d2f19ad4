"""RDDs as DataFrames: what Spark cannot take is refused for the right reason, with advice that is tried here."""

from __future__ import annotations

import re
from collections import namedtuple

import numpy as np
import pytest
from pyspark.ml.linalg import Vectors
from pyspark.sql import Row
from pyspark.streaming import StreamingContext

from tfos_lab.engine.feed.rdd import frame_of_rdd
from tfos_lab.engine.feed.request import as_frame, is_dstream, is_rows
from tfos_lab.errors import ConfigError, FeedError
from tfos_lab.errors.channel import own_error_in
from tfos_lab.node.feed.rdd_rows import Column, converted

# As Spark's users write it, in a notebook.
Point = namedtuple("Point", "x y", module="__main__")  # noqa: PYI024


@pytest.fixture
def parallelize(spark):
    return lambda *rows: spark.sparkContext.parallelize(rows, 2)


def values(spark, rdd):
    return [tuple(row) for row in frame_of_rdd(spark, rdd).collect()]


def refusal(spark, rdd):
    """Return the sentence that refuses an RDD: at once, or when its rows are computed."""
    try:
        values(spark, rdd)
    except (ConfigError, FeedError) as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - Spark's, around ours
        return str(own_error_in(error))
    pytest.fail("it was taken")


def cured(rdd, sentence):
    """Do to the RDD what the sentence says."""
    return eval(re.search(r"rdd\.map\(.*\)$", sentence)[0], {"rdd": rdd})


def test_rows_of_every_kind_arrive_as_spark_takes_them(spark, parallelize):
    assert values(spark, parallelize((1, "a", [1.0, 2.0]), (2, "b", [3.0]))) == [(1, "a", [1.0, 2.0]), (2, "b", [3.0])]
    assert values(spark, parallelize({"y": 1, "x": 2.0}, {"x": 3.0, "y": None})) == [(2.0, 1), (3.0, None)]
    assert values(spark, parallelize(Row(b=1, a=True), Row(b=2, a=False))) == [(1, True), (2, False)]
    assert frame_of_rdd(spark, parallelize(Point(1, 2))).columns == ["x", "y"]
    assert values(spark, parallelize((Vectors.dense(1.0), 1))) == [(Vectors.dense(1.0), 1)]
    assert values(spark, parallelize((None, 1), (2.5, 2))) == [(None, 1), (2.5, 2)]


@pytest.mark.parametrize(
    ("rows", "words", "after"),
    [
        (
            [(1.0, 5), (2, 6)],
            "column '_1' of the RDD is double, as in its first row, but another row holds the int 2, which Spark would",
            [(1.0, 5), (2.0, 6)],
        ),
        ([(1,), (1.5,)], "column '_1' of the RDD is bigint, .* the float 1.5", [(1.0,), (1.5,)]),
        ([[1.0, 2.0], [3, 4.0]], "column '_1' .* the int 3", [(1.0, 2.0), (3.0, 4.0)]),
        (
            [(7, [1.0, 2.0]), (8, [3.0, 4])],
            "'_2' .* is array<double>, .* the int 4",
            [(7, [1.0, 2.0]), (8, [3.0, 4.0])],
        ),
        ([{"x": 1.0, "n": 1}, {"x": 2, "n": 2}], "'x' .* the int 2", [(1, 1.0), (2, 2.0)]),
        ([Row(x=1.0, n=1), Row(x=2, n=2)], "'x' .* the int 2", [(1, 1.0), (2, 2.0)]),
        ([(1.0, 5), (np.float64(2), 6)], "the numpy.float64", [(1.0, 5), (2.0, 6)]),
        ([(0.0,) * 6, (0.0, 0.0, 1, 0.0, 0.0, 0.0)], "'_3' .* the int 1", [(0.0,) * 6, (0.0, 0.0, 1.0, 0.0, 0.0, 0.0)]),
    ],
    ids=[
        "int for float",
        "float for int",
        "lists as rows",
        "in an array",
        "dicts",
        "Rows",
        "NumPy later",
        "many columns",
    ],
)
def test_a_value_of_another_type_than_the_first_is_named_with_its_column_and_a_remedy(
    spark, parallelize, rows, words, after
):
    rdd = parallelize(*rows)
    sentence = refusal(spark, rdd)
    assert re.search(words, sentence)
    assert values(spark, cured(rdd, sentence)) == after


def test_text_among_numbers_and_depths_of_arrays_are_described(spark, parallelize):
    assert refusal(spark, parallelize((1,), ("x",))).endswith("null without a word: give all its values one type")
    sentence = refusal(spark, parallelize(([[1.0], [2.0]],), ([[1.0], [2]],)))
    assert "is array<array<double>>" in sentence
    assert sentence.endswith("the int 2, which Spark would turn into null without a word: give all its values one "
                             "type, such as float(value)")  # fmt: skip


@pytest.mark.parametrize(
    ("row", "words", "after"),
    [
        (np.arange(2.0), r"make them Python's, as in rdd\.map", ([0.0, 1.0],)),
        (np.float32(0.5), r"make them Python's, as in rdd\.map", (0.5,)),
        ((np.arange(2), np.int64(3), 4), r"'_1', '_2': NumPy's values", ([0, 1], 3, 4)),
        (([np.int64(1), np.int64(2)], 4), r"'_1': NumPy's values", ([1, 2], 4)),
        ({"x": np.float32(0.5), "n": 1}, r"'x': NumPy's values", (1, 0.5)),
        (Row(x=np.float32(0.5), n=1), r"'x': NumPy's values", (1, 0.5)),
        (3, r"make a tuple of each value", (3,)),
    ],
    ids=["arrays", "scalars", "in tuples", "in lists", "in dicts", "in Rows", "no NumPy at all"],
)
def test_numpy_s_values_are_named_with_a_remedy(spark, parallelize, row, words, after):
    rdd = parallelize(row, row)
    sentence = refusal(spark, rdd)
    assert re.search(words, sentence)
    assert values(spark, cured(rdd, sentence)) == [after, after]


def test_an_empty_rdd_is_refused_as_empty_and_taken_with_a_schema(spark):
    for empty in (spark.sparkContext.emptyRDD(), spark.sparkContext.parallelize([], 3)):
        sentence = refusal(spark, empty)
        assert sentence.startswith("data: this RDD is empty, and Spark learns columns from an RDD's first row")
        told = re.search(r"spark\.createDataFrame\(rdd, '.*?'\)", sentence)[0]
        frame = eval(told, {"rdd": empty, "spark": spark})
        assert (frame.columns, frame.count()) == (["x", "label"], 0)


def test_a_column_of_nothing_but_none_is_named(spark, parallelize):
    assert "nothing but None in the first 100 rows: give columns and types yourself" in refusal(
        spark, parallelize((None,), (None,))
    )


def test_a_first_row_that_cannot_be_computed_is_reported_with_its_own_error(spark, parallelize):
    sentence = refusal(spark, parallelize(1).map(lambda x: (x / 0,)))
    assert "the RDD's first row cannot be computed: Spark's job failed: ZeroDivisionError: division by zero" in sentence


def test_a_dstream_has_no_rows_to_infer_but_its_rdds_have(spark):
    stream = StreamingContext(spark.sparkContext, 1).queueStream([spark.sparkContext.parallelize([1])])
    assert not is_rows(stream)
    assert is_dstream(stream)
    with pytest.raises(ConfigError, match=r"data=DStream: only cluster\.train takes one; .* stream\.transform\("):
        as_frame(None, stream)


def test_the_suggested_code_names_keys_as_they_are():
    column = Column("a b", "dict", "a b", 2, "double", "double")
    assert converted(column, {"a b": "float({})"}) == "rdd.map(lambda row: {**row, 'a b': float(row['a b'])})"
