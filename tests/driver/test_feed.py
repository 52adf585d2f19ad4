"""What can be fed, and what is refused before or while it is fed: arrays, RDDs and files, asked of a real cluster."""

import gzip
import re
import threading
import time
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import ml_dtypes
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import Row

from tests.support.clusters import running_clusters
from tests.support.data_files import rows, write_parquet, write_records
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.fake_nodes import FakeNodes, identity_of, make_cluster
from tests.support.quick import QUICK_ENV
from tfos_lab.errors import ClusterEnded, ConfigError, FeedError, NodeFailed

OPTIONS = {"local": "processes", "env": QUICK_ENV, "cluster_size": 1}


def wait(args, ctx):
    """Run until the cluster is stopped."""
    import threading

    threading.Event().wait(600)


def read(args, ctx):
    """Return the rows that arrive, as text, which tells their types, too."""
    feed, seen = ctx.data_feed(), []
    while not feed.should_stop():
        seen += feed.next_batch(100)
    return repr(seen)


@pytest.fixture(scope="module")
def start(spark_sessions, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFOS_LAB_RUNS", str(tmp_path_factory.mktemp("runs")))
        with running_clusters({"spark": spark_sessions.get("local"), **OPTIONS}) as start:
            yield start


@pytest.fixture(scope="module")
def waiting(start):
    """A cluster that runs, and outlives all that it refuses."""
    return start(wait)


@pytest.fixture
def refusal(spark, waiting):
    """Return the sentence in which data are refused."""

    def refusal(data, **options):
        with pytest.raises(ConfigError) as refused:
            waiting.train(data, **options)
        assert waiting.state == "running"
        return str(refused.value)

    return refusal


# ---- data of this process -------------------------------------------------------------------------------------------


def test_dtypes_and_shapes_are_kept_or_become_the_next_wider_one(spark, start):
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
    answers = start(wait).inference(data, columns=["flag"], schema="answer long")  # computed when it is looked at
    assert dict(answers.dtypes) == {
        "flag": "boolean", "i1": "tinyint", "u1": "smallint", "u2": "int", "u4": "bigint", "u8": "bigint",
        "f2": "float", "b2": "float", "big": "double", "text": "string", "raw": "binary", "when": "timestamp_ntz",
        "zoned": "timestamp", "span": "interval day to second",
        "pixels": "array<array<array<smallint>>>", "ragged": "array<bigint>",
        "category": "string", "answer": "bigint",
    }  # fmt: skip


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
def test_what_cannot_be_columns_is_refused_in_one_sentence(refusal, data, words):
    assert refusal(data).startswith(f"data: {words}")


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
def test_options_that_do_not_fit_are_told_in_one_sentence(spark, refusal, options, words):
    assert words in refusal(spark.range(1), **options)


def test_the_objects_of_a_stream_are_refused(spark, refusal):
    assert "a stream's rows come as columns" in refusal(spark.readStream.format("rate").load(), objects=True)


# ---- RDDs -----------------------------------------------------------------------------------------------------------


# As Spark's users write it, in a notebook.
Point = namedtuple("Point", "x y", module="__main__")  # noqa: PYI024


def test_a_value_of_another_type_than_the_first_is_refused_by_spark_and_not_made_null(spark, start):
    words = r"field _1: DoubleType\(\) can not accept object .?2.? in type .*int.*give all values of a column one type"
    with pytest.raises(FeedError, match=words):
        start(wait).train(spark.sparkContext.parallelize([(1.0, 5), (2, 6)], 1), objects=False)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (np.arange(2.0), "rows are NumPy's: make them Python's"),
        ((np.arange(2), np.int64(3), 4), "make NumPy's values Python's"),
        (Row(x=np.float32(0.5), n=1), "make NumPy's values Python's"),
        (3, "make a tuple of each value"),
    ],
    ids=["arrays", "in tuples", "in Rows", "no NumPy at all"],
)
def test_what_spark_makes_no_columns_of_is_told_with_a_remedy(spark, refusal, row, words):
    assert words in refusal(spark.sparkContext.parallelize([row, row], 2), objects=False)


def test_what_cannot_be_computed_or_says_nothing_of_its_type_is_told(spark, refusal, waiting):
    of = spark.sparkContext.parallelize
    assert "None in the first 100 rows: give columns and types yourself" in refusal(of([(None,)] * 2), objects=False)
    with pytest.raises(FeedError, match=r"the RDD's first row cannot be computed: .* ZeroDivisionError: division by"):
        waiting.train(of([1]).map(lambda x: (x / 0,)), objects=False)


def test_an_inference_that_waits_for_nodes_ends_with_its_cluster(spark, tmp_path):
    nodes = FakeNodes()  # they never open an endpoint
    with make_cluster(tmp_path, nodes) as cluster, ThreadPoolExecutor(1) as pool:
        cluster.launch()
        answering = pool.submit(cluster.inference, spark.sparkContext.parallelize([1]), objects=True)
        eventually(lambda: "InferenceOpen" in nodes.listener.sent_to(identity_of(1)))
        cluster.stop(grace=0.0)
        with pytest.raises(ClusterEnded, match="answer rows"):
            answering.result(PATIENCE_S)


def test_spark_tells_how_far_it_is_with_all_that_a_job_takes(spark, start, tmp_path):
    def wait(batches):
        while not (tmp_path / "go").exists():
            time.sleep(0.01)
        yield from batches

    cluster = start(read)
    frame = spark.range(0, 100, numPartitions=3).withColumnRenamed("id", "x").repartition(2).mapInArrow(wait, "x long")
    feeding = threading.Thread(target=cluster.train, args=(frame,))
    feeding.start()
    try:
        # Those before the shuffle have ended.
        eventually(lambda: [feed.tasks for feed in cluster.view().feeds] == [(3, 5)])
    finally:
        (tmp_path / "go").touch()
        feeding.join()


# As Arrow and Spark say it, in a stack trace.
FULL_VECTOR = (
    "OversizedAllocationException: Memory required for vector is (2147483648), which is overflow or more than max "
    "allowed (2147483647). You could consider using LargeVarCharVector/LargeVarBinaryVector for large strings"
)
FULL_NUMBERS = (
    "OversizedAllocationException: Memory required for vector capacity 536870912 is (2147483648), which is more than "
    "max allowed (2147483647)"
)
FULL_ROW = (
    "IllegalArgumentException: Cannot grow BufferHolder by size 2000000008 because the size after growing exceeds size "
    "limitation 2147483632"
)


@pytest.mark.parametrize(
    ("schema", "text", "said"),
    [
        ("x binary, n long", FULL_VECTOR, "Spark needs room for 2,147,483,648 bytes of column 'x' in one Arrow batch"),
        ("x binary, n long", FULL_NUMBERS, "bytes of column 'x' in one Arrow batch, and 2,147,483,647 is the most"),
        ("x binary, n long", FULL_ROW, "Spark needs 2,000,000,008 bytes more for a row with column 'x', and a row has"),
        (
            f"n long, {', '.join(f'a{number} array<int>' for number in range(7))}",
            FULL_VECTOR,
            "bytes of one of the columns 'a0', 'a1', 'a2', 'a3', 'a4' and 2 more in one Arrow batch",
        ),
    ],
    ids=["bytes", "numbers", "row", "many columns"],
)
def test_what_is_too_large_for_spark_is_told_with_the_columns_that_may_be(spark, start, schema, text, said):
    def fail(batches):
        raise MemoryError(text)
        yield from batches

    with pytest.raises(FeedError) as failed:
        start(wait).train(spark.range(2).mapInArrow(fail, schema))
    assert said in failed.value.reason
    assert "make several rows of a large one, or feed the path of a file" in failed.value.reason


# ---- files ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


@pytest.fixture
def arrived(spark, start):
    """Feed data to a node; return its rows as text."""

    def arrived(data, **options):
        cluster = start(read)
        cluster.train(data, **options)
        return cluster.wait(timeout=100)["chief:0"]

    return arrived


def test_what_is_not_there_is_refused(refusal, folder):
    assert refusal(f"{folder}/none") == f"data='{folder}/none': there is no such file or folder"
    assert refusal(f"{folder}/*.parquet") == f"data='{folder}/*.parquet': no file has such a name"
    assert refusal(str(folder)) == f"data='{folder}': there are no files in this folder"


def test_columns_have_the_types_that_spark_would_read(arrived, refusal, folder):
    columns = {
        "u8": pa.array([1], pa.uint8()),
        "time": pa.array([0], pa.timestamp("ns", "UTC")),
        "text": pa.array(["a"]).dictionary_encode(),
        "price": pa.array([Decimal("1.00")], pa.decimal128(10, 2)),
        "person": pa.array([{"age": 3}]),
    }
    path = write_parquet(folder / "a.parquet", pa.RecordBatch.from_pydict(columns))
    assert arrived(path, columns=["u8", "time", "text", "price"]) == (
        "[Row(u8=1, time=datetime.datetime(1970, 1, 1, 0, 0), text='a', price=Decimal('1.00'))]"
    )
    assert "columns=['person.age', ...]" in refusal(path, columns=["person"])


def test_folders_of_partitions_are_columns_of_the_types_that_spark_infers(arrived, folder):
    for year, day, city, share in ((2023, "2023-01-02", "Rome", "0.5"), (2024, "2024-02-29", "7", "1")):
        place = folder / f"year={year}" / f"day={day}" / f"city={city}" / f"share={share}"
        write_parquet(place / "a.parquet", rows(0, 1))
    assert arrived(str(folder), columns=["year", "day", "city", "share"]) == (
        "[Row(year=2023, day=datetime.date(2023, 1, 2), city='Rome', share=0.5), "
        "Row(year=2024, day=datetime.date(2024, 2, 29), city='7', share=1.0)]"
    )


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
    (folder / "a.orc").write_text("id\n1\n")
    assert f"{folder}/a.orc is neither Parquet nor TFRecords" in refusal(str(folder / "a.orc"))
    (folder / "a.parquet").write_text("no Parquet file, only its name")
    assert f"{folder}/a.parquet" in refusal(str(folder / "a.parquet"))
    (folder / "a.tfrecord").write_bytes(b"no records")
    assert "cannot be read" in refusal(str(folder / "a.tfrecord"))
    write_records(folder / "b.tfrecord", rows(0, 0))
    assert "the files hold no records with values" in refusal(str(folder / "b.tfrecord"))
    write_parquet(folder / "c.parquet", rows(0, 1))
    assert "did you mean 'name'" in refusal(str(folder / "c.parquet"), columns=["nam"])


def written(path, text):
    """Write a text, compressed if the name says so; return the path as text."""
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


def test_csv_is_read_as_by_spark_s_reader_and_all_files_have_the_same_types(spark, arrived, folder):
    written(folder / "a.csv", 'id,x,day,name\n1,2,2024-02-29,"a\nb"\n\n2,3,2024-03-01,"say ""no"", thrice"\r\n')
    written(folder / "b.csv", 'x,id,name,day\n0.5,3,5" pipe,2024-01-01')
    written(folder / "c.csv.gz", "id,x,day,name\n4,1,2024-01-01,\u00e4\n")
    written(folder / "d.csv", "")
    written(folder / "e.csv", "id,x,day,name\n")
    ours = arrived(str(folder))
    frames = [
        spark.read.csv(str(folder / name), header=True, multiLine=True, escape='"', schema=schema)
        for name, schema in (
            ("a.csv", "id long, x double, day date, name string"),
            ("b.csv", "x double, id long, name string, day date"),
            ("c.csv.gz", "id long, x double, day date, name string"),
        )
    ]
    theirs = [row for frame in frames for row in frame.select("id", "x", "day", "name").collect()]
    assert ours == repr(theirs)


def test_objects_of_json_may_leave_columns_out_that_are_not_wanted(arrived, folder):
    written(
        folder / "a.json", '{"id": 1, "at": {"x": [1, 2], "y": null}, "when": "2024-01-01"}\n\n{"id": 2.5, "at": {}}\n'
    )
    written(folder / "b.jsonl.gz", '{"more": 1, "id": 3}')
    assert arrived(str(folder), columns=["id"]) == "[Row(id=1.0), Row(id=2.5), Row(id=3.0)]"
    path = written(folder / "c.json", '{"at": {"x": [1], "day": "2024-01-01"}}')
    assert arrived(path, columns=["at.x", "at.day"]) == "[Row(at.x=[1], at.day='2024-01-01')]"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "", "the files hold no rows"),
        ("a.csv", "id,x\n", "the files hold no rows"),
        ("a.json", "\n\n", "the files hold no rows"),
        ("a.csv", "1,1,2\n3,4,5\n", "/a.csv names '1' twice: it has to be a header"),
        ("a.csv", "id,x\n1,2\n3\n", "/a.csv: row 3 (the header is row 1): Expected 2 columns, got 1: 3. Mend the row"),
        ("a.csv", 'id,x\n1,"say \\"no\\", twice"\n', "/a.csv: a quote follows a backslash"),
        ("a.json", '[{"a": 1},\n{"a": 2}]', "/a.json: row 1: JSON parse error"),
        ("a.json", '{"a": 1}\n{"a": 1, "b"}\n', "/a.json: row 2: JSON parse error"),
        ("a.json", '{\n"a": 1\n}\n', "/a.json: it does not have one object of JSON per line"),
    ],
)
def test_lines_that_are_no_rows_are_refused_with_their_number(refusal, folder, name, text, words):
    assert words in refusal(written(folder / name, text))


def test_files_of_lines_that_differ_are_refused(refusal, folder):
    written(folder / "a.csv", "id,x\n1,2\n")
    written(folder / "b.csv", "id\n1\n")
    assert f"column 'x' is in {folder}/a.csv and not in {folder}/b.csv" in refusal(f"{folder}/*.csv")
    written(folder / "a.json", '{"id": 1}')
    written(folder / "b.json", '{"id": "1"}')
    assert "column 'id' is int64 in one file, and string in another" in refusal(f"{folder}/*.json")


@pytest.mark.parametrize(
    ("name", "line", "words"),
    [
        (
            "a.csv",
            "{:100},{}\n",
            "row 60,001 (the header is row 1): column 'x': CSV conversion error to int64: invalid",
        ),
        ("a.json", '{{"id": {:100}, "x": {}}}\n', "row 60,001: column 'x': Failed to convert JSON to int64"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_row_however_late_it_comes(start, folder, name, line, words):
    lines = ["id,x\n"] if name == "a.csv" else [line.format(0, 0)]  # more than are read at once: 4 MiB
    lines += [line.format(number, number) for number in range(1, 60_000)] + [line.format(0, 0.5)]
    path = written(folder / name, "".join(lines))
    cluster = start(read)
    cluster.train(path, columns=["x"])
    with pytest.raises(NodeFailed, match=re.escape(f"{path}: {words}")):
        cluster.wait(timeout=100)
