"""What can be fed: arrays, DataFrames, RDDs and files, as columns or objects; and what is refused before it starts."""

from __future__ import annotations

import json
import re
from collections import namedtuple
from decimal import Decimal
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row

from tests.support.data_files import rows, write_parquet, write_records
from tfos_lab.core.states import RunState
from tfos_lab.engine.feed.files.shares import FoundFile, deal_files, deal_rows
from tfos_lab.engine.feed.request import make_request
from tfos_lab.errors import ConfigError, FeedError
from tfos_lab.errors.channel import own_error_in
from tfos_lab.messages import DataFile

pytestmark = pytest.mark.leaves_nothing


class RunningCluster:
    """A cluster that runs, as the checks before a feed see it; its nodes hold no slots of Spark's."""

    name, state, ended = "cluster", RunState.RUNNING, False

    def __init__(self, spark):
        self.spark = spark
        self.generation = SimpleNamespace(launcher=SimpleNamespace(free_slots=lambda: None))

    def wait_until_running(self):
        pass


@pytest.fixture
def request_for(spark):
    """What a cluster would be fed, or why it cannot be."""
    cluster = RunningCluster(spark)

    def make(data, **options):
        options = {"epochs": 1, "columns": None, "remainder": "exact", "timeout_s": 9.0, "spool_bytes": None, **options}
        return make_request(cluster, data, **options)

    return make


# ---- data of this process -------------------------------------------------------------------------------------------


def test_dtypes_and_shapes_are_kept_or_become_the_next_wider_one(request_for):
    when = np.array(["2020-01-01T10:00"], "M8[ns]")
    data = {
        "flag": np.zeros(1, bool), "i1": np.zeros(1, np.int8), "u1": np.zeros(1, np.uint8),
        "u2": np.zeros(1, np.uint16), "u4": np.zeros(1, np.uint32), "u8": np.zeros(1, np.uint64),
        "f2": np.zeros(1, np.float16), "b2": np.zeros(1, ml_dtypes.bfloat16), "big": np.zeros(1, ">f8"),
        "text": np.array(["bc"]),
        "raw": np.array([b"\0"]), "when": when, "zoned": pd.Series(when).dt.tz_localize("UTC"),
        "span": np.array([1], "m8[s]"), "pixels": np.arange(8, dtype=np.uint8).reshape(1, 2, 2, 2),
        "ragged": np.array([[2, 3]], object).reshape(1, 2), "category": pd.Categorical(["u"]),
    }  # fmt: skip
    frame = request_for(data).frame
    assert dict(frame.dtypes) == {
        "flag": "boolean", "i1": "tinyint", "u1": "smallint", "u2": "int", "u4": "bigint", "u8": "bigint",
        "f2": "float", "b2": "float", "big": "double", "text": "string", "raw": "binary", "when": "timestamp_ntz",
        "zoned": "timestamp", "span": "interval day to second",
        "pixels": "array<array<array<smallint>>>", "ragged": "array<bigint>",
        "category": "string",
    }  # fmt: skip
    assert frame.collect()[0]["pixels"] == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]


def test_columns_have_the_names_that_the_data_have_and_rows_their_order(request_for):
    structured = np.zeros(2, [("a", "i4"), ("b", "f4", (2,))])
    assert request_for(structured).frame.columns == ["a", "b"]
    assert request_for((np.zeros((2, 2)), np.zeros(2, int), np.zeros(2))).frame.columns == ["x", "y", "w"]
    assert request_for(pd.DataFrame({"n": [1, 2]}, index=["first", "second"])).frame.columns == ["n"]
    assert [row.x for row in request_for(np.arange(25_000)).frame.collect()] == list(range(25_000))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"x": np.zeros(2), "y": np.zeros(3)}, "columns differ in their number of rows ('x' has 2, 'y' has 3)"),
        (pd.DataFrame({"a": []}), "there are no rows"),
        ({}, "this dict has no columns"),
        ((1, [2]), "column 'x' is of type int, and an array with one value per row is needed"),
        (np.ma.array([1, 2], mask=[0, 1]), "column 'x' is a masked array, and Spark has no masks: fill it first"),
        (np.array([object(), 3], object), "column 'x' (object) becomes no column of Spark: Could not convert <object"),
        ({"a": [1, "b"]}, "column 'a' (list) becomes no column of Spark: Could not convert 'b' with type str"),
        (np.array([2**64 - 1], np.uint64), "column 'x' (uint64) becomes no column of Spark: Integer value 1844"),
        (tuple(np.zeros((4, 2))), "a tuple of 4 has no names for its columns; give a dict"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "there are several columns 'a'"),
        (pd.DataFrame({"p": pd.period_range("2020", periods=2, freq="M")}), "column 'p' is extension<pandas.period<"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "",
)
def test_what_cannot_be_columns_is_refused_in_one_sentence(request_for, data, words):
    with pytest.raises(ConfigError) as refusal:
        request_for(data)
    assert refusal.value.problems[0].startswith(f"data: {words}")


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
    ["text", (1, {"a": 1}), (np.float32(1), 1), object],
    ids=["text", "dict within", "NumPy within", "class"],
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


# ---- RDDs -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def values(request_for):
    return lambda rows: [tuple(row) for row in request_for(rows, objects=False).frame.collect()]


@pytest.fixture
def refused(values):
    """Return the sentence that refuses an RDD: at once, or when its rows are computed."""

    def refused(rows):
        try:
            values(rows)
        except (ConfigError, FeedError) as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - Spark's, around ours
            return str(own_error_in(error))
        pytest.fail("it was taken")

    return refused


@pytest.fixture
def cure(values, refused):
    """Return the sentence that refuses an RDD, and the rows that arrive once one has done what it says."""

    def cure(rows):
        sentence = refused(rows)
        return sentence, values(eval(re.search(r"rdd\.map\(.*\)$", sentence)[0], {"rdd": rows}))

    return cure


def test_rows_of_every_kind_arrive_as_spark_takes_them(values, rdd):
    assert values(rdd((1, "a", [1.0, 2.0]), (2, "b", [3.0]))) == [(1, "a", [1.0, 2.0]), (2, "b", [3.0])]
    assert values(rdd({"y": 1, "x": 2.0}, {"x": 3.0, "y": None})) == [(2.0, 1), (3.0, None)]
    assert values(rdd(Row(b=1, a=True), Row(b=2, a=False))) == [(1, True), (2, False)]
    assert values(rdd(Point(1, 2))) == [(1, 2)]
    assert values(rdd((None, 1), (2.5, 2))) == [(None, 1), (2.5, 2)]


def test_what_cannot_be_computed_or_says_nothing_of_its_type_is_told(refused, rdd):
    assert "None in the first 100 rows: give columns and types yourself" in refused(rdd((None,), (None,)))
    told = refused(rdd(1).map(lambda x: (x / 0,)))
    assert "the RDD's first row cannot be computed: Spark's job failed: ZeroDivisionError: division by zero" in told


# As Spark's users write it, in a notebook.
Point = namedtuple("Point", "x y", module="__main__")  # noqa: PYI024


@pytest.mark.parametrize(
    ("rows", "words", "after"),
    [
        (
            [(1.0, 5), (2, 6)],
            "column '_1' of the RDD is double, as in its first row, but another row holds the int 2, which Spark would",
            [(1.0, 5), (2.0, 6)],
        ),
        ([[1.0, 2.0], [3, 4.0]], "column '_1' .* the int 3", [(1.0, 2.0), (3.0, 4.0)]),
        (
            [(7, [1.0, 2.0]), (8, [3.0, 4])],
            "'_2' .* is array<double>, .* the int 4",
            [(7, [1.0, 2.0]), (8, [3.0, 4.0])],
        ),
        ([{"x": 1.0, "n": 1}, {"x": 2, "n": 2}], "'x' .* the int 2", [(1, 1.0), (2, 2.0)]),
        ([(1.0, 5), (np.float64(2), 6)], "the numpy.float64", [(1.0, 5), (2.0, 6)]),
    ],
    ids=[
        "int for float",
        "lists as rows",
        "in an array",
        "dicts",
        "NumPy later",
    ],
)
def test_a_value_of_another_type_than_the_first_is_named_with_its_column_and_a_remedy(cure, rdd, rows, words, after):
    rows = rdd(*rows)
    sentence, cured = cure(rows)
    assert re.search(words, sentence)
    assert cured == after


@pytest.mark.parametrize(
    ("row", "words", "after"),
    [
        (np.arange(2.0), r"make them Python's, as in rdd\.map", ([0.0, 1.0],)),
        ((np.arange(2), np.int64(3), 4), r"'_1', '_2': NumPy's values", ([0, 1], 3, 4)),
        (([np.int64(1), np.int64(2)], 4), r"'_1': NumPy's values", ([1, 2], 4)),
        (Row(x=np.float32(0.5), n=1), r"'x': NumPy's values", (1, 0.5)),
        (3, r"make a tuple of each value", (3,)),
    ],
    ids=["arrays", "in tuples", "in lists", "in Rows", "no NumPy at all"],
)
def test_numpy_s_values_are_named_with_a_remedy(cure, rdd, row, words, after):
    rows = rdd(row, row)
    sentence, cured = cure(rows)
    assert re.search(words, sentence)
    assert cured == [after, after]


# ---- files ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


@pytest.fixture
def found(request_for):
    return lambda data, columns=None: request_for(data, columns=columns).files


@pytest.fixture
def refusal(found):
    def refusal(data, columns=None):
        with pytest.raises(ConfigError) as refused:
            found(data, columns)
        return str(refused.value)

    return refusal


def test_what_is_not_there_is_refused(refusal, folder):
    assert refusal(f"{folder}/none") == f"data='{folder}/none': there is no such file or folder"
    assert refusal(f"{folder}/*.parquet") == f"data='{folder}/*.parquet': no file has such a name"
    assert refusal(str(folder)) == f"data='{folder}': there are no files in this folder"


def types_of(source):
    return {field["name"]: field["type"] for field in json.loads(source.schema)["fields"]}


def test_parquet_files_have_their_rows_and_columns_in_their_footers(found, folder):
    for number in range(2):
        write_parquet(folder / f"{number}.parquet", rows(number * 6, number * 6 + 6))
    (folder / "_SUCCESS").touch()
    for data in (str(folder), str(folder / "*.parquet"), [str(folder / "0.parquet"), folder / "1.parquet"]):
        source = found(data)
        assert (source.format, [file.blocks for file in source.files]) == ("parquet", [[(0, 4), (1, 2)]] * 2)
        assert types_of(source)["x"] == {"type": "array", "elementType": "float", "containsNull": True}
    assert list(types_of(found(str(folder), ["name", "id"]))) == ["name", "id"]


def test_columns_have_the_types_that_spark_would_read(found, refusal, folder):
    batch = pa.RecordBatch.from_pydict(
        {
            "u8": pa.array([1], pa.uint8()),
            "u64": pa.array([1], pa.uint64()),
            "time": pa.array([0], pa.timestamp("ns", "UTC")),
            "wall": pa.array([0], pa.timestamp("ms")),
            "text": pa.array(["a"]).dictionary_encode(),
            "price": pa.array([Decimal("1.00")], pa.decimal128(10, 2)),
            "person": pa.array([{"age": 3}]),
        }
    )
    path = write_parquet(folder / "a.parquet", batch)
    assert types_of(found(path, [name for name in batch.schema.names if name != "person"])) == {
        "u8": "short",
        "u64": "decimal(20,0)",
        "time": "timestamp",
        "wall": "timestamp_ntz",
        "text": "string",
        "price": "decimal(10,2)",
    }
    assert types_of(found(path, ["person.age"])) == {"person.age": "long"}
    assert "columns=['person.age', ...]" in refusal(path, ["person"])


def test_folders_of_partitions_are_columns_of_the_types_that_spark_infers(found, folder):
    for year, day, city, share in ((2023, "2023-01-02", "Rome", "0.5"), (2024, "2024-02-29", "7", "1")):
        place = folder / f"year={year}" / f"day={day}" / f"city={city}" / f"share={share}"
        write_parquet(place / "a.parquet", rows(0, 2))
    types = types_of(found(str(folder)))
    assert list(types)[-4:] == ["year", "day", "city", "share"]
    assert [types[name] for name in ("year", "day", "city", "share")] == ["integer", "date", "string", "double"]


def test_tfrecords_are_inferred_from_their_first_records_and_counted_later(found, folder):
    write_records(folder / "a.tfrecord", rows(0, 3))
    write_records(folder / "b.tfrecord.gz", rows(3, 5))
    write_records(folder / "part-0", rows(5, 6))
    write_records(folder / "empty.tfrecord", rows(0, 0))
    source = found(str(folder))
    assert (source.format, source.is_counted) == ("tfrecord", False)
    assert types_of(source) == {
        "id": "long",
        "name": "binary",
        "x": {"type": "array", "elementType": "float", "containsNull": True},
    }


def test_files_that_do_not_fit_together_are_refused(refusal, folder):
    write_parquet(folder / "a.parquet", rows(0, 2))
    write_parquet(folder / "b.parquet", pa.RecordBatch.from_pydict({"id": ["0"], "x": [[1.0]], "name": [b""]}))
    assert f"column 'id' is int64 in {folder}/a.parquet and string in {folder}/b.parquet" in refusal(str(folder))
    write_parquet(folder / "b.parquet", pa.RecordBatch.from_pydict({"id": [0]}))
    assert f"column 'x' is in {folder}/a.parquet and not in {folder}/b.parquet" in refusal(str(folder))
    write_records(folder / "b.tfrecord", rows(0, 1))
    (folder / "b.parquet").unlink()
    assert f"there are both Parquet ({folder}/a.parquet) and TFRecords" in refusal(str(folder))


def test_other_formats_and_damaged_files_are_refused(refusal, folder):
    (folder / "a.csv").write_text("id\n1\n")
    assert f"{folder}/a.csv is neither Parquet nor TFRecords" in refusal(str(folder / "a.csv"))
    (folder / "a.parquet").write_text("no Parquet file, only its name")
    assert f"{folder}/a.parquet" in refusal(str(folder / "a.parquet"))
    (folder / "a.tfrecord").write_bytes(b"no records")
    assert "cannot be read" in refusal(str(folder / "a.tfrecord"))
    write_records(folder / "b.tfrecord", rows(0, 0))
    assert "the files hold no records with values" in refusal(str(folder / "b.tfrecord"))
    write_parquet(folder / "c.parquet", rows(0, 1))
    assert "did you mean 'name'" in refusal(str(folder / "c.parquet"), ["nam"])


# ---- how rows of files are dealt -------------------------------------------------------------------------------------


def files_of(sizes):
    return [
        FoundFile(DataFile("/", f"/{number}", 1), list(enumerate(blocks)), {"number": str(number)})
        for number, blocks in enumerate(sizes)
    ]


@given(st.lists(st.lists(st.integers(1, 20), max_size=5), max_size=8), st.integers(1, 6))
def test_each_row_goes_to_one_node_in_order_and_shares_differ_by_one_row_at_most(sizes, nodes):
    dealt = deal_rows(files_of(sizes), nodes)
    rows = [
        [
            (part.number, block, row)
            for part in parts
            for block, skip, count in part.pieces
            for row in range(skip, skip + count)
        ]
        for parts in dealt
    ]
    wanted = [(n, b, row) for n, blocks in enumerate(sizes) for b, size in enumerate(blocks) for row in range(size)]
    assert [row for some in rows for row in some] == wanted
    assert max(map(len, rows)) - min(map(len, rows)) <= 1
    assert all(part.partition == {"number": str(part.number)} for parts in dealt for part in parts)


@given(st.lists(st.integers(0, 100), max_size=20), st.integers(1, 6))
def test_each_file_is_counted_by_one_node(sizes, nodes):
    dealt = deal_files(sizes, nodes)
    assert [number for some in dealt for number in some] == list(range(len(sizes)))
