"""Random values of any msgspec struct, by its types."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

_INTS = st.one_of(st.integers(-3, 40), st.integers(-(1 << 63), (1 << 64) - 1))
_LEAVES: dict[type, st.SearchStrategy[Any]] = {
    inspect.IntType: _INTS,
    inspect.FloatType: st.floats(),
    inspect.BoolType: st.booleans(),
    inspect.NoneType: st.none(),
    inspect.StrType: st.text(max_size=8),
    inspect.BytesType: st.binary(max_size=24),
}


def struct_types(union: Any) -> list[type[msgspec.Struct]]:
    """Return the structs of a union."""
    return [member.cls for member in inspect.type_info(union).types]


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for values of a type."""
    return _strategy(inspect.type_info(kind))


def _strategy(info: Any) -> st.SearchStrategy[Any]:
    if type(info) in _LEAVES:
        return _LEAVES[type(info)]
    match info:
        case inspect.StructType() | inspect.NamedTupleType():
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
