"""Encodes what a function returned; runs on the node."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import fractions
import pathlib
import uuid
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import cloudpickle
import msgspec

from tfos_lab.errors import ResultNotSendable, ResultTooLarge
from tfos_lab.payload.unpicklable import unpicklable_kind
from tfos_lab.texts import first_line
from tfos_lab.values import tables
from tfos_lab.values.tags import MAX_DEPTH, ML_DTYPES, Encoded, Tag
from tfos_lab.values.text import TEXT_LIMIT, describe, time_parts, type_name

LIMIT_BYTES = 256 << 20
# Smaller parts of a value are not stored outside of it.
_PART_BYTES = 1 << 16


_TENSOR_PACKAGES = ("tensorflow", "keras", "tf_keras")
_to_msgpack = msgspec.msgpack.Encoder().encode


def encode_value(
    value: Any, *, limit_bytes: int = LIMIT_BYTES, implicit: bool = False, store: Store | None = None
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
    store : Store, optional
        Takes the contents of large arrays, tables and byte strings, which are then not among the bytes.

    Raises
    ------
    ResultNotSendable, ResultTooLarge
        With the part of the result that is to blame, its type, and what to do instead.
    """
    try:
        encoder = _Encoder(limit_bytes, pickle_objects=not implicit, store=store)
        return _to_msgpack(encoder.encode(value, _Location("result")))
    except (ResultNotSendable, ResultTooLarge):
        if not implicit:
            raise
        if store is not None:
            store.clear()
        return _to_msgpack(_text_only(value))


def _text_only(value: Any) -> Encoded:
    return [Tag.OPAQUE, type_name(value), describe(value), b""]


_TEXT_TAGS = {
    decimal.Decimal: Tag.DECIMAL,
    uuid.UUID: Tag.UUID,
    pathlib.PurePath: Tag.PATH,
}


class Store(Protocol):
    """Takes the large parts of a value."""

    def add(self, data: memoryview) -> tuple[int, int]:
        """Store the contents of an array or a table; return where they begin, and their length."""

    def clear(self) -> None:
        """Drop what was stored: the value is not sent."""


class _Location(NamedTuple):
    """The path to a part of the result, as the user would write it, and its depth."""

    path: str
    depth: int = 0

    def child(self, path: str) -> _Location:
        return _Location(path, self.depth + 1)


_Rule = Callable[[Any, Any, _Location], Encoded]


class _Encoder:
    """Turns a value into what MessagePack knows, and counts its size.

    Parameters
    ----------
    limit_bytes : int
        Larger values are refused.
    pickle_objects : bool
        Whether objects that are not plain data are pickled; else only their text is sent.
    store : Store or None
        Takes the contents of large parts.
    """

    def __init__(self, limit_bytes: int, *, pickle_objects: bool, store: Store | None) -> None:
        self._limit_bytes = limit_bytes
        self._pickle_objects = pickle_objects
        self._store = store
        self._size_bytes = 0
        self._largest = (0, "result", "")

    def encode(self, value: Any, at: _Location) -> Encoded:
        """Return ``value`` as None, bool, int, float, str, bytes, or a list that begins with a tag."""
        if at.depth > MAX_DEPTH:
            raise ResultNotSendable(
                path=at.path[:80] + "…",
                type_name=type_name(value),
                reason=f"it is nested more than {MAX_DEPTH} deep, or holds itself",
            )
        rule = self._RULES.get(type(value))
        return rule(self, value, at) if rule else self._encode_by_inspection(value, at)

    def _encode_by_inspection(self, value: Any, at: _Location) -> Encoded:
        """Encode a value whose type has no rule: of a subclass, or of a package that is not imported here."""
        package = type(value).__module__.partition(".")[0]
        if package == "numpy":
            return self._numpy(value, at)
        if package == "pandas" and type(value).__name__ in tables.PANDAS_KINDS:
            return self._pandas(value, at)
        if package == "pyarrow" and type(value).__name__ == "Table":
            return self._table(value, at)
        if package in _TENSOR_PACKAGES:
            if type(value).__name__ == "History" and isinstance(getattr(value, "history", None), dict):
                return self._history(value, at)
            if callable(getattr(value, "numpy", None)):
                return self._tensor(value, at)
        if isinstance(value, enum.Enum):
            return self._opaque(value, at)
        for kind, rule in self._SUBCLASS_RULES.items():
            if isinstance(value, kind):
                return rule(self, value, at)
        return self._opaque(value, at)

    def _count(self, size_bytes: int, value: Any, at: _Location) -> None:
        """Add to the size, and refuse what is too large before it is copied."""
        self._size_bytes += size_bytes
        if size_bytes > self._largest[0]:
            self._largest = (size_bytes, at.path, type_name(value))
        if self._size_bytes > self._limit_bytes:
            size, where, kind = self._largest
            raise ResultTooLarge(path=where, type_name=kind, size_bytes=size, limit_bytes=self._limit_bytes)

    def _contents(self, data: memoryview) -> Encoded:
        """Encode the contents of a part, which is a buffer to whoever decodes it."""
        if self._store is None or data.nbytes < _PART_BYTES:
            return data.tobytes()
        return [Tag.STORED, *self._store.add(data)]

    def _byte_string(self, data: bytes | memoryview) -> Encoded:
        contents = self._contents(memoryview(data))
        return contents if isinstance(contents, bytes) else [Tag.BYTES, contents]

    # ---- plain values ------------------------------------------------------------------------------------------------

    def _plain(self, value: Encoded, at: _Location) -> Encoded:
        self._count(9, value, at)
        return value

    def _int(self, value: int, at: _Location) -> Encoded:
        value = int(value)
        self._count(9 + value.bit_length() // 8, value, at)
        if -(1 << 63) <= value < 1 << 64:
            return value
        return [Tag.BIG_INT, value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)]

    def _float(self, value: float, at: _Location) -> Encoded:
        self._count(9, value, at)
        return float(value)

    def _str(self, value: str, at: _Location) -> Encoded:
        self._count(len(value) + 5, value, at)
        value = str(value)
        try:
            value.encode()
        except UnicodeEncodeError:
            return [Tag.SURROGATES, value.encode("utf-8", "surrogatepass")]
        return value

    def _bytes(self, value: bytes | bytearray, at: _Location) -> Encoded:
        self._count(len(value) + 5, value, at)
        if isinstance(value, bytearray):
            return [Tag.BYTEARRAY, self._contents(memoryview(value))]
        return self._byte_string(value)

    def _memoryview(self, value: memoryview, at: _Location) -> Encoded:
        self._count(value.nbytes, value, at)
        return self._byte_string(value if value.contiguous else value.tobytes())

    def _text(self, value: Any, at: _Location) -> Encoded:
        """Encode a value that its ``str`` describes completely."""
        for kind, tag in _TEXT_TAGS.items():
            if isinstance(value, kind):
                self._count(len(str(value)), value, at)
                return [tag, self._str(str(value), at)]
        raise AssertionError(type(value))

    def _complex(self, value: complex, at: _Location) -> Encoded:
        self._count(18, value, at)
        return [Tag.COMPLEX, value.real, value.imag]

    def _fraction(self, value: fractions.Fraction, at: _Location) -> Encoded:
        return [Tag.FRACTION, *(self._int(part, at) for part in (value.numerator, value.denominator))]

    def _range(self, value: range, at: _Location) -> Encoded:
        return [Tag.RANGE, *(self._int(part, at) for part in (value.start, value.stop, value.step))]

    def _datetime(self, value: dt.datetime, at: _Location) -> Encoded:
        self._count(32, value, at)
        return [Tag.DATETIME, *time_parts(value)]

    def _time(self, value: dt.time, at: _Location) -> Encoded:
        self._count(32, value, at)
        return [Tag.TIME, *time_parts(value)]

    def _date(self, value: dt.date, at: _Location) -> Encoded:
        self._count(12, value, at)
        return [Tag.DATE, value.isoformat()]

    def _timedelta(self, value: dt.timedelta, at: _Location) -> Encoded:
        self._count(18, value, at)
        return [Tag.TIMEDELTA, value.days, value.seconds, value.microseconds]

    # ---- containers --------------------------------------------------------------------------------------------------

    def _list(self, value: Sequence[Any], at: _Location) -> list[Encoded]:
        self._count(5, value, at)
        return [Tag.LIST, *(self.encode(item, at.child(f"{at.path}[{i}]")) for i, item in enumerate(value))]

    def _tuple(self, value: tuple[Any, ...], at: _Location) -> Encoded:
        fields = getattr(value, "_fields", None)
        items = self._list(tuple(value), at)[1:]
        if isinstance(fields, tuple) and all(isinstance(name, str) for name in fields):
            return [Tag.NAMED_TUPLE, type(value).__name__, [Tag.TUPLE, *fields], *items]
        return [Tag.TUPLE, *items]

    def _set(self, value: set[Any] | frozenset[Any], at: _Location) -> Encoded:
        self._count(5, value, at)
        tag = Tag.FROZENSET if isinstance(value, frozenset) else Tag.SET
        return [tag, *(self.encode(item, at.child(f"an element of {at.path}")) for item in value)]

    def _dict(self, value: dict[Any, Any], at: _Location) -> Encoded:
        self._count(5, value, at)
        encoded: list[Encoded] = [Tag.DICT]
        for key, item in value.items():
            encoded.append(self.encode(key, at.child(f"a key of {at.path}")))
            encoded.append(self.encode(item, at.child(f"{at.path}[{describe(key)[:60]}]")))
        return encoded

    # ---- arrays and tables -------------------------------------------------------------------------------------------

    def _numpy(self, value: Any, at: _Location) -> Encoded:
        import numpy as np

        if isinstance(value, np.generic) and not value.dtype.hasobject:
            self._count(value.nbytes, value, at)
            return [Tag.SCALAR, self._dtype(value.dtype, at), value.tobytes()]
        if not isinstance(value, np.ndarray) or isinstance(value, np.ma.MaskedArray | np.matrix):
            return self._opaque(value, at)
        self._count(value.nbytes, value, at)
        if value.dtype.hasobject or value.dtype.kind == "T":
            items = [self.encode(item, at.child(f"an element of {at.path}")) for item in value.ravel().tolist()]
            return [Tag.OBJECT_ARRAY, [Tag.TUPLE, *value.shape], [Tag.LIST, *items]]
        contents = self._contents(_bytes_of(value)) if value.nbytes >= _PART_BYTES else value.tobytes()
        return [Tag.ARRAY, self._dtype(value.dtype, at), [Tag.TUPLE, *value.shape], contents]

    def _dtype(self, dtype: Any, at: _Location) -> Encoded:
        """Encode a dtype: by name for those of ml_dtypes, else as in NumPy's own file format."""
        if dtype.name in ML_DTYPES:
            return [Tag.LIST, dtype.name]
        from numpy.lib.format import dtype_to_descr

        return self.encode(dtype_to_descr(dtype), at.child(at.path))

    def _tensor(self, value: Any, at: _Location) -> Encoded:
        try:
            array = value.numpy()
        except Exception as error:  # symbolic tensors fail in several ways
            reason = f"it has no value outside its graph ({first_line(error)})"
            raise ResultNotSendable(path=at.path, type_name=type_name(value), reason=reason) from error
        return self.encode(array, at.child(at.path))

    def _history(self, value: Any, at: _Location) -> Encoded:
        return self.encode(value.history, at.child(at.path))

    def _pandas(self, value: Any, at: _Location) -> Encoded:
        self._count(tables.size_bytes(value), value, at)
        encoded = tables.encode_pandas(value)
        if encoded is None:
            return self._opaque(value, at)
        tag, *parts = encoded
        return [
            tag,
            *(self._contents(p) if isinstance(p, memoryview) else self.encode(p, at.child(at.path)) for p in parts),
        ]

    def _table(self, value: Any, at: _Location) -> Encoded:
        self._count(value.nbytes, value, at)
        return [Tag.TABLE, self._contents(tables.to_ipc(value))]

    # ---- everything else ---------------------------------------------------------------------------------------------

    def _opaque(self, value: Any, at: _Location) -> Encoded:
        """Pickle an object that is not plain data, or send only its text."""
        if not self._pickle_objects:
            self._count(TEXT_LIMIT, value, at)
            return _text_only(value)
        kind = unpicklable_kind(value)
        if kind is not None:
            raise ResultNotSendable(path=at.path, type_name=type_name(value), reason=kind.reason)
        try:
            data = cloudpickle.dumps(value)
        except Exception as error:  # a reduce method may fail in any way
            reason = first_line(error)
            raise ResultNotSendable(path=at.path, type_name=type_name(value), reason=reason) from error
        self._count(len(data), value, at)
        return [Tag.OPAQUE, type_name(value), describe(value), self._byte_string(data)]

    # ---- rules by type -----------------------------------------------------------------------------------------------

    _RULES: ClassVar[dict[type, _Rule]] = {
        type(None): _plain,
        bool: _plain,
        int: _int,
        float: _float,
        str: _str,
        list: _list,
        tuple: _tuple,
        dict: _dict,
    }

    # The order matters: a datetime is also a date.
    _SUBCLASS_RULES: ClassVar[dict[type, _Rule]] = {
        str: _str,
        bytes: _bytes,
        bytearray: _bytes,
        memoryview: _memoryview,
        int: _int,
        float: _float,
        complex: _complex,
        dict: _dict,
        list: _list,
        tuple: _tuple,
        set: _set,
        frozenset: _set,
        range: _range,
        fractions.Fraction: _fraction,
        dt.datetime: _datetime,
        dt.date: _date,
        dt.time: _time,
        dt.timedelta: _timedelta,
        **dict.fromkeys(_TEXT_TAGS, _text),
    }


def _bytes_of(array: Any) -> memoryview:
    """Return the contents of an array in C order, without a copy where it has that order."""
    import numpy as np

    flat: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return memoryview(flat)
