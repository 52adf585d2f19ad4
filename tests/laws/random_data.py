"""Random data for laws: values of any message's type, bytes that nearly are what a reader expects, and their number.

`make test` tries the same examples each time; ``TFOS_LAB_FUZZ=soak``, as in `make soak`, tries other ones, and
many more. No example has a deadline, as machines are loaded.
"""

from __future__ import annotations

import os
import tracemalloc
from contextlib import contextmanager
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from msgspec import inspect

MANY = os.environ.get("TFOS_LAB_FUZZ") == "soak"
_COMMON = {"deadline": None, "print_blob": True, "suppress_health_check": list(HealthCheck), "database": None}


def fuzzed(examples: int) -> settings:
    """Return the settings of a test that tries so many examples."""
    return settings(max_examples=20 * examples if MANY else examples, derandomize=not MANY, **_COMMON)


# ---- values, by their types -----------------------------------------------------------------------------------------

_LEAVES: dict[type, st.SearchStrategy[Any]] = {
    inspect.IntType: st.one_of(st.integers(-3, 40), st.integers(-(1 << 63), (1 << 64) - 1)),
    inspect.FloatType: st.floats(),
    inspect.BoolType: st.booleans(),
    inspect.NoneType: st.none(),
    inspect.StrType: st.text(max_size=8),
    inspect.BytesType: st.binary(max_size=24),
}


def struct_types(union: Any) -> list[type[msgspec.Struct]]:
    return [member.cls for member in inspect.type_info(union).types]


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for values of a type."""
    return _strategy(inspect.type_info(kind))


def _strategy(info: Any) -> st.SearchStrategy[Any]:
    if type(info) in _LEAVES or isinstance(info, inspect.LiteralType):
        return _leaf(info)
    match info:
        case inspect.StructType() | inspect.DataclassType() | inspect.NamedTupleType():
            fields = {field.name: _strategy(field.type) for field in info.fields}
            return st.builds(info.cls, **fields)
        case inspect.UnionType():
            return st.one_of(*map(_strategy, info.types))
        case inspect.EnumType():
            return st.sampled_from(list(info.cls))
        case inspect.ListType():
            return st.lists(_strategy(info.item_type), max_size=3)
        case inspect.VarTupleType():
            return st.lists(_strategy(info.item_type), max_size=3).map(tuple)
        case inspect.TupleType():
            return st.tuples(*map(_strategy, info.item_types))
        case inspect.DictType():
            return st.dictionaries(_strategy(info.key_type), _strategy(info.value_type), max_size=3)
    raise AssertionError(f"no random values for {info}")


def _leaf(info: Any) -> st.SearchStrategy[Any]:
    if isinstance(info, inspect.LiteralType):
        return st.sampled_from(info.values)
    if getattr(info, "ge", None) is None:
        return _LEAVES[type(info)]
    if isinstance(info, inspect.FloatType):
        return st.floats(info.ge, info.lt, exclude_max=True)
    return st.one_of(st.integers(info.ge, 40), st.integers(info.ge, info.lt - 1))


# ---- damage ---------------------------------------------------------------------------------------------------------

# What lengths look like in MessagePack, in varints and in a TFRecord's frame, and what nests.
_TOKENS = [
    b"\xff" * 8,
    b"\x00" * 8,
    b"\xdf\xff\xff\xff\xff",
    b"\xdd\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\x91" * 3000,
]
# Python itself, and what a reader needs for inputs of some kilobytes.
_MOST_BYTES = 16 << 20


@st.composite
def damaged(draw, whole: st.SearchStrategy[bytes]) -> bytes:
    """Return a strategy for bytes that are damaged in up to four places: flipped, cut, doubled, with false lengths."""
    data = bytearray(draw(whole))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["flip", "cut", "insert", "double", "token"])):
            case "flip" if at < len(data):
                data[at] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del data[at : at + draw(st.integers(1, 16))]
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=16))
            case "double":
                data[at:at] = data[at : at + 16]
            case "token":
                data[at:at] = draw(st.sampled_from(_TOKENS))
    return bytes(data)


@contextmanager
def little_memory(most_bytes: int = _MOST_BYTES):
    """Fail if the block allocates more than so much at any moment, by Python's own allocator or NumPy's."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most_bytes, f"{peak >> 20} MiB were allocated"
