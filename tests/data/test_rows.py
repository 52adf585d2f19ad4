"""Rows of every type as a function reads them: of Parquet files without Spark, and of DataFrames through a real one.

The function runs in this process, and its batches are those of ``ctx.dataset``.
"""

import datetime as dt
import tempfile
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from tests.support.clusters import running_clusters
from tfos_lab.data import ImageData
from tfos_lab.errors import ConfigError, FeedError

pytestmark = pytest.mark.tensorflow


def read(shuffle, ctx):
    """Return the columns of all rows, in order unless they are shuffled."""
    batches = [
        {name: column.numpy() for name, column in batch.items() if name != "sample_weight"}
        for batch in ctx.dataset(1000, shuffle=shuffle, seed=1)
    ]
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


@pytest.fixture(scope="module")
def fed(tmp_path_factory):
    """A function that feeds rows to `read`: ``fed(data, shuffle=False, spark=None, **options of train)``."""
    with pytest.MonkeyPatch.context() as patch, running_clusters({"local": "inline", "cluster_size": 1}) as start:
        patch.setenv("TFOS_LAB_RUNS", str(tmp_path_factory.mktemp("runs")))

        def fed(data, *, shuffle=False, spark=None, **options):
            with start(read, shuffle, spark=spark) as cluster:
                cluster.train(data, **options)
                return cluster.wait(timeout=60)["chief:0"]

        yield fed


def of_table(fed, table, **options):
    """Feed an Arrow table, by way of a file."""
    with tempfile.TemporaryDirectory() as folder:
        parquet.write_table(table, f"{folder}/rows.parquet")
        return fed(f"{folder}/rows.parquet", **options)


# ---- without Spark --------------------------------------------------------------------------------------------------

EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - as Spark's timestamp_ntz
MICROSECOND = dt.timedelta(microseconds=1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
TIMES = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1))  # noqa: DTZ001


def microseconds_of_day(at):
    return (dt.datetime.combine(EPOCH, at) - EPOCH) // MICROSECOND


# Of each type: Arrow's, values, the dtype of the tensor, and what a value is as an entry of it.
LEAVES = {
    "bool": (pa.bool_(), st.booleans(), "bool", bool),
    "int8": (pa.int8(), st.integers(-(2**7), 2**7 - 1), "int8", int),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1), "int64", int),
    "float32": (pa.float32(), st.floats(width=32, allow_nan=False), "float32", float),
    "float64": (pa.float64(), st.floats(allow_nan=False), "float64", float),
    "decimal": (
        pa.decimal128(15, 3),
        st.integers(-(10**15) + 1, 10**15 - 1).map(lambda n: Decimal(n) / 1000),
        "float64",
        float,
    ),
    "string": (pa.string(), TEXTS, "object", str.encode),
    "large_string": (pa.large_string(), TEXTS, "object", str.encode),
    "binary": (pa.binary(), st.binary(max_size=8), "object", bytes),
    "binary(3)": (pa.binary(3), st.binary(min_size=3, max_size=3), "object", bytes),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["a", "bc", ""]), "object", str.encode),
    "date": (pa.date32(), st.dates(), "int32", lambda day: (day - EPOCH.date()).days),
    "timestamp": (pa.timestamp("us"), TIMES, "int64", lambda at: (at - EPOCH) // MICROSECOND),
    "duration": (
        pa.duration("us"),
        st.timedeltas(dt.timedelta(days=-(10**7)), dt.timedelta(days=10**7)),
        "int64",
        lambda span: span // MICROSECOND,
    ),
    "time": (pa.time64("us"), st.times(), "int64", microseconds_of_day),
}


def mapped(function, value):
    return [mapped(function, inner) for inner in value] if isinstance(value, list) else function(value)


@st.composite
def tables(draw):
    """Draw a table of some types, scalars or arrays of equal shapes, and what a function has to see of it."""
    count = draw(st.integers(1, 6))
    columns, expected = {}, {}
    for name in draw(st.lists(st.sampled_from(sorted(LEAVES)), min_size=8, unique=True)):
        kind, values, dtype, to_entry = LEAVES[name]
        shape = draw(st.lists(st.integers(1, 3), max_size=2))
        if name == "dictionary":
            shape = []  # Parquet keeps no dictionaries within lists
        wrap = draw(st.sampled_from([lambda kind, _: pa.list_(kind), lambda kind, _: pa.large_list(kind), pa.list_]))
        for size in reversed(shape):
            values, kind = st.lists(values, min_size=size, max_size=size), wrap(kind, size)
        rows = draw(st.lists(values, min_size=count, max_size=count))
        columns[name], expected[name] = pa.array(rows, kind), (dtype, (count, *shape), mapped(to_entry, rows))
    columns["row"], expected["row"] = pa.array(range(count)), ("int64", (count,), list(range(count)))
    return pa.table(columns), expected


@settings(max_examples=10, suppress_health_check=list(HealthCheck))
@given(tables(), st.booleans())
def test_every_type_is_read_by_its_rule_nested_and_shuffled(fed, case, shuffle):
    table, expected = case
    seen = of_table(fed, table, shuffle=shuffle)
    order = seen["row"].argsort()
    assert list(seen) == list(expected)
    for name, (dtype, shape, values) in expected.items():
        assert (seen[name].dtype, seen[name].shape) == (dtype, shape), name
        assert seen[name][order].tolist() == values, name


def test_large_decimals_are_rounded_to_the_nearest(fed):
    values = [Decimal("0.1"), Decimal("123456789012345678.9012345678"), Decimal("-1E+20")]
    seen = of_table(fed, pa.table({"x": pa.array(values, pa.decimal128(38, 10))}))
    np.testing.assert_allclose(seen["x"], [float(value) for value in values], rtol=1e-15)


LISTS = pa.list_(pa.int32())
TREES = pa.list_(LISTS)


@pytest.mark.parametrize(
    ("kind", "rows", "message"),
    [
        (pa.int32(), [1, None, None], r"column 'x' has 2 nulls.*the first in row 1.*df\.fillna"),
        (pa.string(), ["a", None], r"column 'x' has 1 null.*the first in row 1.*df\.dropna"),
        (LISTS, [[1], None], r"column 'x' has 1 null.*df\.dropna"),
        (LISTS, [[1, 2], [3, None]], r"column 'x' has 1 null.*the first in row 1.*F\.coalesce"),
        (TREES, [[[1, 2]], [[3, 4]], [[None, None]]], r"column 'x' has 2 nulls.*the first in row 2.*F\.coalesce"),
        (LISTS, [[1, 2], [3, 4], [5]], "ragged: row 2 of a batch has 1 values where the first has 2.*F.slice cuts"),
        (LISTS, [[], [3]], "ragged: row 1 of a batch has 1 values where the first has 0"),
        (TREES, [[[1], [2]], [[3], [4, 5]]], "ragged: row 1 of a batch has 2 values where the first has 1"),
        (TREES, [[[1], [2]], [[3]]], "ragged: row 1 of a batch has 1 values where the first has 2"),
    ],
)
def test_nulls_and_ragged_rows_are_refused_with_the_first_such_row(fed, kind, rows, message):
    with pytest.raises(Exception, match=message):  # TensorFlow wraps it
        of_table(fed, pa.table({"x": pa.array(rows, kind)}))


@pytest.mark.parametrize(
    "kind", [pa.map_(pa.string(), pa.int32()), pa.struct({"a": pa.int8()}), pa.null()], ids=["map", "struct", "null"]
)
def test_types_without_a_tensor_are_refused_all_at_once(fed, kind):
    table = pa.table({"x": pa.array([None], kind), "y": [1], "z": pa.array([None], kind)})
    with pytest.raises(ConfigError) as caught:
        of_table(fed, table)
    assert [problem.partition(" of type")[0] for problem in caught.value.problems] == ["column 'x'", "column 'z'"]
    assert of_table(fed, table, columns=["y"])["y"].tolist() == [1]


@pytest.mark.parametrize(
    ("columns", "problems"),
    [
        (
            ["lable", "zzz", "image"],
            [
                "column 'lable' is not in the data; did you mean 'Label'? It has: image, Label, weight",
                "column 'zzz' is not in the data. It has: image, Label, weight",
            ],
        ),
        (["image", "image"], ["column 'image' is asked for twice"]),
        ([], ["name at least one"]),
    ],
)
def test_columns_that_are_not_there_or_not_clear_are_named(fed, columns, problems):
    with pytest.raises(ConfigError) as caught:
        of_table(fed, pa.table({"image": [1], "Label": [2], "weight": [3]}), columns=columns)
    assert all(told in found for told, found in zip(problems, caught.value.problems, strict=True)), caught.value


# ---- through Spark --------------------------------------------------------------------------------------------------

ATOMS = [
    ("true", "bool", True),
    ("-7Y", "int8", -7),
    ("5000000000L", "int64", 5000000000),
    ("float(1.5)", "float32", 1.5),
    ("0.1D", "float64", 0.1),
    ("cast(12345678901234567890.5 as decimal(38, 1))", "float64", 12345678901234567890.5),
    ("'né'", "object", "né".encode()),
    ("cast('ab' as char(4))", "object", b"ab"),
    ("X'00FF'", "object", b"\x00\xff"),
    ("date'1969-12-31'", "int32", -1),
    ("timestamp'1970-01-01 00:00:01.5+00:00'", "int64", 1_500_000),
    ("timestamp_ntz'1970-01-01 00:00:01.5'", "int64", 1_500_000),
    ("interval '1:30' minute to second", "int64", 90_000_000),
    ("array(array(1Y, 2Y), array(3Y, 4Y))", "int8", [[1, 2], [3, 4]]),
    ("array('a', 'b')", "object", [b"a", b"b"]),
    ("array(1.25, 2.50)", "float64", [1.25, 2.5]),
    ("array(timestamp'1970-01-01 00:00:01+00:00')", "int64", [1_000_000]),
    ("slice(array(1, 2, 3), 2, 2)", "int32", [2, 3]),
]


@pytest.mark.parametrize("spark_mode", ["local", "connect"])
def test_each_type_of_spark_arrives_as_its_rule_says_in_any_time_zone(fed, spark):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        df = spark.range(3).selectExpr(*(f"{sql} as c{i}" for i, (sql, _, _) in enumerate(ATOMS)))
        arrays = fed(df, spark=spark)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    for i, (sql, dtype, value) in enumerate(ATOMS):
        assert arrays[f"c{i}"].dtype == dtype, sql
        assert arrays[f"c{i}"].tolist() == [value] * 3, sql


@pytest.mark.parametrize(
    ("sql", "label", "advice", "prepared", "expected"),
    [
        ("map('k', 1) as x", "map<string,int>", r"df\['x'\]\['key'\]", "x['k']", 1),
        ("struct(1 as a) as x", "struct<a:int>", r"columns=\['x.a', ...\]", "x.a", 1),
        (
            "array(struct(1 as a), struct(2 as a)) as x",
            "array<struct<a:int>>",
            "F.transform",
            "transform(x, element -> element['a'])",
            [1, 2],
        ),
        ("""parse_json('{"a": 2.5}') as x""", "variant", "variant_get", "variant_get(x, '$.a', 'double')", 2.5),
        ("array() as x", "array<void>", "cast", "cast(array(1) as array<int>)", [1]),
        ("interval '14' month as x", "interval month", "number of months", "cast(x as int)", 14),
    ],
)
def test_a_type_without_a_tensor_is_refused_before_a_job_runs_with_advice_that_works(
    fed, spark, *, sql, label, advice, prepared, expected
):
    df = spark.range(1).selectExpr(sql)
    with pytest.raises(ConfigError, match=rf"^column 'x' of type {label} cannot become a tensor: .*{advice}"):
        fed(df, spark=spark)
    assert fed(df.selectExpr(f"{prepared} as y"), spark=spark)["y"].tolist() == [expected]


@pytest.mark.parametrize("spark_mode", ["local", "connect"])
def test_fields_of_structs_are_columns_by_their_dotted_names(fed, spark):
    df = spark.sql("select struct(1 as a, struct(array(2D, 3D) as `d e`) as c) as s, 4 as `s.b`, 5 as `tick``ed`")
    arrays = fed(df, spark=spark, columns=["s.c.d e", "s.b", "tick`ed", "s.a"])
    assert {name: values.tolist() for name, values in arrays.items()} == {
        "s.c.d e": [[2.0, 3.0]],
        "s.b": [4],
        "tick`ed": [5],
        "s.a": [1],
    }
    for columns, message in ((["s.z"], "column 's.z' is not in the data"), (None, "column 's' of type struct")):
        with pytest.raises(ConfigError, match=message):
            fed(df, spark=spark, columns=columns)
    with pytest.raises(ConfigError, match="column 'a' is there 2 times"):
        fed(spark.sql("select 1 as a, 2 as b, 3 as a"), spark=spark)


@pytest.mark.parametrize("spark_mode", ["local", "connect"])
def test_vectors_dense_and_sparse_become_the_same_tensor_and_a_matrix_none(fed, spark, tmp_path):
    from pyspark.ml.linalg import Matrices, Vectors

    rows = [Vectors.dense([1, 2, 3]), Vectors.sparse(3, [0, 2], [5.0, 6.0]), Vectors.sparse(3, [], [])]
    df = spark.createDataFrame([(row,) for row in rows], ["v"]).coalesce(1)
    df.write.parquet(str(tmp_path / "vectors"))  # there they are as Spark has them, of both kinds
    for array in (fed(df, spark=spark)["v"], fed(str(tmp_path / "vectors"), spark=spark)["v"]):
        assert (array.dtype, array.tolist()) == ("float64", [[1, 2, 3], [5, 0, 6], [0, 0, 0]])
    with pytest.raises(ConfigError, match="column 'm' of type matrix cannot become a tensor: make it an array"):
        fed(spark.createDataFrame([(Matrices.dense(1, 2, [1, 2]),)], ["m"]), spark=spark)


def test_nulls_and_ragged_rows_of_spark_are_found_when_they_arrive(fed, spark):
    for values, message in (
        ("(1), (null)", r"column 'x' has 1 null in a batch of 2 rows \(the first in row 1\)"),
        ("(array(1)), (array(1, 2))", "column 'x' is ragged: row 1"),
    ):
        with pytest.raises(FeedError, match=message):
            fed(spark.sql(f"select * from values {values} as t(x)").coalesce(1), spark=spark)


def test_wide_offsets_make_no_difference(fed, spark):
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        arrays = fed(spark.sql("select 'a' as s, X'0102' as b, array('c') as l"), spark=spark)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
    assert [values.tolist() for values in arrays.values()] == [[b"a"], [b"\x01\x02"], [[b"c"]]]


@pytest.mark.parametrize(
    ("as_", "sql", "dtype", "shape"),
    [
        ("array", "array<float>", "float32", (28 * 28,)),
        ("image", "array<array<float>>", "float32", (28, 28)),
        ("int", "array<int>", "int32", (28 * 28,)),
        ("binary", "binary", "object", ()),
    ],
)
def test_images_arrive_whole_in_every_form(fed, spark, *, as_, sql, dtype, shape):
    images = np.arange(20 * 28 * 28, dtype=np.uint32).astype(np.uint8).reshape(20, 28, 28)
    digits = ImageData(images, np.arange(20), images[:4], np.arange(4), source="a test")
    df = digits.train_df(spark, as_=as_)
    assert dict(df.dtypes) == {"image": sql, "label": "bigint"}
    arrays = fed(df, spark=spark)
    order = arrays["label"].argsort()
    assert arrays["label"][order].tolist() == list(range(20))
    assert (arrays["image"].dtype, arrays["image"].shape) == (dtype, (20, *shape))
    seen = arrays["image"][order]
    if as_ == "binary":
        seen = np.stack([np.frombuffer(row, np.uint8) for row in seen])
    elif as_ != "int":
        seen = np.rint(seen * 255)
    np.testing.assert_array_equal(seen.reshape(images.shape), images)
    assert digits.test_df(partitions=3, as_=as_).rdd.getNumPartitions() == 3
