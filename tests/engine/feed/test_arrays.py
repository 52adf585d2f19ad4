"""Data of this process as Arrow tables for Spark: what dtypes and shapes become, and what is refused."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pandas as pd
import pytest

from tfos_lab.engine.feed import arrays
from tfos_lab.engine.feed.arrays import frame_of_arrays, is_in_memory, table_of
from tfos_lab.errors import ConfigError


def types_of(data):
    return {field.name: str(field.type).replace("item: ", "") for field in table_of(data).schema}


@pytest.mark.parametrize(
    ("array", "becomes"),
    [
        (np.zeros(3, bool), "bool"),
        (np.zeros(3, np.int8), "int8"),
        (np.zeros(3, np.uint8), "int16"),
        (np.zeros(3, np.uint16), "int32"),
        (np.zeros(3, np.uint32), "int64"),
        (np.zeros(3, np.uint64), "int64"),
        (np.zeros(3, np.float16), "float"),
        (np.zeros(3, ml_dtypes.bfloat16), "float"),
        (np.zeros(3, np.float32), "float"),
        (np.zeros(3, ">f8"), "double"),
        (np.array(["a", "bc"]), "string"),
        (np.array([b"a", b"bc"]), "binary"),
        (np.array([b"a", "bc", None], object)[1:], "string"),
        (np.array(["2020-01-01"], "M8[ns]"), "timestamp[us]"),
        (np.array([1], "m8[s]"), "duration[us]"),
        (np.zeros((3, 4, 2), np.uint8), "list<list<int16>>"),
        (np.zeros((3, 4, 2), np.float32, "F")[::2], "list<list<float>>"),
        (np.array([np.zeros((2, 2), np.float32), np.ones((2, 2), np.float32), None], object)[:2], "list<list<float>>"),
        (np.array([[1], [2, 3]], object), "list<int64>"),
        (np.zeros((3, 0)), "list<double>"),
    ],
)
def test_dtypes_are_kept_or_become_the_next_wider_one(array, becomes):
    assert types_of(array) == {"x": becomes}


def test_values_and_shapes_are_kept():
    array = np.arange(24, dtype=np.uint8).reshape(4, 3, 2)
    assert table_of(array)["x"].to_pylist() == array.tolist()
    assert table_of(array[::2].transpose(0, 2, 1))["x"].to_pylist() == array[::2].transpose(0, 2, 1).tolist()


def test_large_arrays_are_cut_since_offsets_have_32_bits(monkeypatch):
    monkeypatch.setattr(arrays, "_MOST_VALUES", 7)
    array = np.arange(20).reshape(10, 2)
    column = table_of(array)["x"]
    assert (column.num_chunks, column.to_pylist()) == (4, array.tolist())


def test_columns_have_the_names_that_the_data_have():
    structured = np.zeros(2, [("a", "i4"), ("b", "f4", (2,))])
    assert types_of(structured) == {"a": "int32", "b": "list<float>"}
    assert types_of({"a": [1, 2], 3: np.zeros(2, np.int8)}) == {"a": "int64", "3": "int8"}
    assert types_of((np.zeros((2, 2)), np.zeros(2, int))) == {"x": "list<double>", "y": "int64"}
    assert list(types_of((np.zeros(1), np.zeros(1), np.zeros(1)))) == ["x", "y", "w"]


def test_columns_of_pandas_keep_their_types():
    frame = pd.DataFrame(
        {
            "byte": np.arange(2, dtype=np.uint8),
            "nan": [1.0, np.nan],
            "text": ["a", "b"],
            "category": pd.Categorical(["u", "v"]),
            "when": pd.to_datetime(["2020", "2021"]),
            "zoned": pd.to_datetime(["2020", "2021"]).tz_localize("UTC"),
            "lists": [[1, 2], [3, 4]],
            "images": [np.zeros((2, 2), np.float32), np.ones((2, 2), np.float32)],
            "nullable": pd.array([1, 2], "Int32"),
            "strings": pd.array(["a", "b"], "string"),
        },
        index=["first", "second"],
    )
    assert types_of(frame) == {
        "byte": "int16",
        "nan": "double",
        "text": "string",
        "category": "string",
        "when": "timestamp[us]",
        "zoned": "timestamp[us, tz=UTC]",
        "lists": "list<int64>",
        "images": "list<list<float>>",
        "nullable": "int32",
        "strings": "string",
    }
    assert table_of(frame)["nan"].null_count == 0


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"x": np.zeros(2), "y": np.zeros(3)}, "columns differ in their number of rows ('x' has 2, 'y' has 3)"),
        (np.zeros((0, 3)), "there are no rows, only empty columns"),
        (pd.DataFrame({"a": []}), "there are no rows"),
        ({}, "this dict has no columns"),
        ((1, [2]), "column 'x' is of type int, and an array with one value per row is needed"),
        (np.array(3), "column 'x' is a single value, array(3), and one per row is needed"),
        (np.ma.array([1, 2], mask=[0, 1]), "column 'x' is a masked array, and Spark has no masks: fill it first"),
        (np.zeros(2, complex), "column 'x' (complex128) becomes no column of Spark"),
        (np.array([object(), 3], object), "column 'x' (object) becomes no column of Spark: Could not convert <object"),
        ({"a": [1, "b"]}, "column 'a' (list) becomes no column of Spark: Could not convert 'b' with type str"),
        (np.array([2**64 - 1], np.uint64), "column 'x' (uint64) becomes no column of Spark: Integer value 1844"),
        (tuple(np.zeros((4, 2))), "a tuple of 4 has no names for its columns; give a dict"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "there are several columns 'a'"),
        (pd.DataFrame({"p": pd.period_range("2020", periods=2, freq="M")}), "column 'p' is extension<pandas.period<"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "",
)
def test_what_cannot_be_columns_is_refused_in_one_sentence(data, words):
    assert is_in_memory(data)
    with pytest.raises(ConfigError) as refusal:
        table_of(data)
    assert refusal.value.problems[0].startswith(f"data: {words}")


def test_other_things_are_not_in_memory():
    assert not any(map(is_in_memory, ([1, 2], "text", 3, None, {1, 2}, range(3))))


@pytest.mark.spark
def test_spark_takes_every_column(spark):
    when = np.array(["2020-01-01T10:00"], "M8[ns]")
    data = {
        "pixels": np.arange(8, dtype=np.uint8).reshape(1, 2, 2, 2),
        "text": ["a"],
        "when": when,
        "zoned": pd.Series(when).dt.tz_localize("UTC"),
        "span": np.array([1], "m8[s]"),
        "raw": [b"\0"],
    }
    frame = frame_of_arrays(spark, data)
    assert dict(frame.dtypes) == {
        "pixels": "array<array<array<smallint>>>",
        "text": "string",
        "when": "timestamp_ntz",
        "zoned": "timestamp",
        "span": "interval day to second",
        "raw": "binary",
    }
    assert frame.collect()[0]["pixels"] == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]


@pytest.mark.spark
def test_the_order_of_rows_is_kept(spark):
    assert [row.x for row in frame_of_arrays(spark, np.arange(25_000)).collect()] == list(range(25_000))
