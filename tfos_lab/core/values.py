"""What a node's function returned, as bytes that are safe to decode; nodes encode, the kernel decodes.

The kernel does not trust nodes, and never unpickles what they send. Plain data is sent as MessagePack: numbers, text,
bytes, containers, dates, paths, NumPy arrays, pandas and Arrow tables. Any other object arrives as a `RemoteObject`:
its text, and pickled bytes that only its `load` unpickles, when the user calls it. A TensorFlow tensor or variable
becomes a NumPy array, a Keras ``History`` its ``history`` dict, and an instance of a container's subclass a plain
container (named tuples stay named tuples).

One table, `_KINDS`, has for each type the parts that are sent in its stead, and how it is built from them. On the wire
every list is ``[number of a kind, part, ...]``, and what is no list stands for itself.

A large value is a file: the contents of arrays, tables and byte strings, each at a multiple of 64, then the encoded
value, which refers to them, and in the last 8 bytes the length of that. Nodes write it without another copy of their
arrays. The kernel maps it privately: arrays can be written to, and memory is taken only for what is looked at.
"""

from __future__ import annotations

import collections
import contextlib
import datetime as dt
import decimal
import enum
import fractions
import math
import mmap
import os
import pathlib
import pickle
import re
import socket
import struct
import uuid
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import msgspec

from tfos_lab.core.unpicklable import unpicklable_kind
from tfos_lab.errors import ResultNotSendable, ResultNotStored, ResultTooLarge, ResultUnreadable
from tfos_lab.texts import first_line

# What a value may take that is held in memory.
LIMIT_BYTES = 256 << 20
# Values that take less travel within a message.
INLINE_BYTES = 1 << 18
# Smaller parts of a value are not stored outside of it.
_PART_BYTES = 1 << 16
_ALIGNMENT = 64
_LENGTH = struct.Struct("!Q")
# Deeper values are refused on both sides, which recurse.
_MAX_DEPTH = 100
# Elements of an array that take no bytes, such as those of a structure without fields.
_MOST_EMPTY = 1 << 16
_TEXT_LIMIT = 2000
_LOCAL = re.compile(r"(?<![\w.])(?:[\w.]+\.<locals>\.)+")
_PLAIN = (float, bool, type(None))
# A Series is sent as a table with this column.
_COLUMN = "value"
_TENSOR_PACKAGES = ("tensorflow", "keras", "tf_keras")
_to_msgpack = msgspec.msgpack.Encoder().encode
_from_msgpack = msgspec.msgpack.Decoder().decode


@dataclass(frozen=True, repr=False)
class RemoteObject:
    """An object that a node returned, not unpickled yet: its type, its text, and its pickled bytes.

    Unpickling runs code that the bytes choose, and whoever controls an executor can choose the bytes. So nothing is
    unpickled until you call `load`.

    Attributes
    ----------
    type_name : str
        Name of the object's type.
    text : str
        Its ``repr`` on the node, shortened.
    data : bytes
        The pickled object; empty if only its text was sent.
    """

    type_name: str
    text: str
    data: bytes = b""

    def load(self) -> Any:
        """Unpickle the object in this process. Do so only if you trust the node that sent it."""
        if not self.data:
            raise ValueError(
                f"only the text of this {self.type_name} was sent, because it was the value of the cell's last line. "
                "Write `return` before it to bring the object itself."
            )
        return pickle.loads(self.data)  # noqa: S301 - the user asks for it

    def __repr__(self) -> str:
        return self.text


def describe(value: Any) -> str:
    """Return the ``repr`` of a value, shortened; also of a value whose ``repr`` fails.

    What a cell has defined goes by its name: a cell is a function for Python, but not for its reader.
    """
    try:
        text = _LOCAL.sub("", repr(value))
    except Exception as error:  # noqa: BLE001 - a repr may fail in any way
        text = f"<{_type_name(value)}, whose repr failed: {type(error).__name__}>"
    if len(text) > _TEXT_LIMIT:
        text = f"{text[:_TEXT_LIMIT]}… ({len(text):,} characters)"
    return text.encode("utf-8", "backslashreplace").decode()


def _type_name(value: Any) -> str:
    kind = type(value)
    is_known = kind.__module__ in ("builtins", "__main__")
    return _LOCAL.sub("", kind.__qualname__ if is_known else f"{kind.__module__}.{kind.__qualname__}")


# ---- encode ---------------------------------------------------------------------------------------------------------


def encode_value(
    value: Any,
    *,
    limit_bytes: int = LIMIT_BYTES,
    implicit: bool = False,
    stored: list[memoryview] | None = None,
) -> bytes:
    """Return ``value`` as bytes for `decode_value`.

    It is ``implicit`` if it is the value of a cell's last line, which may not be meant as a result: objects that are
    not plain data are then sent as text only, and nothing is refused. ``stored`` takes the contents of large arrays,
    tables and byte strings, which are then not among the bytes. A ResultNotSendable or ResultTooLarge names the part of
    the result that is to blame, its type, and what to do instead.
    """
    try:
        return _to_msgpack(_Encoder(limit_bytes, pickle_objects=not implicit, stored=stored).encode(value))
    except (ResultNotSendable, ResultTooLarge):
        if not implicit:
            raise
        if stored is not None:
            stored.clear()
        return _to_msgpack([_OBJECT, _type_name(value), describe(value), b""])


def encode_result(value: Any, path: Path, *, limit_bytes: int, implicit: bool) -> tuple[bytes, int]:
    """Encode a value: as bytes if it is small, else into a file, which is replaced; raises as `encode_value` does.

    Returns the encoded value and 0, or ``b""`` and the size of the file. Raises ResultNotStored if the file cannot be
    written.
    """
    stored: list[memoryview] = []
    head = encode_value(value, limit_bytes=limit_bytes, implicit=implicit, stored=stored)
    if sum(part.nbytes for part in stored) + len(head) > INLINE_BYTES:
        return b"", _write(path, [*stored, head, _LENGTH.pack(len(head))])
    return encode_value(value, limit_bytes=limit_bytes, implicit=implicit) if stored else head, 0


def _write(path: Path, parts: list[Any]) -> int:
    """Write a file that only the user can read, and return its size."""
    size_bytes = 0
    try:
        path.unlink(missing_ok=True)
        with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            for part in parts:
                size_bytes += file.write(part)
    except OSError as error:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        reason = f"{error.strerror or error}, after {size_bytes / 1e6:,.1f} MB of it"
        raise ResultNotStored(place=f"{path.parent} on {socket.gethostname()}", reason=reason) from error
    return size_bytes


class _Buffer(NamedTuple):
    """The contents of an array or a table, as a part of it."""

    data: memoryview


class _Encoder:
    """Turns a value into what MessagePack knows, and counts its size, before it is copied."""

    def __init__(self, limit_bytes: int, *, pickle_objects: bool, stored: list[memoryview] | None) -> None:
        self._limit_bytes = limit_bytes
        self._pickle_objects = pickle_objects
        self._stored = stored
        self._stored_bytes = 0
        self._size_bytes = 0
        # What leads to the part at hand: how a whole names its parts, the parts, and the number of one.
        self._way: list[tuple[Callable[[str, list[Any], int], str], list[Any], int]] = []
        self._largest = (0, self._way, "")

    def encode(self, value: Any) -> Any:
        if type(value) in _PLAIN:
            self._count(9, value)
            return value
        if type(value) is _Buffer:
            return self._contents(value.data)
        if len(self._way) > _MAX_DEPTH:
            reason = f"it is nested more than {_MAX_DEPTH} deep, or holds itself"
            raise ResultNotSendable(path=_path(self._way)[:80] + "…", type_name=_type_name(value), reason=reason)
        if type(value).__module__.partition(".")[0] in _TENSOR_PACKAGES:
            value = self._evaluated(value)
        value_type: type = type(value)
        kind = _KINDS[number := _number_of(value_type)]
        self._count(kind.size(value), value)
        parts = kind.split(value)
        if parts is None:
            number, parts = _OBJECT, [_type_name(value), describe(value), _Buffer(memoryview(self._pickled(value)))]
        if not isinstance(parts, list):
            return parts
        encoded: list[Any] = [number]
        for index, part in enumerate(parts):
            self._way.append((kind.name, parts, index))
            encoded.append(self.encode(part))
            self._way.pop()
        return encoded

    def _count(self, size_bytes: int, value: Any) -> None:
        self._size_bytes += size_bytes
        if size_bytes > self._largest[0]:
            self._largest = (size_bytes, self._way[:], _type_name(value))
        if self._size_bytes > self._limit_bytes:
            size, way, kind = self._largest
            raise ResultTooLarge(path=_path(way), type_name=kind, size_bytes=size, limit_bytes=self._limit_bytes)

    def _contents(self, data: memoryview) -> Any:
        """Encode the contents of a part, which is a buffer to whoever decodes it."""
        if self._stored is None or data.nbytes < _PART_BYTES:
            return data.tobytes()
        padding = memoryview(bytes(-self._stored_bytes % _ALIGNMENT))
        start = self._stored_bytes + padding.nbytes
        self._stored += [padding, data]
        self._stored_bytes = start + data.nbytes
        return [_STORED, start, data.nbytes]

    def _not_sendable(self, value: Any, reason: str) -> ResultNotSendable:
        return ResultNotSendable(path=_path(self._way), type_name=_type_name(value), reason=reason)

    def _evaluated(self, value: Any) -> Any:
        """Return the array of a tensor and the dict of a History; other values of TensorFlow and Keras as they are."""
        if type(value).__name__ == "History" and isinstance(getattr(value, "history", None), dict):
            return value.history
        if not callable(getattr(value, "numpy", None)):
            return value
        try:
            return value.numpy()
        except Exception as error:  # symbolic tensors fail in several ways
            raise self._not_sendable(value, f"it has no value outside its graph ({first_line(error)})") from error

    def _pickled(self, value: Any) -> bytes:
        """Pickle an object that is not plain data, unless only its text is to be sent."""
        if not self._pickle_objects:
            return b""
        kind = unpicklable_kind(value)
        if kind is not None:
            raise self._not_sendable(value, kind.reason)
        try:
            data: bytes = cloudpickle.dumps(value)
        except Exception as error:  # a reduce method may fail in any way
            raise self._not_sendable(value, first_line(error)) from error
        self._count(len(data), value)
        return data


def _path(way: list[tuple[Callable[[str, list[Any], int], str], list[Any], int]]) -> str:
    """Return what leads to a part of the result, as the user would write it."""
    path = "result"
    for name, parts, number in way:
        path = name(path, parts, number)
    return path


@lru_cache(maxsize=1024)
def _number_of(kind: type) -> int:
    """Return the number of a type's kind: its own, or that of the nearest of its bases which has one."""
    if issubclass(kind, enum.Enum):
        return _OBJECT
    fields = getattr(kind, "_fields", None)
    if issubclass(kind, tuple) and isinstance(fields, tuple) and all(isinstance(name, str) for name in fields):
        return _NAMED_TUPLE
    package = kind.__module__.partition(".")[0]
    keys = (*(f"{package}.{base.__name__}" for base in kind.__mro__), *kind.__mro__)
    return next(_BY_TYPE[key] for key in keys if key in _BY_TYPE)


# ---- decode ---------------------------------------------------------------------------------------------------------


def decode_value(data: bytes | memoryview, *, stored: memoryview | None = None) -> Any:
    """Return the value that `encode_value` encoded; objects that are not plain data arrive as `RemoteObject`.

    ``stored`` are the contents of its large parts; arrays use this memory, if it can be written to, and no copy. A
    ResultUnreadable if the bytes are anything else. Nothing in them is ever executed.
    """
    try:
        return _build(_from_msgpack(data), 0, stored)
    except ResultUnreadable:
        raise
    except Exception as error:  # a hostile node may send anything
        raise ResultUnreadable(reason=f"{type(error).__name__}: {error}") from error


def load_stored(path: Path, size_bytes: int) -> Any:
    """Return the value in a file, which is removed: the disk is free again when nothing refers to the value any more.

    Raises ResultUnreadable if there is no such file, or it is not what a node writes.
    """
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except (OSError, ValueError) as error:
        raise ResultUnreadable(reason=f"{path} cannot be read ({error})") from error
    if len(data) != size_bytes or size_bytes < _LENGTH.size:
        raise ResultUnreadable(reason=f"{path} has {len(data):,} bytes, not {size_bytes:,}")
    view = memoryview(data)
    end = size_bytes - _LENGTH.size
    (length,) = _LENGTH.unpack(view[end:])
    if length > end:
        raise ResultUnreadable(reason=f"{path} is damaged")
    value = decode_value(view[end - length : end], stored=view[: end - length])
    path.unlink(missing_ok=True)
    return value


def _build(encoded: Any, depth: int, stored: memoryview | None) -> Any:
    """Build a value from its encoded form: first the parts of a list, then the whole."""
    if isinstance(encoded, dict | msgspec.msgpack.Ext):
        raise ResultUnreadable(reason=f"it holds a bare {type(encoded).__name__}")
    if not isinstance(encoded, list):
        return encoded
    if depth > 2 * _MAX_DEPTH:
        raise ResultUnreadable(reason="it is nested too deep")
    number, *parts = encoded
    if number == _STORED:
        start, length = parts
        if stored is None or not 0 <= start <= start + length <= stored.nbytes:
            raise ResultUnreadable(reason="a part of it is missing")
        return stored[start : start + length]
    return _KINDS[number].build(*(_build(part, depth + 1, stored) for part in parts))


# ---- the parts of values, and values of parts -----------------------------------------------------------------------


def _int_parts(value: int) -> Any:
    value = int(value)
    if -(1 << 63) <= value < 1 << 64:
        return value
    return [value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)]


def _str_parts(value: str) -> Any:
    value = str(value)
    try:
        value.encode()
    except UnicodeEncodeError:
        return [value.encode("utf-8", "surrogatepass")]
    return value


def _time_parts(value: dt.datetime | dt.time) -> list[Any]:
    """Return the ISO text, the fold, and the name of the time zone; a zone without a name keeps only its offset."""
    zone = getattr(value.tzinfo, "key", None)
    if isinstance(zone, str):
        return [value.replace(tzinfo=None).isoformat(), value.fold, zone]
    return [value.isoformat(), value.fold, ""]


def _time_from(kind: Any) -> Callable[[str, int, str], Any]:
    def build(text: str, fold: int, zone: str) -> Any:
        value = kind.fromisoformat(text).replace(fold=fold)
        return value.replace(tzinfo=zoneinfo.ZoneInfo(zone)) if zone else value

    return build


def _fraction(above: int, below: int) -> fractions.Fraction:
    # Of a Decimal, `int` may take all memory: of 1E+999999999, say.
    if not (isinstance(above, int) and isinstance(below, int)):
        raise ResultUnreadable(reason="a fraction is malformed")
    return fractions.Fraction(above, below)


@lru_cache(maxsize=256)
def _named_tuple_type(name: str, fields: tuple[str, ...]) -> Any:
    # collections.namedtuple accepts only identifiers, so a name cannot contain code.
    return collections.namedtuple(name, fields)  # noqa: PYI024 - the fields are known only now


def _dtype_part(dtype: Any) -> Any:
    """Return a dtype's description: by name for those of ml_dtypes, else as in NumPy's own file format."""
    from numpy.lib.format import dtype_to_descr

    return [dtype.name] if dtype.type.__module__ == "ml_dtypes" else dtype_to_descr(dtype)


def _dtype(description: Any) -> Any:
    """Return the dtype with this description; refuse dtypes of Python objects."""
    import numpy as np
    from numpy.lib.format import descr_to_dtype

    if isinstance(description, list) and len(description) == 1 and isinstance(description[0], str):
        import ml_dtypes

        dtype = np.dtype(getattr(ml_dtypes, description[0]))
    else:
        dtype = descr_to_dtype(description)
    if dtype.hasobject:
        raise ResultUnreadable(reason="it holds an array of Python objects")
    return dtype


def _array_parts(value: Any) -> list[Any]:
    """Return dtype, shape and contents in C order, without a copy where it has that order; of objects, their list."""
    import numpy as np

    if value.dtype.hasobject or value.dtype.kind == "T":
        return ["", value.shape, value.ravel().tolist()]
    flat: Any = np.ascontiguousarray(value).reshape(-1).view(np.uint8) if value.nbytes else b""
    return [_dtype_part(value.dtype), value.shape, _Buffer(memoryview(flat))]


def _array(dtype: Any, shape: tuple[int, ...], data: Any) -> Any:
    import numpy as np

    if isinstance(data, list):
        objects = np.empty(len(data), object)
        for index, item in enumerate(data):
            objects[index] = item
        return objects.reshape(shape)
    kind = _dtype(dtype)
    # An element may take no bytes, and any number of them would fit.
    if math.prod(shape) * max(1, kind.itemsize) > max(len(data), _MOST_EMPTY):
        raise ResultUnreadable(reason=f"it holds an array of shape {shape} in {len(data)} bytes")
    array: Any = np.ndarray(shape, kind, buffer=data)
    # A copy of what came in a message: the user may write to it, and it does not keep the whole message in memory.
    return array.copy() if isinstance(data, bytes) else array


def _frame_parts(frame: Any) -> list[Any] | None:
    import pyarrow as pa

    try:
        return _table_parts(pa.Table.from_pandas(frame))
    except (pa.ArrowException, ValueError, TypeError):
        return None  # a column of mixed objects, or two columns of the same name


def _series_parts(series: Any) -> list[Any] | None:
    parts = _frame_parts(series.to_frame(_COLUMN))
    return parts and [series.name, *parts]


def _table_parts(table: Any) -> list[Any]:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return [_Buffer(memoryview(sink.getvalue()))]


def _table(data: bytes | memoryview) -> Any:
    import pyarrow as pa

    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_all()


def _timestamp_parts(value: Any) -> list[Any]:
    """Return NumPy's own of it, and the time zone: its name, its offset if it has no name, or "" for none."""
    zone = value.tzinfo
    named = getattr(zone, "key", None) or getattr(zone, "zone", None)
    return [value.asm8, "" if zone is None else named if isinstance(named, str) else value.strftime("UTC%z")]


def _timestamp(value: Any, zone: str) -> Any:
    stamp = _pandas().Timestamp(value)
    return stamp.tz_localize("UTC").tz_convert(zone) if zone else stamp


def _pandas() -> Any:
    import pandas as pd

    return pd


def _object(type_name: str, text: str, data: Any) -> RemoteObject:
    if not (isinstance(type_name, str) and isinstance(text, str)):
        raise ResultUnreadable(reason="a pickled object is malformed")
    return RemoteObject(type_name, text, bytes(memoryview(data)))


# ---- the table ------------------------------------------------------------------------------------------------------


def _key_or_item(above: str, parts: list[Any], index: int) -> str:
    return f"{above}[{describe(parts[index - 1])[:60]}]" if index % 2 else f"a key of {above}"


class _Kind(NamedTuple):
    """How values of one type travel."""

    # Itself, or its package and name, as the package need not be there.
    type: type | str
    # Its parts in a list; what MessagePack sends as it is; or None, if the value has to go as an object.
    split: Callable[[Any], Any]
    build: Callable[..., Any]
    size: Callable[[Any], int] = lambda _value: 9
    # Path of the part with an index.
    name: Callable[[str, list[Any], int], str] = lambda above, _parts, _index: above


# A kind's number on the wire is its place; both ends run the same version.
_KINDS = (
    _Kind(list, list, lambda *items: list(items), name=lambda above, _, index: f"{above}[{index}]"),
    _Kind(tuple, list, lambda *items: items, name=lambda above, _, index: f"{above}[{index}]"),
    _Kind(set, list, lambda *items: set(items), name=lambda above, _parts, _index: f"an element of {above}"),
    _Kind(frozenset, list, lambda *items: frozenset(items), name=lambda above, _p, _i: f"an element of {above}"),
    _Kind(
        dict,
        lambda value: [part for item in value.items() for part in item],
        lambda *flat: dict(zip(flat[::2], flat[1::2], strict=True)),
        name=_key_or_item,
    ),
    _Kind(
        "a named tuple",
        lambda value: [type(value).__name__, value._fields, tuple(value)],
        lambda name, fields, items: _named_tuple_type(name, fields)(*items),
    ),
    _Kind(float, float, float),
    _Kind(
        int,
        _int_parts,
        lambda data: int.from_bytes(data, "little", signed=True),
        size=lambda value: 9 + int(value).bit_length() // 8,
    ),
    _Kind(str, _str_parts, lambda data: data.decode("utf-8", "surrogatepass"), size=lambda value: len(value) + 5),
    _Kind(
        bytes,
        lambda value: bytes(value) if len(value) < _PART_BYTES else [_Buffer(memoryview(value))],
        lambda data: bytes(memoryview(data)),
        size=lambda value: len(value) + 5,
    ),
    _Kind(bytearray, lambda value: [_Buffer(memoryview(value))], lambda data: bytearray(memoryview(data)), size=len),
    _Kind(complex, lambda value: [value.real, value.imag], complex),
    _Kind(fractions.Fraction, lambda value: [value.numerator, value.denominator], _fraction),
    _Kind(range, lambda value: [value.start, value.stop, value.step], range),
    _Kind(decimal.Decimal, lambda value: [str(value)], decimal.Decimal),
    _Kind(uuid.UUID, lambda value: [str(value)], uuid.UUID),
    _Kind(pathlib.PurePath, lambda value: [str(value)], pathlib.Path),
    _Kind(dt.datetime, _time_parts, _time_from(dt.datetime)),
    _Kind(dt.date, lambda value: [value.isoformat()], dt.date.fromisoformat),
    _Kind(dt.time, _time_parts, _time_from(dt.time)),
    _Kind(dt.timedelta, lambda value: [value.days, value.seconds, value.microseconds], dt.timedelta),
    _Kind("numpy.ndarray", _array_parts, _array, size=lambda value: value.nbytes),
    _Kind(
        "numpy.generic",
        lambda value: None if value.dtype.hasobject else [_dtype_part(value.dtype), value.tobytes()],
        lambda dtype, data: _array(dtype, (), data)[()],
        size=lambda value: value.nbytes,
    ),
    _Kind("numpy.MaskedArray", lambda _value: None, _object),
    _Kind("numpy.matrix", lambda _value: None, _object),
    _Kind(
        "pandas.DataFrame",
        _frame_parts,
        lambda data: _table(data).to_pandas(),
        size=lambda value: int(value.memory_usage().sum()),
    ),
    _Kind(
        "pandas.Series",
        _series_parts,
        lambda name, data: _table(data).to_pandas()[_COLUMN].rename(name),
        size=lambda value: int(value.memory_usage()),
    ),
    _Kind("pandas.Timestamp", _timestamp_parts, _timestamp),
    _Kind("pandas.NaTType", lambda _value: [], lambda: _pandas().NaT),
    _Kind("pandas.NAType", lambda _value: [], lambda: _pandas().NA),
    _Kind("pandas.Timedelta", lambda value: [value.asm8], lambda value: _pandas().Timedelta(value)),
    _Kind("pyarrow.Table", _table_parts, _table, size=lambda value: value.nbytes),
    _Kind(object, lambda _value: None, _object),
)
# By type, or by package and name.
_BY_TYPE: dict[type | str, int] = {kind.type: number for number, kind in enumerate(_KINDS)}
_NAMED_TUPLE, _OBJECT = _BY_TYPE["a named tuple"], _BY_TYPE[object]
# Stands for a part that is in the value's file, with where it begins and its length.
_STORED = len(_KINDS)
