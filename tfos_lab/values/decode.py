"""Decodes what a node sent; runs on the driver, and trusts nothing that it reads."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import fractions
import math
import pathlib
import uuid
import zoneinfo
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from tfos_lab.errors import ResultUnreadable
from tfos_lab.values import tables
from tfos_lab.values.remote import RemoteObject
from tfos_lab.values.tags import MAX_DEPTH, ML_DTYPES, Tag

# Elements of an array that take no bytes, such as those of a structure without fields.
_MOST_EMPTY = 1 << 16

_from_msgpack = msgspec.msgpack.Decoder().decode


def decode_value(data: bytes | memoryview, *, stored: memoryview | None = None) -> Any:
    """Return the value that `encode_value` encoded; objects that are not plain data arrive as `RemoteObject`.

    Parameters
    ----------
    data : bytes
        The encoded value.
    stored : memoryview, optional
        The contents of its large parts; arrays use this memory, if it can be written to, and no copy.

    Raises
    ------
    ResultUnreadable
        If the bytes are anything else. Nothing in them is ever executed.
    """
    try:
        return _build(_from_msgpack(data), 0, stored)
    except ResultUnreadable:
        raise
    except Exception as error:  # a hostile node may send anything
        raise ResultUnreadable(reason=f"{type(error).__name__}: {error}") from error


def _build(encoded: Any, depth: int, stored: memoryview | None) -> Any:
    """Build a value from its encoded form: first the parts of a list, then the whole."""
    if isinstance(encoded, dict | msgspec.msgpack.Ext):
        raise ResultUnreadable(reason=f"it holds a bare {type(encoded).__name__}")
    if not isinstance(encoded, list):
        return encoded
    if depth > 2 * MAX_DEPTH:
        raise ResultUnreadable(reason="it is nested too deep")
    tag = Tag(encoded[0])
    if tag is Tag.STORED:
        return _contents(stored, *encoded[1:])
    return _BUILDERS[tag](*(_build(part, depth + 1, stored) for part in encoded[1:]))


def _contents(stored: memoryview | None, start: int, length: int) -> memoryview:
    if stored is None or not 0 <= start <= start + length <= stored.nbytes:
        raise ResultUnreadable(reason="a part of it is missing")
    return stored[start : start + length]


def _dict(*flat: Any) -> dict[Any, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _named_tuple(name: str, fields: tuple[str, ...], *items: Any) -> Any:
    return _named_tuple_type(name, fields)(*items)


@lru_cache(maxsize=256)
def _named_tuple_type(name: str, fields: tuple[str, ...]) -> Any:
    # collections.namedtuple accepts only identifiers, so a name cannot contain code.
    return collections.namedtuple(name, fields)  # noqa: PYI024 - the fields are known only now


def _fraction(above: int, below: int) -> fractions.Fraction:
    # Of a Decimal, `int` may take all memory: of 1E+999999999, say.
    if not (isinstance(above, int) and isinstance(below, int)):
        raise ResultUnreadable(reason="a fraction is malformed")
    return fractions.Fraction(above, below)


def _datetime(text: str, fold: int, zone: str) -> dt.datetime:
    value = dt.datetime.fromisoformat(text).replace(fold=fold)
    return value.replace(tzinfo=zoneinfo.ZoneInfo(zone)) if zone else value


def _time(text: str, fold: int, zone: str) -> dt.time:
    value = dt.time.fromisoformat(text).replace(fold=fold)
    return value.replace(tzinfo=zoneinfo.ZoneInfo(zone)) if zone else value


def _dtype(description: Any) -> Any:
    """Return the dtype with this description; refuse dtypes of Python objects."""
    import numpy as np
    from numpy.lib.format import descr_to_dtype

    if isinstance(description, list) and len(description) == 1 and description[0] in ML_DTYPES:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, description[0]))
    dtype = descr_to_dtype(description)
    if dtype.hasobject:
        raise ResultUnreadable(reason="it holds an array of Python objects")
    return dtype


def _array(dtype: Any, shape: tuple[int, ...], data: bytes | memoryview) -> Any:
    import numpy as np

    kind = _dtype(dtype)
    # An element may take no bytes, and any number of them would fit.
    if math.prod(shape) * max(1, kind.itemsize) > max(len(data), _MOST_EMPTY):
        raise ResultUnreadable(reason=f"it holds an array of shape {shape} in {len(data)} bytes")
    array: Any = np.ndarray(shape, kind, buffer=data)
    # A copy of what came in a message: the user may write to it, and it does not keep the whole message in memory.
    return array.copy() if isinstance(data, bytes) else array


def _scalar(dtype: Any, data: bytes) -> Any:
    import numpy as np

    return np.ndarray((), _dtype(dtype), buffer=data)[()]


def _object_array(shape: tuple[int, ...], items: list[Any]) -> Any:
    import numpy as np

    array = np.empty(len(items), object)
    for index, item in enumerate(items):
        array[index] = item
    return array.reshape(shape)


def _opaque(type_name: str, text: str, data: bytes) -> RemoteObject:
    if not (isinstance(type_name, str) and isinstance(text, str) and isinstance(data, bytes)):
        raise ResultUnreadable(reason="a pickled object is malformed")
    return RemoteObject(type_name, text, data)


_BUILDERS: dict[Tag, Callable[..., Any]] = {
    Tag.LIST: lambda *items: list(items),
    Tag.TUPLE: lambda *items: items,
    Tag.SET: lambda *items: set(items),
    Tag.FROZENSET: lambda *items: frozenset(items),
    Tag.DICT: _dict,
    Tag.NAMED_TUPLE: _named_tuple,
    Tag.BIG_INT: lambda data: int.from_bytes(data, "little", signed=True),
    Tag.COMPLEX: complex,
    Tag.SURROGATES: lambda data: data.decode("utf-8", "surrogatepass"),
    Tag.BYTES: lambda data: bytes(memoryview(data)),
    Tag.BYTEARRAY: lambda data: bytearray(memoryview(data)),
    Tag.DATETIME: _datetime,
    Tag.DATE: dt.date.fromisoformat,
    Tag.TIME: _time,
    Tag.TIMEDELTA: dt.timedelta,
    Tag.DECIMAL: decimal.Decimal,
    Tag.FRACTION: _fraction,
    Tag.UUID: uuid.UUID,
    Tag.RANGE: range,
    Tag.PATH: pathlib.Path,
    Tag.ARRAY: _array,
    Tag.SCALAR: _scalar,
    Tag.OBJECT_ARRAY: _object_array,
    Tag.FRAME: tables.decode_frame,
    Tag.SERIES: tables.decode_series,
    Tag.TIMESTAMP: tables.decode_timestamp,
    Tag.PANDAS_TIMEDELTA: tables.decode_timedelta,
    Tag.NAT: lambda: tables.decode_missing(Tag.NAT),
    Tag.NA: lambda: tables.decode_missing(Tag.NA),
    Tag.TABLE: tables.from_ipc,
    Tag.OPAQUE: _opaque,
}
