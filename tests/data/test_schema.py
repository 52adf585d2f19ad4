"""The rules by which columns become tensors: each type, each unsupported type, names, and recasts."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from tfos_lab.data.schema import ColumnSpec, column_specs, select_columns
from tfos_lab.errors import ConfigError

VECTOR = pa.struct(
    [("type", pa.int8()), ("size", pa.int32()), ("indices", pa.list_(pa.int32())), ("values", pa.list_(pa.float64()))]
)


def array(element):
    return {"type": "array", "elementType": element}


# Arrow's type, Spark's, and the dtype and shape of the tensor.
RULES = [
    (pa.bool_(), "boolean", "bool", ()),
    (pa.int8(), "byte", "int8", ()),
    (pa.int16(), "short", "int16", ()),
    (pa.int32(), "integer", "int32", ()),
    (pa.int64(), "long", "int64", ()),
    (pa.float32(), "float", "float32", ()),
    (pa.float64(), "double", "float64", ()),
    (pa.decimal128(10, 2), "decimal(10,2)", "float64", ()),
    (pa.string(), "string", "string", ()),
    (pa.string(), "string collate UTF8_LCASE", "string", ()),
    (pa.string(), "varchar(20)", "string", ()),
    (pa.binary(), "binary", "string", ()),
    (pa.date32(), "date", "int32", ()),
    (pa.timestamp("us", "Europe/Berlin"), "timestamp", "int64", ()),
    (pa.timestamp("us"), "timestamp_ntz", "int64", ()),
    (pa.time64("ns"), "time(6)", "int64", ()),
    (pa.duration("us"), "interval day to second", "int64", ()),
    (pa.list_(pa.int32()), array("integer"), "int32", (None,)),
    (pa.list_(pa.list_(pa.float32())), array(array("float")), "float32", (None, None)),
]
ONLY_IN_ARROW = [
    (pa.large_string(), "string", ()),
    (pa.binary(4), "string", ()),
    (pa.uint64(), "uint64", ()),
    (pa.float16(), "float16", ()),
    (pa.date64(), "int32", ()),
    (pa.time32("ms"), "int64", ()),
    (pa.large_list(pa.int8()), "int8", (None,)),
    (pa.list_(pa.list_(pa.float32(), 3)), "float32", (None, 3)),
    (pa.dictionary(pa.int32(), pa.string()), "string", ()),
    (pa.list_(VECTOR), "float64", (None, None)),
]
UNSUPPORTED = [
    ({"type": "map", "keyType": "string", "valueType": "variant"}, "map<string,variant>", r"df\['x'\]\['key'\]"),
    ({"type": "struct", "fields": [{"name": "a", "type": "long"}]}, "struct<a:bigint>", r"columns=\['x.a', ...\]"),
    (array({"type": "struct", "fields": [{"name": "a", "type": "long"}]}), "array<struct<a:bigint>>", "F.transform"),
    ("variant", "variant", "variant_get"),
    (array("void"), "array<void>", "cast"),
    ("interval year to month", "interval year to month", "number of months"),
    ("geometry(4326)", "geometry(4326)", "leave the column out"),
]


def spark_schema(**types) -> str:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types.items()]
    return json.dumps({"type": "struct", "fields": fields})


@pytest.mark.parametrize(("arrow", "sql", "dtype", "shape"), RULES)
def test_each_type_of_spark_has_its_tensor_by_arrow_and_by_json(arrow, sql, dtype, shape):
    (by_arrow,) = column_specs(pa.schema({"x": arrow}))
    (by_json,) = column_specs(spark_schema(x=sql))
    assert (by_arrow.name, by_arrow.tf_dtype, by_arrow.shape) == ("x", dtype, shape)
    assert by_arrow == by_json


@pytest.mark.parametrize(("arrow", "dtype", "shape"), ONLY_IN_ARROW)
def test_types_that_only_arrow_has_are_taken_too(arrow, dtype, shape):
    (spec,) = column_specs(pa.schema({"x": arrow}))
    assert (spec.tf_dtype, spec.shape) == (dtype, shape)


def test_a_vector_of_spark_ml_is_found_in_its_json():
    kinds = {"type": "byte", "size": "integer", "indices": array("integer"), "values": array("double")}
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    udt = {
        "type": "udt",
        "class": "org.apache.spark.ml.linalg.VectorUDT",
        "sqlType": {"type": "struct", "fields": fields},
    }
    assert column_specs(spark_schema(v=udt)) == (ColumnSpec("v", "vector", "float64", (None,)),)


@pytest.mark.parametrize(("sql", "label", "advice"), UNSUPPORTED)
def test_a_refusal_names_the_column_its_type_and_what_to_do(sql, label, advice):
    with pytest.raises(ConfigError, match=advice) as caught:
        column_specs(spark_schema(x=sql))
    assert str(caught.value).startswith(f"column 'x' of type {label} cannot become a tensor: ")


@pytest.mark.parametrize(
    "kind",
    [pa.map_(pa.string(), pa.int32()), pa.struct({"a": pa.int8()}), pa.null(), pa.month_day_nano_interval()],
)
def test_arrow_types_are_refused_alike(kind):
    with pytest.raises(ConfigError, match="column 'x' of type"):
        column_specs(pa.schema({"x": kind}))


def test_all_refusals_are_reported_together_for_the_columns_asked_for():
    schema = spark_schema(a="void", b="long", c="variant", d="float")
    with pytest.raises(ConfigError) as caught:
        column_specs(schema)
    assert [problem.split("'")[1] for problem in caught.value.problems] == ["a", "c"]
    assert [spec.name for spec in column_specs(schema, ["d", "b"])] == ["d", "b"]
    assert [spec.name for spec in column_specs(schema, "d")] == ["d"]


def test_missing_columns_are_named_with_the_nearest_ones():
    with pytest.raises(ConfigError) as caught:
        select_columns(["image", "Label", "weight"], ["lable", "zzz", "image"])
    assert caught.value.problems == [
        "column 'lable' is not in the data; did you mean 'Label'? It has: image, Label, weight",
        "column 'zzz' is not in the data. It has: image, Label, weight",
    ]
    with pytest.raises(ConfigError, match="c19 and 480 more"):
        select_columns([f"c{i}" for i in range(500)], ["zzz"])


@pytest.mark.parametrize(
    ("names", "columns", "message"),
    [
        (["a", "b", "a"], None, "column 'a' is there 2 times"),
        (["a", "b", "a"], ["a"], "column 'a' is there 2 times"),
        (["a", "b"], ["a", "b", "a"], "column 'a' is asked for twice"),
        (["a"], [], "name at least one"),
        ([], None, "name at least one"),
    ],
)
def test_ambiguous_or_empty_choices_are_refused(names, columns, message):
    with pytest.raises(ConfigError, match=message):
        select_columns(names, columns)
    assert select_columns(["a", "b", "a"], ["b"]) == ["b"], "who is not asked for does no harm"


def test_a_column_can_be_asked_for_in_another_dtype_and_shape():
    (spec,) = column_specs(pa.schema({"x": pa.list_(pa.int32())}))
    assert spec.recast("float32", (28, 28, 1)) == ColumnSpec("x", "number", "float32", (28, 28, 1))
    assert spec.recast() == spec
    (raw,) = column_specs(pa.schema({"x": pa.binary()}))
    assert raw.recast("uint8") == ColumnSpec("x", "binary", "uint8", (None,))
    assert raw.recast("uint8", (28, 28)).shape == (28, 28)
    assert raw.recast("string") == raw


@pytest.mark.parametrize(
    ("kind", "dtype", "shape", "message"),
    [
        (pa.string(), "float32", None, "cast it in Spark first"),
        (pa.int32(), "float31", None, "not one of bool, int8"),
        (pa.list_(pa.binary()), "uint8", None, "arrays of binary"),
        (pa.binary(), None, (28, 28), "name the dtype as well"),
        (pa.int32(), None, (2,), "do not fill the shape"),
        (pa.int32(), None, (-1,), "negative"),
    ],
)
def test_what_a_column_cannot_become_is_refused(kind, dtype, shape, message):
    (spec,) = column_specs(pa.schema({"x": kind}))
    with pytest.raises(ConfigError, match=message):
        spec.recast(dtype, shape)
