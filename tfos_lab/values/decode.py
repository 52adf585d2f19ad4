"""Turns a node's bytes back into the value; runs on the driver, and trusts nothing that it reads."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import fractions
import pathlib
import uuid
import zoneinfo
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from tfos_lab.values import tables
from tfos_lab.values.remote import RemoteObject, ResultUnreadable
from tfos_lab.values.tags import MAX_DEPTH, ML_DTYPES, Tag

_decode = msgspec.msgpack.Decoder().decode


def decode_value(data: bytes) -> Any:
    """Return the value that `encode_value` encoded; objects that are not plain data arrive as `RemoteObject`.

    Raises
    ------
    ResultUnreadable
        If the bytes are anything else. Nothing in them is ever run.
    """
    try:
        return _lift(_decode(data), 0)
    except ResultUnreadable:
        raise
    except Exception as error:  # whatever a hostile node makes up
        raise ResultUnreadable(reason=f"{type(error).__name__}: {error}") from error


def _lift(lowered: Any, depth: int) -> Any:
    if isinstance(lowered, dict | msgspec.msgpack.Ext):
        raise ResultUnreadable(reason=f"it holds a bare {type(lowered).__name__}")
    if not isinstance(lowered, list):
        return lowered
    if depth > 2 * MAX_DEPTH:
        raise ResultUnreadable(reason="it is nested too deep")
    tag = Tag(lowered[0])
    container = _CONTAINERS.get(tag)
    if container is not None:
        return container(_lift(item, depth + 1) for item in lowered[1:])
    return _LEAVES[tag](depth, *lowered[1:])


def _dict(items: Any) -> dict[Any, Any]:
    flat = list(items)
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _named_tuple(depth: int, name: str, fields: list[str], *items: Any) -> Any:
    return _named_tuple_type(name, tuple(fields))(*(_lift(item, depth + 1) for item in items))


@lru_cache(maxsize=256)
def _named_tuple_type(name: str, fields: tuple[str, ...]) -> Any:
    # collections.namedtuple takes nothing but identifiers, so a made-up name cannot smuggle code in.
    return collections.namedtuple(name, fields)


def _big_int(depth: int, data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


def _surrogates(depth: int, data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _datetime(depth: int, text: str, fold: int, zone: str) -> dt.datetime:
    value = dt.datetime.fromisoformat(text).replace(fold=fold)
    return value.replace(tzinfo=zoneinfo.ZoneInfo(zone)) if zone else value


def _time(depth: int, text: str, fold: int, zone: str) -> dt.time:
    value = dt.time.fromisoformat(text).replace(fold=fold)
    return value.replace(tzinfo=zoneinfo.ZoneInfo(zone)) if zone else value


def _path(depth: int, text: Any) -> pathlib.Path:
    return pathlib.Path(_lift(text, depth + 1))


def _dtype(lowered: Any, depth: int) -> Any:
    """Return a dtype from its description; never one that holds Python objects."""
    import numpy as np
    from numpy.lib.format import descr_to_dtype

    description = _lift(lowered, depth + 1)
    if isinstance(description, list) and len(description) == 1 and description[0] in ML_DTYPES:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, description[0]))
    dtype = descr_to_dtype(description)
    if dtype.hasobject:
        raise ResultUnreadable(reason="it holds an array of Python objects")
    return dtype


def _array(depth: int, dtype: Any, shape: list[int], data: bytes) -> Any:
    import numpy as np

    # A copy: the user may want to write into it, and need not keep the whole message alive.
    return np.ndarray(tuple(shape), _dtype(dtype, depth), buffer=data).copy()


def _scalar(depth: int, dtype: Any, data: bytes) -> Any:
    import numpy as np

    return np.ndarray((), _dtype(dtype, depth), buffer=data)[()]


def _object_array(depth: int, shape: list[int], items: list[Any]) -> Any:
    import numpy as np

    array = np.empty(len(items), object)
    for index, item in enumerate(items):
        array[index] = _lift(item, depth + 1)
    return array.reshape(tuple(shape))


def _series(depth: int, name: Any, data: bytes) -> Any:
    return tables.raise_series(_lift(name, depth + 1), data)


def _opaque(depth: int, type_name: str, text: str, data: bytes) -> RemoteObject:
    if not (isinstance(type_name, str) and isinstance(text, str) and isinstance(data, bytes)):
        raise ResultUnreadable(reason="a sealed object is malformed")
    return RemoteObject(type_name, text, data)


_CONTAINERS: dict[Tag, Callable[[Any], Any]] = {
    Tag.LIST: list,
    Tag.TUPLE: tuple,
    Tag.SET: set,
    Tag.FROZENSET: frozenset,
    Tag.DICT: _dict,
}

_LEAVES: dict[Tag, Callable[..., Any]] = {
    Tag.NAMED_TUPLE: _named_tuple,
    Tag.BIG_INT: _big_int,
    Tag.COMPLEX: lambda depth, real, imag: complex(real, imag),
    Tag.SURROGATES: _surrogates,
    Tag.BYTEARRAY: lambda depth, data: bytearray(memoryview(data)),
    Tag.DATETIME: _datetime,
    Tag.DATE: lambda depth, text: dt.date.fromisoformat(text),
    Tag.TIME: _time,
    Tag.TIMEDELTA: lambda depth, days, seconds, micros: dt.timedelta(days, seconds, micros),
    Tag.DECIMAL: lambda depth, text: decimal.Decimal(text),
    Tag.FRACTION: lambda depth, *parts: fractions.Fraction(*(_lift(part, depth + 1) for part in parts)),
    Tag.UUID: lambda depth, text: uuid.UUID(text),
    Tag.RANGE: lambda depth, *parts: range(*(_lift(part, depth + 1) for part in parts)),
    Tag.PATH: _path,
    Tag.ARRAY: _array,
    Tag.SCALAR: _scalar,
    Tag.OBJECT_ARRAY: _object_array,
    Tag.FRAME: lambda depth, data: tables.raise_frame(data),
    Tag.SERIES: _series,
    Tag.TIMESTAMP: lambda depth, value, unit, zone: tables.raise_timestamp(value, unit, zone),
    Tag.PANDAS_TIMEDELTA: lambda depth, value, unit: tables.raise_timedelta(value, unit),
    Tag.NAT: lambda depth: tables.raise_missing(Tag.NAT),
    Tag.NA: lambda depth: tables.raise_missing(Tag.NA),
    Tag.TABLE: lambda depth, data: tables.from_ipc(data),
    Tag.OPAQUE: _opaque,
}
