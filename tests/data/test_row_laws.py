"""Rows as Arrow batches and as arrays: conversion there and back, what is refused, cutting, and taking by number."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tfos_lab.data.batches import measure, resolve, to_arrow, to_numpy
from tfos_lab.data.rebatch import in_multiples, rebatch
from tfos_lab.data.row_index import RowIndex
from tfos_lab.data.schema import ColumnSpec, column_specs
from tfos_lab.errors import ConfigError, FeedError

VECTOR = pa.struct(
    [("type", pa.int8()), ("size", pa.int32()), ("indices", pa.list_(pa.int32())), ("values", pa.list_(pa.float64()))]
)
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - as Spark's timestamp_ntz
MICROSECOND = dt.timedelta(microseconds=1)
LISTS = pa.list_(pa.int32())
TREES = pa.list_(pa.list_(pa.int32()))


def batch_of(values, kind) -> pa.RecordBatch:
    return pa.record_batch({"x": pa.array(values, kind)})


def convert(values, kind, **recast):
    batch = batch_of(values, kind)
    (spec,) = column_specs(batch.schema)
    return to_numpy(batch, [spec.recast(**recast)])["x"]


def dense(*values) -> dict:
    return {"type": 1, "size": None, "indices": None, "values": list(values)}


def sparse(size, entries) -> dict:
    return {"type": 0, "size": size, "indices": list(entries), "values": list(entries.values())}


def entries_of(vector) -> list:
    if vector["type"] == 1:
        return vector["values"]
    found = dict(zip(vector["indices"], vector["values"], strict=True))
    return [found.get(at, 0.0) for at in range(vector["size"])]


def microseconds_of_day(at) -> int:
    return (dt.datetime.combine(EPOCH, at) - EPOCH) // MICROSECOND


FLOATS = st.floats(allow_nan=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
# What a value of each type is as an entry of a tensor.
LEAVES = {
    "bool": (pa.bool_(), st.booleans(), bool),
    "int8": (pa.int8(), st.integers(-(2**7), 2**7 - 1), int),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1), int),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1), int),
    "float32": (pa.float32(), st.floats(width=32, allow_nan=False), float),
    "float64": (pa.float64(), FLOATS, float),
    "decimal": (pa.decimal128(15, 3), st.integers(-(10**15) + 1, 10**15 - 1).map(lambda n: Decimal(n) / 1000), float),
    "string": (pa.string(), TEXTS, str.encode),
    "large_string": (pa.large_string(), TEXTS, str.encode),
    "binary": (pa.binary(), st.binary(), bytes),
    "binary(3)": (pa.binary(3), st.binary(min_size=3, max_size=3), bytes),
    "dictionary": (pa.dictionary(pa.int16(), pa.string()), st.sampled_from(["a", "bc", ""]), str.encode),
    "date": (pa.date32(), st.dates(), lambda day: (day - EPOCH.date()).days),
    "date64": (pa.date64(), st.dates(), lambda day: (day - EPOCH.date()).days),
    "timestamp": (pa.timestamp("us"), st.datetimes(), lambda at: (at - EPOCH) // MICROSECOND),
    "timestamp s": (
        pa.timestamp("s"),
        st.datetimes().map(lambda at: at.replace(microsecond=0)),
        lambda at: (at - EPOCH) // MICROSECOND,
    ),
    "duration": (
        pa.duration("us"),
        st.timedeltas(dt.timedelta(days=-(10**7)), dt.timedelta(days=10**7)),
        lambda span: span // MICROSECOND,
    ),
    "time": (pa.time64("ns"), st.times(), microseconds_of_day),
    "time32": (
        pa.time32("ms"),
        st.times().map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)),
        microseconds_of_day,
    ),
    "vector": (
        VECTOR,
        st.one_of(
            st.lists(FLOATS, min_size=3, max_size=3).map(lambda values: dense(*values)),
            st.dictionaries(st.integers(0, 2), FLOATS).map(lambda entries: sparse(3, dict(sorted(entries.items())))),
        ),
        entries_of,
    ),
}


def nested(leaf, kind, shape, wrap):
    for size in reversed(shape):
        leaf = st.lists(leaf, min_size=size, max_size=size)
        kind = wrap(kind, size)
    return leaf, kind


def mapped(function, value, depth):
    return function(value) if depth == 0 else [mapped(function, inner, depth - 1) for inner in value]


@pytest.mark.parametrize("name", LEAVES)
@given(data=st.data())
def test_every_type_is_converted_by_its_rule_nested_and_sliced(name, data):
    kind, leaf, to_entry = LEAVES[name]
    shape = data.draw(st.lists(st.integers(0, 3), max_size=2).map(tuple))
    wraps = [lambda kind, _: pa.list_(kind), lambda kind, _: pa.large_list(kind), pa.list_]
    values, kind = nested(leaf, kind, shape, data.draw(st.sampled_from(wraps)))
    rows = data.draw(st.lists(values, min_size=1, max_size=6))
    start, stop = sorted([data.draw(st.integers(0, len(rows))), data.draw(st.integers(0, len(rows)))])
    expected = [mapped(to_entry, row, len(shape)) for row in rows[start:stop]]

    batch = batch_of(rows, kind).slice(start, stop - start)
    (spec,) = column_specs(batch.schema)
    array = to_numpy(batch, [spec])["x"]

    if len(array):
        assert measure(batch, [spec])[0].shape == array.shape[1:]
    assert array.dtype == spec.dtype
    assert array.ndim == 1 + len(spec.shape)
    assert len(array) == stop - start
    if len(array) and 0 not in shape:
        inner = (3,) if name == "vector" else ()
        assert array.shape == (stop - start, *shape, *inner)
        assert array.tolist() == expected


@given(
    array=hnp.arrays(
        st.sampled_from([np.bool_, np.int8, np.uint16, np.int32, np.int64, np.float32, np.float64]),
        hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=4),
    )
)
def test_numbers_go_to_arrow_and_back_unchanged(array):
    back = to_numpy(to_arrow({"x": array}))["x"]
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


@given(texts=st.lists(st.lists(TEXTS | st.binary(), min_size=2, max_size=2), min_size=1), flat=st.booleans())
def test_strings_go_to_arrow_and_back_as_bytes(texts, flat):
    of_one_kind = [[value if isinstance(value, bytes) else value.encode() for value in row] for row in texts]
    rows = [row[0] for row in of_one_kind] if flat else of_one_kind
    assert to_numpy(to_arrow({"x": np.array(rows, object)}))["x"].tolist() == rows


def test_results_take_the_types_of_a_schema():
    schema = pa.schema({"label": pa.int64(), "scores": pa.list_(pa.float64())})
    batch = to_arrow({"scores": np.ones((2, 3), np.float32), "label": np.array([1, 2], np.int32)}, schema)
    assert batch.schema == schema
    assert batch.to_pylist() == [{"label": 1, "scores": [1.0] * 3}, {"label": 2, "scores": [1.0] * 3}]


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ({"y": np.zeros(2)}, "the results lack the columns x; they have y"),
        ({"x": np.array(["a"], object)}, "results in 'x' do not become int64"),
        ({"x": np.float64(3)}, "one value per row"),
        ({"x": np.zeros(2), "y": np.zeros(3)}, "unequal numbers of rows: 'x' 2, 'y' 3"),
    ],
)
def test_results_that_do_not_fit_are_refused(results, message):
    with pytest.raises(FeedError, match=message):
        to_arrow(results, pa.schema({"x": pa.int64()}))
    with pytest.raises(FeedError, match=r"results in 'x', of dtype complex64, become no column of Spark"):
        to_arrow({"x": np.zeros(2, np.complex64)})


def test_numbers_are_views_of_the_batch_that_cannot_be_written():
    batch = batch_of([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], pa.list_(pa.float64())).slice(1)
    array = to_numpy(batch)["x"]
    assert array.ctypes.data == batch.column("x").values.buffers()[1].address + 2 * 8
    assert not array.flags.writeable


def test_an_empty_batch_has_the_announced_shape_and_resolves_nothing():
    batch = batch_of([], pa.list_(pa.list_(pa.float32())))
    assert to_numpy(batch)["x"].shape == (0, 0, 0)
    assert to_numpy(batch, [ColumnSpec("x", "number", "float32", (28, 28))])["x"].shape == (0, 28, 28)
    assert to_numpy(batch, [ColumnSpec("x", "number", "float32", (784,))])["x"].shape == (0, 784)
    assert to_numpy(batch_of([], pa.binary()), [ColumnSpec("x", "binary", "uint8", (4,))])["x"].shape == (0, 4)
    specs = (ColumnSpec("x", "number", "int32", (None,)),)
    assert resolve(specs, {"x": np.zeros((0, 0))}) == resolve(specs, {}) == specs
    assert resolve(specs, {"x": np.zeros((1, 5))})[0].shape == (5,)


def test_only_the_columns_of_the_specs_are_converted_and_they_have_to_be_there():
    kinds = pa.schema({"a": "int8", "b": "int8", "c": "f4"})
    batch = pa.record_batch({"a": [1], "b": [None], "c": [2.0]}, schema=kinds)
    assert list(to_numpy(batch, column_specs(kinds, ["c", "a"]))) == ["c", "a"]
    with pytest.raises(ConfigError, match="did you mean 'c'"):
        to_numpy(batch, [ColumnSpec("C", "number", "int8")])
    with pytest.raises(FeedError, match="column 'x' arrives as string, but number values were announced"):
        to_numpy(batch_of(["a"], pa.string()), [ColumnSpec("x", "number", "int8")])


@pytest.mark.parametrize(
    ("kind", "rows", "row", "count", "advice"),
    [
        (pa.int32(), [1, None, None], 1, 2, "df.fillna"),
        (pa.string(), ["a", None], 1, 1, "df.dropna"),
        (LISTS, [[1], None], 1, 1, "df.dropna"),
        (LISTS, [[1, 2], [3, None]], 1, 1, "F.coalesce"),
        (TREES, [[[1, 2]], [[3, 4]], [[None, None]]], 2, 2, "F.coalesce"),
        (pa.list_(pa.int32(), 2), [[1, 2], None], 1, 1, "df.dropna"),
        (pa.dictionary(pa.int8(), pa.string()), ["a", None], 1, 1, "df.dropna"),
        (VECTOR, [dense(1.0), None], 1, 1, "df.dropna"),
    ],
)
def test_nulls_are_refused_with_their_number_and_the_first_row(kind, rows, row, count, advice):
    with pytest.raises(FeedError, match=f"column 'x' has {count} nulls.*the first in row {row}") as caught:
        convert(rows, kind)
    assert advice in str(caught.value)
    batch = batch_of(rows, kind)
    with pytest.raises(FeedError, match=f"column 'x' has {count} nulls"):
        measure(batch, column_specs(batch.schema))
    assert len(to_numpy(batch.slice(0, row))["x"]) == row, "nulls outside a slice do no harm"


@pytest.mark.parametrize(
    ("kind", "rows", "message"),
    [
        (LISTS, [[1, 2], [3, 4], [5]], "row 2 of a batch has 1 values where the first has 2"),
        (LISTS, [[], [3]], "row 1 of a batch has 1 values where the first has 0"),
        (TREES, [[[1], [2]], [[3], [4, 5]]], "row 1 of a batch has 2 values where the first has 1"),
        (TREES, [[[1], [2]], [[3]]], "row 1 of a batch has 1 values where the first has 2"),
        (VECTOR, [dense(1.0, 2.0), dense(1.0)], "row 1 of a batch has 1 entries where the first has 2"),
        (VECTOR, [sparse(3, {0: 1.0}), dense(1.0)], "row 1 of a batch has 1 entries where the first has 3"),
    ],
)
def test_ragged_rows_are_refused_with_the_first_such_row(kind, rows, message):
    with pytest.raises(FeedError, match=f"column 'x' is ragged: {message}.*F.slice cuts"):
        convert(rows, kind)


def test_rows_of_another_shape_than_announced_are_refused():
    with pytest.raises(FeedError, match=r"column 'x' has rows of shape \(3,\) where \(2,\) was announced"):
        to_numpy(batch_of([[1, 2, 3]], LISTS), [ColumnSpec("x", "number", "int32", (2,))])
    with pytest.raises(FeedError, match=r"shape \(1, 2\) where \(2, 1\)"):  # a transposed image
        to_numpy(batch_of([[[1, 2]]], TREES), [ColumnSpec("x", "number", "int32", (2, 1))])
    with pytest.raises(FeedError, match=r"where .* was announced"):
        measure(batch_of([[1, 2, 3]], LISTS), [ColumnSpec("x", "number", "int32", (2,))])


def test_values_are_laid_out_and_cast_as_asked():
    array = convert([[0, 1, 2, 3], [4, 5, 6, 7]], LISTS, dtype="float32", shape=(2, 2, 1))
    assert (array.dtype, array.shape) == ("float32", (2, 2, 2, 1))
    assert array[1, :, :, 0].tolist() == [[4.0, 5.0], [6.0, 7.0]]
    assert convert([1, 0], pa.int8(), shape=(1,)).tolist() == [[1], [0]]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary(4), pa.dictionary(pa.int8(), pa.binary())])
def test_binary_is_read_as_raw_numbers_in_place(kind):
    batch = batch_of([b"\x00\x01\x02\x03", b"\x04\x05\x06\x07", b"\x08\x09\x0a\x0b"], kind).slice(1)
    (spec,) = column_specs(batch.schema)
    assert to_numpy(batch, [spec.recast("uint8", (2, 2))])["x"].tolist() == [[[4, 5], [6, 7]], [[8, 9], [10, 11]]]
    assert to_numpy(batch, [spec.recast("int16")])["x"].tolist() == [[0x0504, 0x0706], [0x0908, 0x0B0A]]


@pytest.mark.parametrize(
    ("rows", "dtype", "message"),
    [
        ([b"ab", b"abc"], "uint8", "ragged: row 1 of a batch has 3 bytes where the first has 2"),
        ([b"abc"], "float32", "3 bytes per row, which are no whole number of float32 values"),
    ],
)
def test_binary_that_is_no_raw_numbers_is_refused(rows, dtype, message):
    with pytest.raises(FeedError, match=message):
        convert(rows, pa.binary(), dtype=dtype)


def test_times_are_rounded_down_or_refused_and_large_decimals_rounded_to_the_nearest():
    assert convert([-1, -1000, 1999], pa.timestamp("ns")).tolist() == [-1, -1, 1]
    with pytest.raises(FeedError, match="column 'x' does not become int64"):
        convert([2**60], pa.timestamp("s"))
    values = [Decimal("0.1"), Decimal("123456789012345678.9012345678"), Decimal("-1E+20")]
    np.testing.assert_allclose(convert(values, pa.decimal128(38, 10)), [float(v) for v in values], rtol=1e-15)


# ---- cutting ---------------------------------------------------------------------------------------------------------


@given(sizes=st.lists(st.integers(0, 7)), rows=st.integers(1, 9))
def test_rebatching_keeps_every_row_in_order(sizes, rows):
    ends = np.cumsum([0, *sizes])
    stream = [{"x": np.arange(a, b), "y": np.arange(a, b) * 2} for a, b in pairwise(ends)]
    batches = list(rebatch(stream, rows))
    assert [v for batch in batches for v in batch["x"].tolist()] == list(range(sum(sizes)))
    assert all((batch["y"] == 2 * batch["x"]).all() for batch in batches)
    assert [len(batch["x"]) for batch in batches[:-1]] == [rows] * (len(batches) - 1)
    assert all(1 <= len(batch["x"]) <= rows for batch in batches)


@given(
    sizes=st.lists(st.one_of(st.none(), st.integers(0, 30)), max_size=12),
    rows=st.integers(1, 8),
    most=st.integers(1, 40),
)
def test_pieces_are_whole_multiples_and_hold_each_row_once(sizes, rows, most):
    total = sum(size or 0 for size in sizes)
    numbers = iter(range(total))
    stream = [None if size is None else {"x": np.array([next(numbers) for _ in range(size)], int)} for size in sizes]
    pieces = list(in_multiples(stream, rows, most))
    assert pieces.count(None) == sizes.count(None)
    lengths = [len(piece["x"]) for piece in pieces if piece is not None]
    assert [x for piece in pieces if piece is not None for x in piece["x"]] == list(range(total))
    assert all(length % rows == 0 and length <= max(rows, most) for length in lengths[:-1])
    assert not lengths or lengths[-1] % rows == total % rows


def test_rebatching_within_one_batch_copies_nothing():
    whole = {"x": np.arange(6)}
    assert all(np.shares_memory(batch["x"], whole["x"]) for batch in rebatch([whole], 3))
    with pytest.raises(ValueError, match="at least one row"):
        next(rebatch([whole], 0))


# ---- rows by their numbers -------------------------------------------------------------------------------------------


def numbered(first: int, rows: int) -> pa.RecordBatch:
    numbers = range(first, first + rows)
    return pa.record_batch(
        {
            "x": pa.array([[n, -n] for n in numbers], pa.list_(pa.int32())),
            "s": pa.array([f"row {n}" for n in numbers], pa.string()),
            "r": pa.array([bytes([n % 256] * 4) for n in numbers], pa.binary()),
            "v": pa.array([sparse(3, {n % 3: float(n)}) for n in numbers], VECTOR),
            "d": pa.array(numbers, pa.int64()).cast(pa.decimal128(19, 0)),
            "b": pa.array([n % 2 == 0 for n in numbers], pa.bool_()),
        }
    )


@given(data=st.data(), sizes=st.lists(st.integers(0, 5), min_size=1, max_size=5).filter(any))
def test_rows_come_in_the_order_of_their_numbers(data, sizes):
    batches = [numbered(int(a), int(b - a)) for a, b in pairwise(np.cumsum([0, *sizes]))]
    x, s, r, *rest = column_specs(batches[0].schema)
    asked = [x.recast("float32"), s, r.recast("uint8", (2, 2)), *rest]
    specs = measure(next(batch for batch in batches if batch.num_rows), asked)
    index = RowIndex(batches, specs)
    rows = np.array(data.draw(st.lists(st.integers(0, len(index) - 1))), np.int64)
    taken = index.take(rows)
    arrays = [to_numpy(batch, specs) for batch in batches]
    assert len(index) == sum(sizes)
    for name in taken:
        whole = np.concatenate([array[name] for array in arrays])
        assert taken[name].dtype == whole.dtype
        np.testing.assert_array_equal(taken[name], whole[rows])


def test_row_numbers_out_of_range_and_unknown_shapes_are_refused():
    index = RowIndex([numbered(0, 3)], [ColumnSpec("d", "decimal", "float64")])
    for wrong in (-1, 3):
        with pytest.raises(IndexError, match="from 0 to 2"):
            index.take(np.array([wrong]))
    with pytest.raises(ConfigError, match="the shape of a row has to be known"):
        RowIndex([], [ColumnSpec("x", "number", "float32", (None,))])
    empty = RowIndex([], [ColumnSpec("x", "number", "float32", (2,))])
    assert (len(empty), empty.take(np.array([], np.int64))["x"].shape) == (0, (0, 2))
