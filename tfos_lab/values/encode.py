"""Turns what a function returned into bytes; runs on the node."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import fractions
import pathlib
import sys
import uuid
from collections.abc import Callable
from typing import Any

import cloudpickle
import msgspec

from tfos_lab.refusals import refusal
from tfos_lab.values import tables
from tfos_lab.values.remote import ResultNotSendable, ResultTooLarge
from tfos_lab.values.tags import MAX_DEPTH, ML_DTYPES, Tag

LIMIT_BYTES = 256 << 20

_TEXT_LIMIT = 2000
_TENSOR_PACKAGES = ("tensorflow", "keras", "tf_keras")
_encode = msgspec.msgpack.Encoder().encode


def encode_value(value: Any, *, limit_bytes: int = LIMIT_BYTES, implicit: bool = False) -> bytes:
    """Return ``value`` as bytes for `decode_value`.

    Parameters
    ----------
    value : object
        What the user's function returned.
    limit_bytes : int
        Larger results are refused.
    implicit : bool
        Whether it is the value of a cell's last line, which need not be meant as a result: what is not plain data is
        then sent as text only, and nothing is refused.

    Raises
    ------
    ResultNotSendable, ResultTooLarge
        Naming the part, its type and what to do instead.
    """
    try:
        return _encode(_Lowering(limit_bytes, sealed=not implicit).lower(value, "result", 0))
    except (ResultNotSendable, ResultTooLarge):
        if not implicit:
            raise
        return _encode(_text_only(value))


def describe(value: Any) -> str:
    """Return a short text for any value, whatever its ``repr`` does."""
    try:
        text = repr(value)
    except Exception as error:  # a repr may fail in any way
        text = f"<{type_name(value)}, whose repr failed: {type(error).__name__}>"
    if len(text) > _TEXT_LIMIT:
        text = f"{text[:_TEXT_LIMIT]}… ({len(text):,} characters)"
    return text.encode("utf-8", "backslashreplace").decode()


def type_name(value: Any) -> str:
    """Return the name of a value's type, with its module where that helps."""
    kind = type(value)
    return (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )


def _text_only(value: Any) -> list[Any]:
    return [Tag.OPAQUE, type_name(value), describe(value), b""]


class _Lowering:
    """Lowers a value to what MessagePack knows; keeps count of its size, and of where in the value it is."""

    def __init__(self, limit_bytes: int, *, sealed: bool) -> None:
        self._limit_bytes = limit_bytes
        self._sealed = sealed
        self._size_bytes = 0
        self._largest = (0, "result", "")
        self._depth = 0

    def lower(self, value: Any, path: str, depth: int) -> Any:
        """Return ``value`` in terms of None, bool, int, float, str, bytes, and lists that begin with a tag."""
        if depth > MAX_DEPTH:
            raise ResultNotSendable(
                path=path[:80] + "…",
                type_name=type_name(value),
                reason=f"it is nested more than {MAX_DEPTH} deep, or holds itself",
            )
        rule = _RULES.get(type(value)) or self._rule_by_look(value)
        return rule(self, value, path, depth)

    def _rule_by_look(self, value: Any) -> _Rule:
        """Find the rule for a type that is not listed: subclasses, and types of packages that are not imported here."""
        package = type(value).__module__.partition(".")[0]
        if package == "numpy":
            return _Lowering._numpy
        if package == "pandas" and type(value).__name__ in tables.PANDAS_KINDS:
            return _Lowering._pandas
        if package == "pyarrow" and type(value).__name__ == "Table":
            return _Lowering._table
        if package in _TENSOR_PACKAGES:
            if type(value).__name__ == "History" and isinstance(getattr(value, "history", None), dict):
                return _Lowering._history
            if callable(getattr(value, "numpy", None)):
                return _Lowering._tensor
        if isinstance(value, enum.Enum):
            return _Lowering._opaque
        for kind, rule in _SUBCLASS_RULES.items():
            if isinstance(value, kind):
                return rule
        return _Lowering._opaque

    def _count(self, size_bytes: int, value: Any, path: str) -> None:
        """Add to the size, before anything is copied."""
        self._size_bytes += size_bytes
        if size_bytes > self._largest[0]:
            self._largest = (size_bytes, path, type_name(value))
        if self._size_bytes > self._limit_bytes:
            size, where, kind = self._largest
            raise ResultTooLarge(path=where, type_name=kind, size_bytes=size, limit_bytes=self._limit_bytes)

    # ---- plain values ------------------------------------------------------------------------------------------------

    def _plain(self, value: Any, path: str, depth: int) -> Any:
        self._count(9, value, path)
        return value

    def _int(self, value: int, path: str, depth: int) -> Any:
        value = int(value)
        self._count(9 + value.bit_length() // 8, value, path)
        if -(1 << 63) <= value < 1 << 64:
            return value
        return [Tag.BIG_INT, value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)]

    def _float(self, value: float, path: str, depth: int) -> Any:
        self._count(9, value, path)
        return float(value)

    def _str(self, value: str, path: str, depth: int) -> Any:
        self._count(len(value) + 5, value, path)
        value = str(value)
        try:
            value.encode()
        except UnicodeEncodeError:
            return [Tag.SURROGATES, value.encode("utf-8", "surrogatepass")]
        return value

    def _bytes(self, value: Any, path: str, depth: int) -> Any:
        self._count(len(value) + 5, value, path)
        return [Tag.BYTEARRAY, bytes(value)] if isinstance(value, bytearray) else bytes(value)

    def _memoryview(self, value: memoryview, path: str, depth: int) -> Any:
        self._count(value.nbytes, value, path)
        return value.tobytes()

    def _text(self, value: Any, path: str, depth: int) -> Any:
        """Lower what is its ``str``."""
        for kind, tag in _TEXT_TAGS.items():
            if isinstance(value, kind):
                self._count(len(str(value)), value, path)
                return [tag, self._str(str(value), path, depth)]
        raise AssertionError(type(value))

    def _complex(self, value: complex, path: str, depth: int) -> Any:
        self._count(18, value, path)
        return [Tag.COMPLEX, value.real, value.imag]

    def _fraction(self, value: fractions.Fraction, path: str, depth: int) -> Any:
        return [Tag.FRACTION, *(self._int(part, path, depth) for part in (value.numerator, value.denominator))]

    def _range(self, value: range, path: str, depth: int) -> Any:
        return [Tag.RANGE, *(self._int(part, path, depth) for part in (value.start, value.stop, value.step))]

    def _datetime(self, value: dt.datetime, path: str, depth: int) -> Any:
        self._count(32, value, path)
        return [Tag.DATETIME, *_time_parts(value)]

    def _time(self, value: dt.time, path: str, depth: int) -> Any:
        self._count(32, value, path)
        return [Tag.TIME, *_time_parts(value)]

    def _date(self, value: dt.date, path: str, depth: int) -> Any:
        self._count(12, value, path)
        return [Tag.DATE, value.isoformat()]

    def _timedelta(self, value: dt.timedelta, path: str, depth: int) -> Any:
        self._count(18, value, path)
        return [Tag.TIMEDELTA, value.days, value.seconds, value.microseconds]

    # ---- containers --------------------------------------------------------------------------------------------------

    def _list(self, value: Any, path: str, depth: int) -> Any:
        self._count(5, value, path)
        return [Tag.LIST, *(self.lower(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value))]

    def _tuple(self, value: Any, path: str, depth: int) -> Any:
        fields = getattr(value, "_fields", None)
        items = self._list(tuple(value), path, depth)[1:]
        if isinstance(fields, tuple) and all(isinstance(name, str) for name in fields):
            return [Tag.NAMED_TUPLE, type(value).__name__, list(fields), *items]
        return [Tag.TUPLE, *items]

    def _set(self, value: Any, path: str, depth: int) -> Any:
        self._count(5, value, path)
        tag = Tag.FROZENSET if isinstance(value, frozenset) else Tag.SET
        return [tag, *(self.lower(item, f"an element of {path}", depth + 1) for item in value)]

    def _dict(self, value: Any, path: str, depth: int) -> Any:
        self._count(5, value, path)
        lowered: list[Any] = [Tag.DICT]
        for key, item in value.items():
            lowered.append(self.lower(key, f"a key of {path}", depth + 1))
            lowered.append(self.lower(item, f"{path}[{describe(key)[:60]}]", depth + 1))
        return lowered

    # ---- arrays and tables -------------------------------------------------------------------------------------------

    def _numpy(self, value: Any, path: str, depth: int) -> Any:
        import numpy as np

        if isinstance(value, np.generic) and not value.dtype.hasobject:
            self._count(value.nbytes, value, path)
            return [Tag.SCALAR, self._dtype(value.dtype, path, depth), value.tobytes()]
        if not isinstance(value, np.ndarray) or isinstance(value, np.ma.MaskedArray | np.matrix):
            return self._opaque(value, path, depth)
        self._count(value.nbytes, value, path)
        if value.dtype.hasobject or value.dtype.kind == "T":
            items = [self.lower(item, f"an element of {path}", depth + 1) for item in value.ravel().tolist()]
            return [Tag.OBJECT_ARRAY, list(value.shape), items]
        return [Tag.ARRAY, self._dtype(value.dtype, path, depth), list(value.shape), value.tobytes()]

    def _dtype(self, dtype: Any, path: str, depth: int) -> Any:
        """Lower a dtype: its name for those of ml_dtypes, else as NumPy's own files have it."""
        if dtype.name in ML_DTYPES:
            return [Tag.LIST, dtype.name]
        from numpy.lib.format import dtype_to_descr

        return self.lower(dtype_to_descr(dtype), path, depth + 1)

    def _tensor(self, value: Any, path: str, depth: int) -> Any:
        try:
            array = value.numpy()
        except Exception as error:  # symbolic tensors fail in several ways
            reason = f"it has no value outside its graph ({_first_line(error)})"
            raise ResultNotSendable(path=path, type_name=type_name(value), reason=reason) from error
        return self.lower(array, path, depth + 1)

    def _history(self, value: Any, path: str, depth: int) -> Any:
        return self.lower(value.history, path, depth + 1)

    def _pandas(self, value: Any, path: str, depth: int) -> Any:
        self._count(tables.size_bytes(value), value, path)
        lowered = tables.lower_pandas(value)
        if lowered is None:
            return self._opaque(value, path, depth)
        tag, *parts = lowered
        return [tag, *(part if isinstance(part, bytes) else self.lower(part, path, depth + 1) for part in parts)]

    def _table(self, value: Any, path: str, depth: int) -> Any:
        self._count(value.nbytes, value, path)
        return [Tag.TABLE, tables.to_ipc(value)]

    # ---- everything else ---------------------------------------------------------------------------------------------

    def _opaque(self, value: Any, path: str, depth: int) -> Any:
        """Seal an object that is not plain data, or send only its text."""
        if not self._sealed:
            self._count(_TEXT_LIMIT, value, path)
            return _text_only(value)
        why = refusal(value)
        if why is not None:
            raise ResultNotSendable(path=path, type_name=type_name(value), reason=why.reason)
        try:
            data = cloudpickle.dumps(value)
        except Exception as error:  # a reduce method may fail in any way
            reason = _first_line(error)
            raise ResultNotSendable(path=path, type_name=type_name(value), reason=reason) from error
        self._count(len(data), value, path)
        return [Tag.OPAQUE, type_name(value), describe(value), data]


def _time_parts(value: dt.datetime | dt.time) -> tuple[str, int, str]:
    """Return the ISO text, the fold, and the name of the zone; zones without a name keep their offset only."""
    zone = getattr(value.tzinfo, "key", None)
    if isinstance(zone, str):
        return value.replace(tzinfo=None).isoformat(), value.fold, zone
    return value.isoformat(), value.fold, ""


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0].rstrip(".") if text else type(error).__name__


_Rule = Callable[[_Lowering, Any, str, int], Any]

_RULES: dict[type, _Rule] = {
    type(None): _Lowering._plain,
    bool: _Lowering._plain,
    int: _Lowering._int,
    float: _Lowering._float,
    str: _Lowering._str,
    list: _Lowering._list,
    tuple: _Lowering._tuple,
    dict: _Lowering._dict,
}

_TEXT_TAGS = {
    decimal.Decimal: Tag.DECIMAL,
    uuid.UUID: Tag.UUID,
    pathlib.PurePath: Tag.PATH,
}

# In this order: a datetime is a date as well.
_SUBCLASS_RULES: dict[type, _Rule] = {
    str: _Lowering._str,
    bytes: _Lowering._bytes,
    bytearray: _Lowering._bytes,
    memoryview: _Lowering._memoryview,
    int: _Lowering._int,
    float: _Lowering._float,
    complex: _Lowering._complex,
    dict: _Lowering._dict,
    list: _Lowering._list,
    tuple: _Lowering._tuple,
    set: _Lowering._set,
    frozenset: _Lowering._set,
    range: _Lowering._range,
    fractions.Fraction: _Lowering._fraction,
    dt.datetime: _Lowering._datetime,
    dt.date: _Lowering._date,
    dt.time: _Lowering._time,
    dt.timedelta: _Lowering._timedelta,
    **dict.fromkeys(_TEXT_TAGS, _Lowering._text),
}
