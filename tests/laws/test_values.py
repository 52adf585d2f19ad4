"""What a node's function returns: data arrives as it was, objects are unpickled only by `load`, bytes are refused.

The kernel does not trust nodes: whatever bytes come, they are a value or `ResultUnreadable`, and cost little memory.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import gc
import os
import pathlib
import pickle
import struct
import threading
import zoneinfo
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import ml_dtypes
import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.laws.random_data import damaged, fuzzed, little_memory
from tests.support.clusters import running_clusters
from tests.support.quick import QUICK_ENV
from tfos_lab.core.values import RemoteObject, decode_value, describe, encode_value
from tfos_lab.errors import ResultNotSendable, ResultTooLarge, ResultUnreadable

MIB = 1 << 20
Point = namedtuple("Point", ["x", "y"])  # noqa: PYI024 - users write the untyped kind

ZONES = st.sampled_from([None, dt.UTC, dt.timezone(dt.timedelta(hours=-3)), zoneinfo.ZoneInfo("Europe/Berlin")])
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.text(),
    st.binary(),
    st.dates(),
    st.datetimes(timezones=ZONES),
    st.times(),
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.fractions(),
    st.uuids(),
    st.builds(range, st.integers(), st.integers(), st.integers(1, 9)),
    st.sampled_from([bytearray(b"abc"), "\ud800 a lone surrogate", pathlib.Path("/tmp/somewhere")]),
    st.sampled_from(
        [
            dt.datetime(2025, 10, 26, 2, 30, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"), fold=1),
            dt.time(1, 2, tzinfo=zoneinfo.ZoneInfo("Asia/Tokyo")),
            pd.Timestamp("2025-01-01T00:00:00.000000001"),
            pd.Timestamp("2025-01-01", tz="America/New_York"),
            pd.Timestamp("2025-01-01T00:00+02:00"),
            pd.Timedelta("1 day 3 ns"),
        ]
    ),
)
KEYS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(), st.binary(), st.dates(), st.tuples(st.integers(), st.text())
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.dictionaries(KEYS, inner),
        st.sets(KEYS),
        st.frozensets(KEYS),
        st.tuples(inner, inner).map(lambda pair: Point(*pair)),
    ),
    max_leaves=30,
)
DTYPES = st.one_of(
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


def there_and_back(value):
    return decode_value(encode_value(value))


def same(left, right):
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


# ---- plain data -----------------------------------------------------------------------------------------------------


@fuzzed(100)
@given(VALUES)
def test_plain_data_arrives_as_it_was(value):
    assert same(there_and_back(value), value)


@fuzzed(100)
@given(hnp.arrays(DTYPES, hnp.array_shapes(min_dims=0, min_side=0)))
@example(np.array([(1, [2.5, 3])], dtype=[("a", "i4"), ("b", "f8", (2,))]))
@example(np.array([1.5, 2], dtype=ml_dtypes.bfloat16))
@example(np.arange(12).reshape(3, 4).T[::2])
def test_arrays_and_their_scalars_arrive_with_dtype_shape_and_bits_and_can_be_written_to(array):
    arrived = there_and_back(array)
    assert (arrived.dtype, arrived.shape, arrived.tobytes()) == (array.dtype, array.shape, array.tobytes())
    arrived[...] = arrived
    if array.size and array.dtype.names is None and array.dtype != ml_dtypes.bfloat16:
        scalar = array.flat[0]
        assert type(there_and_back(scalar)) is type(scalar)
        assert there_and_back(scalar).tobytes() == scalar.tobytes()


def test_arrays_of_objects_arrive_element_by_element():
    array = np.array([["a", None], [b"b", {"c": 1}]], dtype=object)
    arrived = there_and_back(array)
    assert (arrived.shape, arrived.tolist()) == ((2, 2), array.tolist())


def test_instances_of_a_container_s_subclass_arrive_as_plain_ones_and_named_tuples_with_their_names():
    assert type(there_and_back(OrderedDict(a=1))) is dict
    assert repr(there_and_back(Point(1, 2))) == "Point(x=1, y=2)"


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
def test_data_frames_arrive_as_they_were(frame):
    pd.testing.assert_frame_equal(there_and_back(frame), frame)


def test_series_tables_and_missing_values_arrive():
    series = pd.Series([1.0, 2.0], index=["x", "y"], name=("loss", 1))
    pd.testing.assert_series_equal(there_and_back(series), series)
    table = pa.table({"a": [1, 2], "b": [[1], None]})
    assert there_and_back(table).equals(table)
    assert there_and_back(pd.NaT) is pd.NaT
    assert there_and_back(pd.NA) is pd.NA


def test_tensors_arrive_as_arrays_and_histories_as_their_dict():
    class Tensor:
        def numpy(self):
            return np.ones((2, 2), "f4")

    class History:
        def __init__(self):
            self.history = {"loss": [0.5, np.float32(0.25)]}
            self.model = threading.Lock()

    class Symbolic:
        def numpy(self):
            raise NotImplementedError("numpy() is only available when eager execution is enabled.")

    Tensor.__module__ = Symbolic.__module__ = "tensorflow.python.framework.ops"
    History.__module__ = "keras.src.callbacks.history"
    np.testing.assert_array_equal(there_and_back(Tensor()), np.ones((2, 2), "f4"), strict=True)
    assert there_and_back(History()) == {"loss": [0.5, 0.25]}
    with pytest.raises(ResultNotSendable, match="it has no value outside its graph"):
        encode_value(Symbolic())


# ---- objects --------------------------------------------------------------------------------------------------------


@dataclass
class Settings:
    rate: float


class Trap:
    """Records that it was unpickled."""

    sprung = False

    def __reduce__(self):
        return spring, ()


def spring():
    Trap.sprung = True
    return "sprung"


def test_an_object_is_unpickled_only_by_load():
    Trap.sprung = False
    arrived = there_and_back({"trap": Trap()})["trap"]
    assert isinstance(arrived, RemoteObject)
    assert "Trap object at" in repr(arrived)
    assert not Trap.sprung
    assert arrived.load() == "sprung"


def test_an_object_shows_its_text_and_loads():
    arrived = there_and_back(Settings(0.1))
    assert repr(arrived) == "Settings(rate=0.1)"
    assert arrived.type_name.endswith("Settings")
    assert arrived.load() == Settings(0.1)
    frame = pd.DataFrame({"mixed": [1, "a", {2}]})  # Arrow cannot hold it
    pd.testing.assert_frame_equal(there_and_back(frame).load(), frame)


def test_the_value_of_a_last_line_arrives_as_data_or_as_text_and_is_never_refused():
    assert decode_value(encode_value({"loss": [1.0]}, implicit=True)) == {"loss": [1.0]}
    arrived = decode_value(encode_value(Settings(0.1), implicit=True))
    assert repr(arrived) == "Settings(rate=0.1)"
    with pytest.raises(ValueError, match="Write `return` before it to bring the object itself"):
        arrived.load()
    for value in (threading.Lock(), [threading.Lock()], np.zeros(10_000)):
        arrived = decode_value(encode_value(value, limit_bytes=5000, implicit=True))
        assert isinstance(arrived, RemoteObject) or "lock" in repr(arrived)


def test_what_a_cell_has_defined_goes_by_its_name():
    class Foo:
        def method(self):
            return lambda: None

    assert describe([Foo()]).startswith("[<Foo object at 0x")
    assert describe(Foo().method()).startswith("<function <lambda> at 0x")
    assert there_and_back(Foo()).type_name == "Foo"


def test_a_long_word_is_described_as_soon_as_a_short_one():
    """Each place of it was looked at anew: minutes for a string of bases."""
    assert describe("ACGT" * 250_000).startswith("'ACGT")


def test_describe_survives_any_repr():
    class Broken:
        def __repr__(self):
            raise KeyError("x")

    assert describe(Broken()).endswith("Broken, whose repr failed: KeyError>")
    assert describe("x" * 10_000).endswith("… (10,002 characters)")


# ---- what cannot be returned ----------------------------------------------------------------------------------------


def test_an_object_whose_pickling_fails_is_quoted():
    class Stubborn:
        def __reduce__(self):
            raise ValueError("I stay here.\nmore")

    with pytest.raises(ResultNotSendable, match=r"result \(.*Stubborn\) cannot be returned .*: I stay here\. Return"):
        encode_value(Stubborn())


def test_a_value_that_contains_itself_is_refused():
    value = []
    value.append(value)
    with pytest.raises(ResultNotSendable, match="nested more than 100 deep, or holds itself"):
        encode_value(value)


@pytest.mark.parametrize(
    "value",
    ["x" * 2000, b"x" * 2000, [1 << 8] * 500, ["x" * 100] * 20, pd.DataFrame({"a": range(2000)}), Settings("x" * 2000)],
    ids=["text", "bytes", "numbers", "texts", "frame", "object"],
)
def test_every_kind_of_value_counts_towards_the_limit(value):
    with pytest.raises(ResultTooLarge):
        encode_value(value, limit_bytes=1000)


# ---- bytes that no node sends ---------------------------------------------------------------------------------------


def tag_of(value):
    """Return the number by which a value of this kind is known on the wire."""
    return msgspec.msgpack.decode(encode_value(value))[0]


LIST, TUPLE, NAMED, ARRAY = (tag_of(value) for value in ([1], (1,), Point(1, 2), np.zeros(1)))
ANY_TAG = st.integers(0, 60)
# Any list of a tag and parts, which a node of ours need not have encoded.
FORGED = st.recursive(
    st.one_of(
        st.integers(-(1 << 63), (1 << 64) - 1), st.text(max_size=6), st.binary(max_size=12), st.none(), st.floats()
    ),
    lambda inner: st.tuples(ANY_TAG, st.lists(inner, max_size=4)).map(lambda pair: [pair[0], *pair[1]]),
    max_leaves=12,
)


def packed(*parts):
    return msgspec.msgpack.encode(list(parts))


HUGE_ARRAY = packed(ARRAY, [LIST, ["<f8"]], [TUPLE, 1 << 40], b"12345678")


@fuzzed(500)
@given(st.one_of(damaged(VALUES.map(encode_value)), FORGED.map(msgspec.msgpack.encode), st.binary()))
@example(HUGE_ARRAY)
@example(packed(ARRAY, "<V0", [TUPLE, 1 << 40], b""))
@example(packed(tag_of(bytearray()), 1 << 40))
@example(packed(tag_of(Fraction(1, 3)), [tag_of(Decimal(1)), "1E+999999999"], 1))
@example(packed(tag_of({1}), [tag_of(range(2)), 0, 1 << 60, 1]))
@example(b"\x92\x00" * 150 + b"\xc0")
@example(b"\x92\x00" * 500_000 + b"\xc0")
def test_bytes_are_a_value_or_refused(data):
    with little_memory(), contextlib.suppress(ResultUnreadable):
        decode_value(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "a node sent a result that cannot be read: DecodeError: "),
        (bytes([0x92, LIST]) * 300 + b"\x01", "nested too deep"),
        (packed(ARRAY, "|O", [TUPLE, 1], pickle.dumps(Trap())), "an array of Python objects"),
        (packed(NAMED, "P", [TUPLE, "a=print('x')"], 1), "valid identifiers"),
    ],
    ids=["none", "nested", "an array of objects", "code in the name of a named tuple"],
)
def test_bytes_are_refused_with_the_reason_and_nothing_in_them_is_run(data, reason):
    Trap.sprung = False
    with pytest.raises(ResultUnreadable, match=reason):
        decode_value(data)
    assert not Trap.sprung


# ---- large values, in files -----------------------------------------------------------------------------------------


@pytest.fixture
def run(monkeypatch, tmp_path):
    """A function that runs another one on one quick node, to its end; returns the cluster."""
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path))
    with running_clusters({"local": "processes", "env": QUICK_ENV, "cluster_size": 1}) as start:

        def run(map_fun):
            cluster = start(map_fun)
            cluster.wait(timeout=60)
            return cluster

        yield run


def large_values():
    numbers = np.arange(MIB)
    return {
        "numbers": numbers,
        "transposed": numbers.reshape(1024, 1024).T,
        "strided": numbers[::2],
        "times": numbers.astype("datetime64[s]"),
        "structure": np.zeros(MIB, [("a", "i2"), ("b", "S3")]),
        "words": np.full((1, MIB), "ä"),
        "bytes": b"x" * MIB,
        "bytearray": bytearray(b"y" * MIB),
        "text": "ü" * MIB,
        "frame": pd.DataFrame({"a": numbers[:100_000], "b": "text"}),
        "series": pd.Series(numbers[:100_000], name="s"),
        "table": pa.table({"x": numbers[:100_000]}),
        "small": [1, np.arange(3)],
    }


def test_large_parts_of_every_kind_arrive_in_a_file_that_goes_and_arrays_are_mapped(run):
    cluster = run(large_values)
    (file,) = (cluster.run_dir / "results").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    arrived, sent = cluster.results["chief:0"], large_values()
    assert not file.exists()
    gc.collect()
    assert list(arrived) == list(sent)
    for name, value in sent.items():
        assert type(arrived[name]) is type(value), name
        if isinstance(value, np.ndarray):
            assert (arrived[name].dtype, arrived[name].shape) == (value.dtype, value.shape), name
            np.testing.assert_array_equal(arrived[name], value)
            arrived[name][0] = arrived[name][-1]  # it can be written to
            assert not arrived[name].flags.owndata, name
    assert [arrived[name] for name in ("bytes", "bytearray", "text")] == [b"x" * MIB, b"y" * MIB, "ü" * MIB]
    pd.testing.assert_frame_equal(arrived["frame"], sent["frame"])
    pd.testing.assert_series_equal(arrived["series"], sent["series"])
    assert arrived["table"].equals(sent["table"])


def test_an_object_of_a_file_is_unpickled_only_by_load(run):
    Trap.sprung = False
    found = run(lambda: [Trap(), b"z" * MIB]).results["chief:0"][0]
    assert isinstance(found, RemoteObject)
    assert not Trap.sprung
    assert found.load() == "sprung"


@pytest.mark.parametrize("damage", ["short", "long", "length", "head", "part"])
def test_a_file_that_is_not_what_a_node_writes_is_refused(run, damage):
    cluster = run(lambda: np.arange(MIB))
    (file,) = (cluster.run_dir / "results").iterdir()
    data = file.read_bytes()
    file.write_bytes(
        {
            "short": data[:-1],
            "long": data + b"x",
            "length": data[:-8] + b"\xff" * 8,
            "head": data[:-20] + os.urandom(12) + data[-8:],
            "part": data[: 4 * MIB] + data[8 * MIB :],
        }[damage]
    )
    with pytest.raises(ResultUnreadable):
        _ = cluster.results["chief:0"]
