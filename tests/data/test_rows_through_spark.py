"""Any rows of any types that have a rule: a node sees what went into Spark."""

from __future__ import annotations

import datetime as dt
import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfos_lab.data.batches import to_numpy
from tfos_lab.data.prepare import map_batches, prepare
from tfos_lab.data.rows import join_rows
from tfos_lab.errors import FeedError

pytestmark = pytest.mark.spark

EPOCH_DAY = dt.date(1970, 1, 1)
# Arrow type, values, and what they become: dtype and a function of the values.
RULES = {
    "boolean": (pa.bool_(), st.booleans(), "bool", list),
    "tinyint": (pa.int8(), st.integers(-(2**7), 2**7 - 1), "int8", list),
    "smallint": (pa.int16(), st.integers(-(2**15), 2**15 - 1), "int16", list),
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1), "int32", list),
    "bigint": (pa.int64(), st.integers(-(2**63), 2**63 - 1), "int64", list),
    "float": (pa.float32(), st.floats(width=32, allow_nan=False), "float32", list),
    "double": (pa.float64(), st.floats(allow_nan=False), "float64", list),
    "string": (pa.string(), st.text(st.characters(exclude_categories=["Cs"]), max_size=8), "object",
               lambda values: [value.encode() for value in values]),
    "binary": (pa.binary(), st.binary(max_size=8), "object", list),
    "date": (pa.date32(), st.dates(dt.date(1900, 1, 1), dt.date(2200, 1, 1)), "int32",
             lambda values: [(value - EPOCH_DAY).days for value in values]),
}  # fmt: skip


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
        seen[:] = become(flat)
        if length is None:
            columns[name], expected[name] = pa.array(flat, arrow), seen
        else:
            lists = [flat[i * length : (i + 1) * length] for i in range(rows)]
            columns[name], expected[name] = pa.array(lists, pa.list_(arrow)), seen.reshape(rows, length)
    return pa.table(columns), expected


def seen_by_a_node(df, columns=None):
    """Return the columns as `ctx.dataset` would give them, in order."""

    def task(batches):
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"rows": [pickle.dumps(to_numpy(batch))]})

    rows = map_batches(prepare(df.coalesce(1), columns), task, "rows binary").collect()
    return join_rows([pickle.loads(bytes(row["rows"])) for row in rows])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tables())
def test_what_goes_into_spark_is_what_a_node_sees(spark, case):
    table, expected = case
    seen = seen_by_a_node(spark.createDataFrame(table))
    assert list(seen) == list(expected)
    for name, values in expected.items():
        assert seen[name].dtype == values.dtype, name
        assert seen[name].shape == values.shape, name
        assert seen[name].tolist() == values.tolist(), name


@pytest.mark.parametrize(
    ("values", "words"),
    [([1, None, 3], "'x'.*null"), ([[1, 2], [3]], "'x'"), ([[1], None], "'x'.*null")],
)
def test_rows_that_make_no_tensor_are_refused_with_their_column(values, words):
    from tfos_lab.data.batches import measure
    from tfos_lab.data.schema import column_specs

    batch = pa.RecordBatch.from_pydict({"x": values})
    with pytest.raises(FeedError, match=words):
        measure(batch, column_specs(batch.schema))
