"""DataFrames of every type through a real Spark, as a feed sends them: prepared, through Arrow, to arrays."""

from __future__ import annotations

import datetime as dt
import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfos_lab.data import ImageData
from tfos_lab.data.batches import to_numpy
from tfos_lab.data.prepare import map_batches, prepare
from tfos_lab.data.schema import column_specs
from tfos_lab.errors import ConfigError, FeedError

pytestmark = pytest.mark.spark

EPOCH_DAY = dt.date(1970, 1, 1)
on_connect_too = pytest.mark.parametrize("spark_mode", ["local", "connect"])


def fed(df, columns=None, **options) -> dict[str, np.ndarray]:
    """Send a DataFrame the way that a feed does, and check that its schema announced what came."""

    def task(batches):
        import pyarrow as pa

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"rows": [pickle.dumps(batch)]})

    prepared = prepare(df.coalesce(1), columns, **options)
    specs = column_specs(prepared.schema.json())
    batches = [pickle.loads(bytes(row["rows"])) for row in map_batches(prepared, task, "rows binary").collect()]
    assert all(column_specs(batch.schema) == specs for batch in batches)
    arrays = [to_numpy(batch, specs) for batch in batches]
    return {name: np.concatenate([array[name] for array in arrays]) for name in arrays[0]}


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


@on_connect_too
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_each_type_arrives_as_its_rule_says_in_any_time_zone(spark, zone):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        df = spark.range(3).selectExpr(*(f"{sql} as c{i}" for i, (sql, _, _) in enumerate(ATOMS)))
        arrays = fed(df)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    for i, (sql, dtype, value) in enumerate(ATOMS):
        assert arrays[f"c{i}"].dtype == dtype, sql
        assert arrays[f"c{i}"].tolist() == [value] * 3, sql


# Arrow type, values, and what they become: dtype and a function of a value.
RULES = {
    "boolean": (pa.bool_(), st.booleans(), "bool", bool),
    "smallint": (pa.int16(), st.integers(-(2**15), 2**15 - 1), "int16", int),
    "bigint": (pa.int64(), st.integers(-(2**63), 2**63 - 1), "int64", int),
    "float": (pa.float32(), st.floats(width=32, allow_nan=False), "float32", float),
    "double": (pa.float64(), st.floats(allow_nan=False), "float64", float),
    "string": (pa.string(), st.text(st.characters(exclude_categories=["Cs"]), max_size=8), "object", str.encode),
    "binary": (pa.binary(), st.binary(max_size=8), "object", bytes),
    "date": (
        pa.date32(),
        st.dates(dt.date(1900, 1, 1), dt.date(2200, 1, 1)),
        "int32",
        lambda value: (value - EPOCH_DAY).days,
    ),
}


@st.composite
def tables(draw):
    """An Arrow table of some of the types, scalars or arrays of one length, and what a node has to see."""
    names = draw(st.lists(st.sampled_from(sorted(RULES)), min_size=1, max_size=4, unique=True))
    rows = draw(st.integers(1, 12))
    columns, expected = {}, {}
    for name in names:
        arrow, values, dtype, become = RULES[name]
        length = draw(st.sampled_from([None, 1, 3]))
        flat = draw(st.lists(values, min_size=rows * (length or 1), max_size=rows * (length or 1)))
        seen = np.empty(len(flat), dtype)
        seen[:] = [become(value) for value in flat]
        if length is None:
            columns[name], expected[name] = pa.array(flat, arrow), seen
        else:
            lists = [flat[i * length : (i + 1) * length] for i in range(rows)]
            columns[name], expected[name] = pa.array(lists, pa.list_(arrow)), seen.reshape(rows, length)
    return pa.table(columns), expected


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tables())
def test_what_goes_into_spark_is_what_a_node_sees(spark, case):
    table, expected = case
    seen = fed(spark.createDataFrame(table))
    assert list(seen) == list(expected)
    for name, values in expected.items():
        assert (seen[name].dtype, seen[name].shape) == (values.dtype, values.shape), name
        assert seen[name].tolist() == values.tolist(), name


@pytest.mark.parametrize(
    ("sql", "advice"),
    [
        ("map('k', 1)", r"df\['x'\]\['k"),
        ("struct(1 as a, 2 as b)", r"columns=\['x.a'"),
        ("array()", "cast"),
        ("interval '1' month", "cast"),
        ("parse_json('1')", "variant_get"),
    ],
)
def test_types_without_a_tensor_are_refused_before_a_job_runs(spark, sql, advice):
    with pytest.raises(ConfigError, match=f"^column 'x' of type .* cannot become a tensor: .*{advice}"):
        prepare(spark.range(1).selectExpr(f"{sql} as x"))


@pytest.mark.parametrize(
    ("sql", "prepared", "expected"),
    [
        ("map('k', 1) as x", "x['k']", [1]),
        ("array(struct(1 as a), struct(2 as a)) as x", "transform(x, element -> element['a'])", [[1, 2]]),
        ("interval '14' month as x", "cast(x as int)", [14]),
        ("""parse_json('{"field": 2.5}') as x""", "variant_get(x, '$.field', 'double')", [2.5]),
        ("array(1, null) as x", "transform(x, v -> coalesce(v, 0))", [[1, 0]]),
    ],
)
def test_what_a_refusal_advises_works(spark, sql, prepared, expected):
    df = spark.range(1).selectExpr(sql).selectExpr(f"{prepared} as y")
    assert fed(df)["y"].tolist() == expected


@on_connect_too
def test_fields_of_structs_are_columns_by_their_dotted_names(spark):
    df = spark.sql("select struct(1 as a, struct(array(2D, 3D) as `d e`) as c) as s, 4 as `s.b`, 5 as `tick``ed`")
    arrays = fed(df, ["s.c.d e", "s.b", "tick`ed", "s.a"])
    assert list(arrays) == ["s.c.d e", "s.b", "tick`ed", "s.a"]
    assert [values.tolist() for values in arrays.values()] == [[[2.0, 3.0]], [4], [5], [1]]
    with pytest.raises(ConfigError, match=r"column 's.z' is not in the data"):
        prepare(df, ["s.z"])
    assert prepare(df, "s.b").columns == ["s.b"]


@on_connect_too
@pytest.mark.parametrize("vectors", ["float64", "float32", "sparse"])
def test_vectors_dense_and_sparse_become_the_same_tensor(spark, vectors):
    from pyspark.ml.linalg import Vectors

    rows = [Vectors.dense([1, 2, 3]), Vectors.sparse(3, [0, 2], [5.0, 6.0]), Vectors.sparse(3, [], [])]
    df = spark.createDataFrame([(row,) for row in rows], ["v"])
    array = fed(df, vectors=vectors)["v"]
    assert array.dtype == ("float32" if vectors == "float32" else "float64")
    assert array.tolist() == [[1, 2, 3], [5, 0, 6], [0, 0, 0]]
    with pytest.raises(ConfigError, match="vectors='dense': use 'float64', 'float32' or 'sparse'"):
        prepare(df, vectors="dense")


def test_a_matrix_is_refused(spark):
    from pyspark.ml.linalg import Matrices

    df = spark.createDataFrame([(Matrices.dense(1, 2, [1, 2]),)], ["m"])
    with pytest.raises(ConfigError, match="column 'm' of type matrix cannot become a tensor: make it an array"):
        prepare(df)


def test_nulls_and_ragged_rows_are_found_when_they_arrive(spark):
    with pytest.raises(FeedError, match="column 'x' has 1 nulls in a batch of 2 rows \\(the first in row 1\\)"):
        fed(spark.sql("select * from values (1), (null) as t(x)"))
    with pytest.raises(FeedError, match="column 'x' is ragged: row 1"):
        fed(spark.sql("select * from values (array(1)), (array(1, 2)) as t(x)"))


def test_wide_offsets_make_no_difference(spark):
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        arrays = fed(spark.sql("select 'a' as s, X'0102' as b, array('c') as l"))
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
    assert [values.tolist() for values in arrays.values()] == [[b"a"], [b"\x01\x02"], [[b"c"]]]


def test_two_columns_of_one_name_travel_where_prepare_is_not_asked(spark):
    def count(batches):
        for batch in batches:
            yield batch.select([0]).rename_columns(["n"])

    df = spark.sql("select 1 as a, 2 as a, 3 as A")
    assert [row.n for row in map_batches(df, count, "n int", barrier=True).collect()] == [1]


@pytest.mark.parametrize(
    ("as_", "sql", "dtype", "shape"),
    [
        ("array", "array<float>", "float32", (28 * 28,)),
        ("image", "array<array<float>>", "float32", (28, 28)),
        ("int", "array<int>", "int32", (28 * 28,)),
        ("binary", "binary", "object", ()),
    ],
)
def test_images_arrive_whole_and_in_order_in_every_form(spark, as_, sql, dtype, shape):
    images = np.arange(20 * 28 * 28, dtype=np.uint32).astype(np.uint8).reshape(20, 28, 28)
    digits = ImageData(images, np.arange(20), images[:4], np.arange(4), source="a test")
    df = digits.train_df(spark, as_=as_)
    assert dict(df.dtypes) == {"image": sql, "label": "bigint"}
    arrays = fed(df)
    assert arrays["label"].tolist() == list(range(20))
    assert (arrays["image"].dtype, arrays["image"].shape) == (dtype, (20, *shape))
    seen = arrays["image"]
    if as_ == "binary":
        seen = np.stack([np.frombuffer(row, np.uint8) for row in seen])
    elif as_ != "int":
        seen = np.rint(seen * 255)
    np.testing.assert_array_equal(seen.reshape(images.shape), images)
    assert digits.test_df(partitions=3, as_=as_).rdd.getNumPartitions() == 3
