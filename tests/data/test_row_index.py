"""Rows copied by their numbers from many batches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfos_lab.data.batches import measure, to_numpy
from tfos_lab.data.row_index import RowIndex
from tfos_lab.data.rows import join_rows
from tfos_lab.data.schema import ColumnSpec, column_specs
from tfos_lab.errors import ConfigError

VECTOR = pa.struct(
    [("type", pa.int8()), ("size", pa.int32()), ("indices", pa.list_(pa.int32())), ("values", pa.list_(pa.float64()))]
)


def batch_of(first: int, rows: int) -> pa.RecordBatch:
    numbers = range(first, first + rows)
    return pa.record_batch(
        {
            "x": pa.array([[n, -n] for n in numbers], pa.list_(pa.int32())),
            "s": pa.array([f"row {n}" for n in numbers], pa.string()),
            "r": pa.array([bytes([n % 256] * 4) for n in numbers], pa.binary()),
            "v": pa.array([{"type": 0, "size": 3, "indices": [n % 3], "values": [float(n)]} for n in numbers], VECTOR),
            "d": pa.array(numbers, pa.int64()).cast(pa.decimal128(19, 0)),
            "b": pa.array([n % 2 == 0 for n in numbers], pa.bool_()),
        }
    )


@settings(deadline=None)
@given(data=st.data(), sizes=st.lists(st.integers(0, 5), min_size=1, max_size=5).filter(any))
def test_rows_come_in_the_order_of_their_numbers(data, sizes):
    starts = np.cumsum([0, *sizes])
    batches = [batch_of(int(start), size) for start, size in zip(starts[:-1], sizes, strict=True)]
    x, s, r, *rest = column_specs(batches[0].schema)
    specs = measure(
        next(batch for batch in batches if batch.num_rows), [x.recast("float32"), s, r.recast("uint8", (2, 2)), *rest]
    )
    index = RowIndex(batches, specs)
    rows = np.array(data.draw(st.lists(st.integers(0, len(index) - 1))), np.int64)
    taken = index.take(rows)
    whole = join_rows([to_numpy(batch, specs) for batch in batches])
    assert len(index) == sum(sizes)
    for name, values in whole.items():
        assert taken[name].dtype == values.dtype
        np.testing.assert_array_equal(taken[name], values[rows])


def test_numbers_out_of_range_are_refused():
    index = RowIndex([batch_of(0, 3)], [ColumnSpec("d", "decimal", "float64")])
    for wrong in (-1, 3):
        with pytest.raises(IndexError, match="from 0 to 2"):
            index.take(np.array([wrong]))


def test_no_batches_have_no_rows():
    index = RowIndex([], [ColumnSpec("x", "number", "float32", (2,))])
    assert len(index) == 0
    assert index.take(np.array([], np.int64))["x"].shape == (0, 2)


def test_shapes_have_to_be_known():
    with pytest.raises(ConfigError, match="the shape of a row has to be known"):
        RowIndex([], [ColumnSpec("x", "number", "float32", (None,))])
