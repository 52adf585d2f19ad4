"""Rows that are too large for Spark: the sentence names the column, the bytes, and what to do."""

from __future__ import annotations

import json

import pytest

from tfos_lab.engine.spark.oversized import oversized
from tfos_lab.engine.spark.session import job_error
from tfos_lab.errors import FeedError

TEXT = (
    "Caused by: org.apache.arrow.vector.util.OversizedAllocationException: Memory required for vector is "
    "(2147483648), which is overflow or more than max allowed (2147483647). You could consider using "
    "LargeVarCharVector/LargeVarBinaryVector for large strings/large bytes types"
)
NUMBERS = (
    "org.apache.arrow.vector.util.OversizedAllocationException: Memory required for vector capacity 536870912 is "
    "(2147483648), which is more than max allowed (2147483647)"
)
ROW = "IllegalArgumentException: Cannot grow BufferHolder by size 2000000008 because the size after growing exceeds size limitation 2147483632"  # noqa: E501 - as Spark says it


def schema_of(**types):
    return json.dumps({"fields": [{"name": name, "type": kind} for name, kind in types.items()]})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TEXT, "Spark needs room for 2,147,483,648 bytes of column 'x' in one Arrow batch, and 2,147,483,647 is the"),
        (NUMBERS, "Spark needs room for 2,147,483,648 bytes of column 'x' in one Arrow batch, and 2,147,483,647 is"),
        (ROW, "Spark needs 2,000,000,008 bytes more for a row with column 'x', and a row has 2,147,483,632 at most"),
    ],
)
def test_the_only_column_that_may_be_large_is_named(text, said):
    error = job_error(ValueError(text), schema=schema_of(x="binary", n="long"))
    assert isinstance(error, FeedError)
    assert error.reason.startswith(said)
    assert "make several rows of a large one, or feed the path of a file" in error.reason


def test_one_of_many_columns_is_named_as_far_as_that_is_known():
    many = {f"a{n}": {"type": "array"} for n in range(7)}
    assert "bytes of one of the columns 'a0', 'a1', 'a2', 'a3', 'a4' and 2 more in" in str(
        oversized(ValueError(TEXT), schema_of(n="long", **many))
    )
    assert "bytes of a column in one" in str(oversized(ValueError(TEXT)))


def test_other_errors_are_left_alone():
    assert oversized(ValueError("java.lang.OutOfMemoryError: Java heap space"), schema_of(x="binary")) is None
