"""Plain data is decoded as it was encoded, types included."""

from __future__ import annotations

import datetime as dt
import decimal
import fractions
import pathlib
import struct
import uuid
import zoneinfo
from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tfos_lab.values import decode_value, encode_value

Point = namedtuple("Point", ["x", "y"])  # noqa: PYI024 - users write the untyped kind

zones = st.sampled_from([None, dt.UTC, dt.timezone(dt.timedelta(hours=-3)), zoneinfo.ZoneInfo("Europe/Berlin")])
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.text(),
    st.binary(),
    st.dates(),
    st.datetimes(timezones=zones),
    st.times(),
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.fractions(),
    st.uuids(),
)
hashables = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(), st.binary(), st.dates(), st.tuples(st.integers(), st.text())
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.dictionaries(hashables, inner),
        st.sets(hashables),
        st.frozensets(hashables),
        st.tuples(inner, inner).map(lambda pair: Point(*pair)),
    ),
    max_leaves=30,
)
dtypes = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(),
    hnp.unsigned_integer_dtypes(),
    hnp.floating_dtypes(),
    hnp.complex_number_dtypes(),
    hnp.unicode_string_dtypes(),
    hnp.byte_string_dtypes(),
    hnp.datetime64_dtypes(),
    hnp.timedelta64_dtypes(),
)


def there_and_back(value: Any) -> Any:
    return decode_value(encode_value(value))


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal in type and content, bit for bit where equality would be too kind or too strict."""
    if type(left).__name__ != type(right).__name__:
        return False
    if isinstance(left, float):
        return struct.pack("d", left) == struct.pack("d", right)
    if isinstance(left, complex):
        return same(left.real, right.real) and same(left.imag, right.imag)
    if isinstance(left, dict):
        return same(list(left.items()), list(right.items()))
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dt.datetime):
        return (left, left.fold, str(left.tzinfo)) == (right, right.fold, str(right.tzinfo))
    return bool(left == right)


@given(values)
def test_plain_data_arrives_as_it_was(value: Any) -> None:
    assert same(there_and_back(value), value)


@given(hnp.arrays(dtypes, hnp.array_shapes(min_dims=0, min_side=0)))
def test_arrays_arrive_with_dtype_shape_and_bits(array: Any) -> None:
    arrived = there_and_back(array)
    assert (arrived.dtype, arrived.shape, arrived.tobytes()) == (array.dtype, array.shape, array.tobytes())


@given(hnp.arrays(dtypes, (1,)))
def test_array_scalars_arrive_with_their_type(array: Any) -> None:
    arrived = there_and_back(array[0])
    assert type(arrived) is type(array[0])
    assert arrived.tobytes() == array[0].tobytes()


@pytest.mark.parametrize(
    "value",
    [
        2**64,
        -(2**63) - 1,
        "\ud800 a lone surrogate",
        bytearray(b"abc"),
        range(3, 1000, 7),
        pathlib.Path("/tmp/somewhere"),
        uuid.UUID(int=2**127 + 1),
        fractions.Fraction(1, 3),
        decimal.Decimal("NaN").copy_abs().__class__("1.50"),
        dt.datetime(2025, 10, 26, 2, 30, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"), fold=1),
        dt.time(1, 2, tzinfo=zoneinfo.ZoneInfo("Asia/Tokyo")),
        pd.Timestamp("2025-01-01T00:00:00.000000001"),
        pd.Timestamp("2025-01-01", tz="America/New_York"),
        pd.Timestamp("2025-01-01T00:00+02:00"),
        pd.Timedelta("1 day 3 ns"),
    ],
    ids=repr,
)
def test_single_values_arrive_as_they_were(value: Any) -> None:
    arrived = there_and_back(value)
    assert type(arrived) is type(value)
    assert arrived == value


def test_named_tuples_arrive_with_their_names() -> None:
    arrived = there_and_back(Point(1, 2))
    assert arrived == (1, 2)
    assert arrived.y == 2
    assert repr(arrived) == "Point(x=1, y=2)"


def test_subclasses_of_containers_arrive_as_plain_ones() -> None:
    assert type(there_and_back(OrderedDict(a=1))) is dict


def test_numpy_s_float_does_not_become_python_s() -> None:
    assert type(there_and_back(np.float64(1.5))) is np.float64


def test_structured_and_low_precision_arrays_arrive() -> None:
    import ml_dtypes

    structured = np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8", (2,))])
    assert there_and_back(structured).dtype == structured.dtype
    low = np.array([1.5, 2], dtype=ml_dtypes.bfloat16)
    assert there_and_back(low).dtype == low.dtype
    assert there_and_back(low).tolist() == [1.5, 2.0]


def test_arrays_of_objects_arrive_element_by_element() -> None:
    array = np.array([["a", None], [b"b", {"c": 1}]], dtype=object)
    arrived = there_and_back(array)
    assert arrived.shape == (2, 2)
    assert arrived.tolist() == array.tolist()


def test_arrived_arrays_can_be_written_to() -> None:
    arrived = there_and_back(np.zeros(2))
    arrived[0] = 1
    assert arrived[0] == 1


def test_strided_arrays_arrive_in_order() -> None:
    array = np.arange(12).reshape(3, 4).T[::2]
    assert np.array_equal(there_and_back(array), array)


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"a": [1, 2], "b": ["x", None], "c": pd.to_datetime(["2025-01-01", "2025-01-02"])}),
        pd.DataFrame({"a": [1.0, 2.0]}, index=pd.Index(["x", "y"], name="key")),
        pd.DataFrame({0: [1], 1: [2]}),
        pd.DataFrame({"c": pd.Categorical(["a", "b", "a"])}),
        pd.DataFrame(),
    ],
    ids=["kinds", "index", "number-columns", "categories", "empty"],
)
def test_data_frames_arrive_as_they_were(frame: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(there_and_back(frame), frame)


def test_series_arrive_with_name_and_index() -> None:
    series = pd.Series([1.0, 2.0], index=["x", "y"], name=("loss", 1))
    pd.testing.assert_series_equal(there_and_back(series), series)


def test_pandas_missing_values_arrive() -> None:
    assert there_and_back([pd.NaT, pd.NA]) == [pd.NaT, pd.NA] or there_and_back(pd.NA) is pd.NA
    assert there_and_back(pd.NaT) is pd.NaT


def test_arrow_tables_arrive() -> None:
    table = pa.table({"a": [1, 2], "b": [[1], None]})
    assert there_and_back(table).equals(table)
