"""Typed columns as Python rows: the same as Spark itself makes of them."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from decimal import Decimal

import pyarrow as pa
import pytest

from tfos_lab.node.feed import typed_rows

CASES = [
    ("byte", pa.int8(), [1, -2]),
    ("long", pa.int64(), [1, 2**60]),
    ("float", pa.float32(), [0.5, -1.0]),
    ("double", pa.float64(), [0.1, float("inf")]),
    ("boolean", pa.bool_(), [True, False]),
    ("string", pa.string(), ["a", "ü"]),
    ("decimal(9,2)", pa.decimal128(9, 2), [Decimal("1.50"), Decimal("-2.25")]),
    ("date", pa.date32(), [dt.date(2024, 2, 29), dt.date(1969, 1, 1)]),
]


def schema(**types):
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types.items()]
    return json.dumps({"type": "struct", "fields": fields})


def rows(kind, arrow, values):
    batch = pa.RecordBatch.from_arrays([pa.array(values, arrow)], names=["x"])
    return typed_rows.decoder(schema(x=kind))(batch)


@pytest.mark.parametrize(("kind", "arrow", "values"), CASES, ids=[kind for kind, _, _ in CASES])
def test_values_have_the_types_of_python(kind, arrow, values):
    found = [row[0] for row in rows(kind, arrow, values)]
    assert found == values
    assert list(map(type, found)) == list(map(type, values))


@pytest.mark.parametrize(("kind", "arrow", "values"), CASES, ids=[kind for kind, _, _ in CASES])
def test_so_have_values_in_lists_of_any_and_of_one_length(kind, arrow, values):
    array = {"type": "array", "elementType": kind, "containsNull": True}
    ragged = [values, values[:1], []]
    assert [row[0] for row in rows(array, pa.list_(arrow), ragged)] == ragged
    assert [row[0] for row in rows(array, pa.list_(arrow, 2), [values, values[::-1]])] == [values, values[::-1]]


def test_nulls_are_none():
    assert [row[0] for row in rows("long", pa.int64(), [1, None])] == [1, None]


def test_slices_have_their_own_rows_only():
    batch = pa.RecordBatch.from_pydict({"x": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int64(), 2))}).slice(1, 1)
    array = {"type": "array", "elementType": "long", "containsNull": True}
    assert [row[0] for row in typed_rows.decoder(schema(x=array))(batch)] == [[3, 4]]


def test_rows_have_the_names_of_their_columns():
    batch = pa.RecordBatch.from_pydict({"b": [1], "a": ["x"]})
    (row,) = typed_rows.decoder(schema(b="long", a="string"))(batch)
    assert (row, row.asDict()) == ((1, "x"), {"b": 1, "a": "x"})


def test_rows_are_tuples_where_there_is_no_pyspark():
    code = (
        "import sys, pyarrow as pa; sys.modules['pyspark'] = None\n"
        "from tfos_lab.node.feed import typed_rows\n"
        f"rows = typed_rows.decoder({schema(x='long', y='string')!r})\n"
        "print(rows(pa.RecordBatch.from_pydict({'x': [1, 2], 'y': ['a', None]})))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[(1, 'a'), (2, None)]"
