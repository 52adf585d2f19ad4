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
import io
import math
import mmap
import os
import pathlib
import pickle
import socket
import struct
import uuid
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

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
_PLAIN = (float, bool, type(None))
# A Series is sent as a table with this column.
_COLUMN = "value"
_TENSOR_PACKAGES = ("tensorflow", "keras", "tf_keras")
# The low-precision types of TensorFlow, from ml_dtypes. NumPy's file format has no names for them.
_ML_DTYPES = frozenset(
    {"bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz"}
    | {"int2", "int4", "uint2", "uint4"}
)

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
    """Return the ``repr`` of a value, shortened; also of a value whose ``repr`` fails."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - a repr may fail in any way
        text = f"<{_type_name(value)}, whose repr failed: {type(error).__name__}>"
    if len(text) > _TEXT_LIMIT:
        text = f"{text[:_TEXT_LIMIT]}… ({len(text):,} characters)"
    return text.encode("utf-8", "backslashreplace").decode()


def _type_name(value: Any) -> str:
    kind = type(value)
    is_known = kind.__module__ in ("builtins", "__main__")
    return kind.__qualname__ if is_known else f"{kind.__module__}.{kind.__qualname__}"


# ---- encode ---------------------------------------------------------------------------------------------------------


def encode_value(
    value: Any, *, limit_bytes: int = LIMIT_BYTES, implicit: bool = False, file: _File | None = None
) -> bytes:
    """Return ``value`` as bytes for `decode_value`.

    Parameters
    ----------
    value : object
        What the user's function returned.
    limit_bytes : int
        Larger results are refused.
    implicit : bool
        Whether it is the value of a cell's last line, which may not be meant as a result: objects that are not plain
        data are then sent as text only, and nothing is refused.
    file : optional
        Takes the contents of large arrays, tables and byte strings, which are then not among the bytes.

    Raises
    ------
    ResultNotSendable, ResultTooLarge
        With the part of the result that is to blame, its type, and what to do instead.
    """
    try:
        return _to_msgpack(_Encoder(limit_bytes, pickle_objects=not implicit, file=file).encode(value, _RESULT))
    except (ResultNotSendable, ResultTooLarge):
        if not implicit:
            raise
        if file is not None:
            file.drop_unfinished()
        return _to_msgpack([_OBJECT, _type_name(value), describe(value), b""])


def encode_result(value: Any, path: Path, *, limit_bytes: int, implicit: bool) -> tuple[bytes, int]:
    """Encode a value: as bytes if it is small, else into a file, which is replaced; see `encode_value`.

    Returns
    -------
    tuple of bytes and int
        The encoded value and 0, or ``b""`` and the size of the file.

    Raises
    ------
    ResultNotSendable, ResultTooLarge
        As `encode_value` does.
    ResultNotStored
        If the file cannot be written.
    """
    file = _File(path)
    try:
        head = encode_value(value, limit_bytes=limit_bytes, implicit=implicit, file=file)
        if file.size_bytes + len(head) > INLINE_BYTES:
            return b"", file.finish(head)
        if file.size_bytes:
            head = encode_value(value, limit_bytes=limit_bytes, implicit=implicit)
    except OSError as error:
        reason = f"{error.strerror or error}, after {file.size_bytes / 1e6:,.1f} MB of it"
        raise ResultNotStored(place=f"{path.parent} on {socket.gethostname()}", reason=reason) from error
    finally:
        file.drop_unfinished()
    return head, 0


class _File:
    """The file of a large value while it is written; it is opened for the first data."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: io.BufferedWriter | None = None
        self.size_bytes = 0

    def add(self, data: memoryview) -> tuple[int, int]:
        """Append data; return where it begins, and its length."""
        self._write(bytes(-self.size_bytes % _ALIGNMENT))
        start = self.size_bytes
        self._write(data)
        return start, data.nbytes

    def finish(self, head: bytes) -> int:
        """Append the encoded value and close the file; return its size."""
        self._write(head)
        self._write(_LENGTH.pack(len(head)))
        assert self._file is not None
        self._file.close()
        self._file = None
        return self.size_bytes

    def drop_unfinished(self) -> None:
        """Remove the file, unless it was finished."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # the disk may be full
                self._file.close()
            self._path.unlink(missing_ok=True)
            self._file, self.size_bytes = None, 0

    def _write(self, data: bytes | memoryview) -> None:
        if self._file is None:
            self._path.unlink(missing_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = os.fdopen(os.open(self._path, flags, 0o600), "wb")
        self.size_bytes += self._file.write(data)


# Where a part of the result is: the place of the whole, how it names its parts, the parts, the number of this one, and
# the depth. The path, as the user would write it, is made only for an error.
_At: TypeAlias = "tuple[_At | None, Callable[[str, list[Any], int], str], list[Any], int, int]"
_RESULT: _At = (None, lambda *_: "result", [], 0, 0)


def _path(at: _At) -> str:
    above, name, parts, number, _depth = at
    return name("" if above is None else _path(above), parts, number)


class _Buffer(NamedTuple):
    """The contents of an array or a table, as a part of it."""

    data: memoryview


class _Encoder:
    """Turns a value into what MessagePack knows, and counts its size, before it is copied."""

    def __init__(self, limit_bytes: int, *, pickle_objects: bool, file: _File | None) -> None:
        self._limit_bytes = limit_bytes
        self._pickle_objects = pickle_objects
        self._file = file
        self._size_bytes = 0
        self._largest: tuple[int, _At, str] = (0, _RESULT, "")

    def encode(self, value: Any, at: _At) -> Any:
        if type(value) in _PLAIN:
            self._count(9, value, at)
            return value
        if type(value) is _Buffer:
            return self._contents(value.data)
        if at[-1] > _MAX_DEPTH:
            reason = f"it is nested more than {_MAX_DEPTH} deep, or holds itself"
            raise ResultNotSendable(path=_path(at)[:80] + "…", type_name=_type_name(value), reason=reason)
        if type(value).__module__.partition(".")[0] in _TENSOR_PACKAGES:
            value = _evaluated(value, at)
        kind = _KINDS[number := _number_of(value)]
        self._count(kind.size(value), value, at)
        parts = kind.split(value)
        if parts is None:
            return [_OBJECT, _type_name(value), describe(value), self._pickled(value, at)]
        if not isinstance(parts, list):
            return parts
        name, depth = kind.name, at[-1] + 1
        return [number, *(self.encode(part, (at, name, parts, i, depth)) for i, part in enumerate(parts))]

    def _count(self, size_bytes: int, value: Any, at: _At) -> None:
        self._size_bytes += size_bytes
        if size_bytes > self._largest[0]:
            self._largest = (size_bytes, at, _type_name(value))
        if self._size_bytes > self._limit_bytes:
            size, where, kind = self._largest
            raise ResultTooLarge(path=_path(where), type_name=kind, size_bytes=size, limit_bytes=self._limit_bytes)

    def _contents(self, data: memoryview) -> Any:
        """Encode the contents of a part, which is a buffer to whoever decodes it."""
        if self._file is None or data.nbytes < _PART_BYTES:
            return data.tobytes()
        return [_STORED, *self._file.add(data)]

    def _pickled(self, value: Any, at: _At) -> Any:
        """Pickle an object that is not plain data, unless only its text is to be sent."""
        if not self._pickle_objects:
            self._count(_TEXT_LIMIT, value, at)
            return b""
        kind = unpicklable_kind(value)
        if kind is not None:
            raise ResultNotSendable(path=_path(at), type_name=_type_name(value), reason=kind.reason)
        try:
            data = cloudpickle.dumps(value)
        except Exception as error:  # a reduce method may fail in any way
            raise ResultNotSendable(path=_path(at), type_name=_type_name(value), reason=first_line(error)) from error
        self._count(len(data), value, at)
        contents = self._contents(memoryview(data))
        return contents if isinstance(contents, bytes) else [_BY_TYPE[bytes], contents]


def _evaluated(value: Any, at: _At) -> Any:
    """Return the array of a tensor and the dict of a History; other values of TensorFlow and Keras as they are."""
    if type(value).__name__ == "History" and isinstance(getattr(value, "history", None), dict):
        return value.history
    if not callable(getattr(value, "numpy", None)):
        return value
    try:
        return value.numpy()
    except Exception as error:  # symbolic tensors fail in several ways
        reason = f"it has no value outside its graph ({first_line(error)})"
        raise ResultNotSendable(path=_path(at), type_name=_type_name(value), reason=reason) from error


def _number_of(value: Any) -> int:
    """Return the number of a value's kind."""
    kind = type(value)
    number = _BY_TYPE.get(kind)
    if number is not None:
        return number
    package = kind.__module__.partition(".")[0]
    if package == "numpy":
        import numpy as np

        if isinstance(value, np.ma.MaskedArray | np.matrix):
            return _OBJECT
        base = "ndarray" if isinstance(value, np.ndarray) else "generic" if isinstance(value, np.generic) else ""
        return _BY_TYPE.get(f"numpy.{base}", _OBJECT)
    number = _BY_TYPE.get(f"{package}.{kind.__name__}")
    if number is not None:
        return number
    if isinstance(value, enum.Enum):
        return _OBJECT
    if isinstance(value, tuple) and isinstance(names := getattr(value, "_fields", None), tuple):
        return _NAMED_TUPLE if all(isinstance(name, str) for name in names) else _BY_TYPE[tuple]
    return next((_BY_TYPE[base] for base in kind.__mro__ if base in _BY_TYPE), _OBJECT)


# ---- decode ---------------------------------------------------------------------------------------------------------


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


def load_stored(path: Path, size_bytes: int) -> Any:
    """Return the value in a file, which is removed: the disk is free again when nothing refers to the value any more.

    Raises
    ------
    ResultUnreadable
        If there is no such file, or it is not what a node writes.
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

    return [dtype.name] if dtype.name in _ML_DTYPES else dtype_to_descr(dtype)


def _dtype(description: Any) -> Any:
    """Return the dtype with this description; refuse dtypes of Python objects."""
    import numpy as np
    from numpy.lib.format import descr_to_dtype

    if isinstance(description, list) and len(description) == 1 and description[0] in _ML_DTYPES:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, description[0]))
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


def _frame_size(value: Any) -> int:
    usage = value.memory_usage(index=True)
    return int(usage.sum()) if hasattr(usage, "sum") else int(usage)


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
    """Return the number, its unit, and the time zone: its name, its offset if it has no name, or "" for none."""
    zone = value.tzinfo
    named = getattr(zone, "key", None) or getattr(zone, "zone", None)
    text = "" if zone is None else named if isinstance(named, str) else value.strftime("UTC%z")
    return [int(value._value), value.unit, text]  # noqa: SLF001 - `value` is always in nanoseconds, which may overflow


def _timestamp(value: int, unit: str, zone: str) -> Any:
    import pandas as pd

    stamp = pd.Timestamp(value, unit=unit).as_unit(unit)
    return stamp.tz_localize("UTC").tz_convert(zone) if zone else stamp


def _timedelta(value: int, unit: str) -> Any:
    import pandas as pd

    return pd.Timedelta(value, unit=unit).as_unit(unit)


def _missing(name: str) -> Callable[[], Any]:
    def build() -> Any:
        import pandas as pd

        return getattr(pd, name)

    return build


def _object(type_name: str, text: str, data: bytes) -> RemoteObject:
    if not (isinstance(type_name, str) and isinstance(text, str) and isinstance(data, bytes)):
        raise ResultUnreadable(reason="a pickled object is malformed")
    return RemoteObject(type_name, text, data)


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
    _Kind(
        memoryview,
        lambda value: [_Buffer(value if value.contiguous else memoryview(value.tobytes()))],
        lambda data: bytes(memoryview(data)),
        size=lambda value: value.nbytes,
    ),
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
    _Kind("pandas.DataFrame", _frame_parts, lambda data: _table(data).to_pandas(), size=_frame_size),
    _Kind(
        "pandas.Series",
        _series_parts,
        lambda name, data: _table(data).to_pandas()[_COLUMN].rename(name),
        size=_frame_size,
    ),
    _Kind("pandas.Timestamp", _timestamp_parts, _timestamp),
    _Kind("pandas.Timedelta", lambda value: [int(value._value), value.unit], _timedelta),  # noqa: SLF001 - as above
    _Kind("pandas.NaTType", lambda _value: [], _missing("NaT")),
    _Kind("pandas.NAType", lambda _value: [], _missing("NA")),
    _Kind("pyarrow.Table", _table_parts, _table, size=lambda value: value.nbytes),
    _Kind("any object", lambda _value: None, _object),
)
# By type, or by package and name.
_BY_TYPE: dict[type | str, int] = {kind.type: number for number, kind in enumerate(_KINDS)}
_NAMED_TUPLE, _OBJECT = _BY_TYPE["a named tuple"], _BY_TYPE["any object"]
# Stands for a part that is in the value's file, with where it begins and its length.
_STORED = len(_KINDS)
