"""What a node returned, damaged on the way: it is a value or is refused, and costs no more memory than it has bytes."""

from __future__ import annotations

import contextlib

import msgspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz.mutations import damaged, little_memory
from tests.fuzz.profile import fuzzed
from tfos_lab.errors import ResultUnreadable
from tfos_lab.values import decode_value, encode_value
from tfos_lab.values.tags import Tag

_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.binary(max_size=8),
    st.complex_numbers(),
    st.datetimes(),
    st.times(),
    st.dates(),
    st.timedeltas(),
    st.decimals(),
    st.fractions(),
    st.uuids(),
    st.just(range(3)),
    st.sampled_from([np.float32(1), np.arange(6).reshape(2, 3), np.array(["a", None], object), np.datetime64("2026")]),
    st.sampled_from([pd.Series([1, 2]), pd.DataFrame({"a": [1.5]}), pd.Timestamp("2026-01-01"), pd.NaT]),
)
VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
        st.frozensets(st.integers(), max_size=3),
    ),
    max_leaves=8,
)
# Any list of a tag and parts, which a node of ours need not have encoded.
FORGED = st.recursive(
    st.one_of(
        st.integers(-(1 << 63), (1 << 64) - 1), st.text(max_size=6), st.binary(max_size=12), st.none(), st.floats()
    ),
    lambda inner: st.tuples(st.sampled_from(list(map(int, Tag))), st.lists(inner, max_size=4)).map(
        lambda p: [p[0], *p[1]]
    ),
    max_leaves=12,
)


def packed(*parts):
    return msgspec.msgpack.encode(list(parts))


HUGE_ARRAY = packed(int(Tag.ARRAY), [0, ["<f8"]], [1, 1 << 40], b"12345678")
BROADCAST = packed(int(Tag.ARRAY), "<V0", [1, 1 << 40], b"")


@fuzzed(250)
@given(damaged(VALUES.map(encode_value)))
@example(HUGE_ARRAY)
def test_a_damaged_result_is_a_value_or_refused(data):
    assert_value_or_refused(data)


@fuzzed(400)
@given(FORGED.map(msgspec.msgpack.encode))
@example(HUGE_ARRAY)
@example(BROADCAST)
@example(packed(int(Tag.BYTEARRAY), 1 << 40))
@example(packed(int(Tag.FRACTION), [int(Tag.DECIMAL), "1E+999999999"], 1))
@example(packed(int(Tag.SET), [int(Tag.RANGE), 0, 1 << 60, 1]))
def test_a_forged_result_is_a_value_or_refused(data):
    assert_value_or_refused(data)


@pytest.mark.parametrize("depth", [150, 5_000, 500_000])
def test_values_within_values_are_refused(depth):
    assert_value_or_refused(b"\x92\x00" * depth + b"\xc0")


def assert_value_or_refused(data):
    with little_memory(), contextlib.suppress(ResultUnreadable):
        decode_value(data)
