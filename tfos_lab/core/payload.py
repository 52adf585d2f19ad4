"""Packs the user's function and its arguments on the driver, and unpacks them on each node.

Functions and classes of the notebook are pickled by value, with the names that they use and their source text. Those of
importable modules are pickled by reference, and the node imports the module; the user's own modules can travel along.
What cannot be pickled is refused on the driver, before anything is launched, under the name that the user knows.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import io
import mmap
import pickle
import struct
import sys
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import cloudpickle

from tfos_lab.core import sources
from tfos_lab.core.unpicklable import UnpicklableKind, unpicklable_kind
from tfos_lab.errors import PayloadError
from tfos_lab.texts import first_line

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

LIMIT_BYTES = 1 << 30

# The version comes first: a code object of another minor version of Python crashes the process that unpickles it.
_HEADER = b"tfos\x02" + bytes(sys.version_info[:2])
# Where the modules begin: they are found last, and nodes need them before the function.
_START = struct.Struct("<Q")
_DEFAULT_ADVICE = "Make it inside the cell, or capture plain data instead"
_RAW_DATA_ADVICE = "Feed the rows with data=..., or load them from files inside the cell"

# What nodes call before they unpack.
_preparations: list[Callable[[], object]] = []


def prepare_nodes(function: Callable[[], object]) -> None:
    """Have nodes call a function of this package before they unpack anything that is packed from now on."""
    if function not in _preparations:
        _preparations.append(function)


def pack(
    map_fun: Callable[..., Any], args: Any, *, limit_bytes: int = LIMIT_BYTES, with_modules: bool = False
) -> bytes:
    """Return ``map_fun``, called on each node as ``map_fun(args, ctx)``, and ``args`` as bytes for `unpack`.

    ``with_modules``, the user's own modules travel along, as they are on disk now. Raises PayloadError if something
    cannot be pickled, or all of it is larger than ``limit_bytes``: with its name, the reason, and what to do.
    """
    if not callable(map_fun):
        raise PayloadError(
            name="map_fun",
            type_name=type(map_fun).__name__,
            reason="it is not a function",
            advice="Pass a function that takes (args, ctx)",
        )
    if beyond := _needed_beyond_two(map_fun):
        raise PayloadError(
            name="map_fun",
            type_name=type(map_fun).__name__,
            reason=f"it is called with (args, ctx), and needs {' and '.join(beyond)} as well",
            advice="Give what it needs as args, or as defaults",
        )
    sink = _Sink(limit_bytes, keep=True)
    sink.write(_HEADER + _START.pack(0))
    try:
        pickle.dump(_preparations, sink)
        pickler = _Pickler(sink)
        pickler.dump((map_fun, args))
        pickle.dump(sources.collect_cells(pickler.filenames), sink)
        start = sink.tell()
        pickle.dump(sources.collect_modules(pickler.modules) if with_modules else [], sink)
        sink.seek(len(_HEADER))
        sink.write(_START.pack(start))
    except PayloadError:
        raise
    except _TooLarge:
        raise _too_large(map_fun, args, limit_bytes) from None
    except Exception as error:
        raise _explain(map_fun, args, error) from error
    return sink.getvalue()


def _needed_beyond_two(function: Callable[..., Any]) -> list[str]:
    """Return the names of parameters without a default that no call with two arguments can fill."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []  # it does not tell
    needed = [one for one in parameters if one.default is one.empty]
    positional = [one for one in needed if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    return [one.name for one in (*positional[2:], *(one for one in needed if one.kind is one.KEYWORD_ONLY))]


def unpack(data: bytes | mmap.mmap) -> tuple[Callable[..., Any], Any]:
    """Return the function and arguments that `pack` packed, and register their sources in this process.

    Raises PayloadError if this process cannot rebuild them: it runs another version of Python, or lacks a module.
    """
    if data[: len(_HEADER)] != _HEADER:
        raise _foreign(data[: len(_HEADER)])
    stream = data if isinstance(data, mmap.mmap) else io.BytesIO(data)
    stream.seek(len(_HEADER))
    try:
        (start,) = _START.unpack(stream.read(_START.size))
        # A node trusts its driver: this is the user's own function.
        for prepare in pickle.load(stream):  # noqa: S301
            prepare()
        function = stream.tell()
        stream.seek(start)
        sources.register_modules(pickle.load(stream))  # noqa: S301
        stream.seek(function)
        map_fun, args = pickle.load(stream)  # noqa: S301
        sources.register_cells(pickle.load(stream))  # noqa: S301
    except ModuleNotFoundError as error:
        raise PayloadError(
            name=error.name or "a module",
            type_name="module",
            reason="this node cannot import it",
            advice=(
                "Install it on the nodes, or put what you need of it into the notebook or a .py file beside it, which "
                "are sent along"
            ),
        ) from error
    except Exception as error:
        raise PayloadError(
            name=getattr(error, "name", None) or "the function",
            type_name=type(error).__name__,
            reason=f"this node cannot rebuild it: {first_line(error)}",
            advice="Install the same versions of your packages on the nodes and in the notebook",
        ) from error
    return map_fun, args


def captured_sizes(map_fun: Callable[..., Any], args: Any) -> dict[str, int]:
    """Return how many bytes each captured name takes, largest first, without those that cannot be pickled."""
    sizes: dict[str, int] = {}
    for captured in captured_values(map_fun, args):
        sink = _Sink(sys.maxsize, keep=False)
        if _failure(captured.value, sink) is None:
            sizes[captured.path] = sink.size_bytes
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


class _Unpicklable(Exception):
    """The pickler met a value of an `UnpicklableKind`."""

    def __init__(self, value: Any, kind: UnpicklableKind) -> None:
        super().__init__(kind.reason)
        self.value = value
        self.kind = kind


class _TooLarge(Exception):
    """The payload has exceeded its limit."""


class _Sink(io.BytesIO):
    """Counts the bytes written, keeps them only with ``keep``, and raises at the limit."""

    def __init__(self, limit_bytes: int, *, keep: bool) -> None:
        super().__init__()
        self.size_bytes = 0
        self._limit_bytes = limit_bytes
        self._keep = keep

    def write(self, data: Buffer) -> int:
        size = memoryview(data).nbytes
        self.size_bytes += size
        if self.size_bytes > self._limit_bytes:
            raise _TooLarge
        return super().write(data) if self._keep else size


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Refuses unpicklable values, however deep; collects file names of notebook functions, and modules in use."""

    def __init__(self, sink: _Sink) -> None:
        super().__init__(sink, protocol=pickle.HIGHEST_PROTOCOL)
        self.filenames: set[str] = set()
        self.modules: set[str] = set()

    def reducer_override(self, obj: Any) -> Any:
        kind = unpicklable_kind(obj)
        if kind is not None:
            raise _Unpicklable(obj, kind)
        for name in ("stdout", "stderr"):
            if obj is getattr(sys, name):
                return getattr, (sys, name)
        if isinstance(obj, types.FunctionType) and obj.__module__ in (None, "__main__"):
            self.filenames.add(obj.__code__.co_filename)
        elif isinstance(obj, types.CodeType):
            self.modules |= sources.imported_names(obj)
            if obj.co_name == "<module>":  # a whole cell
                self.filenames.add(obj.co_filename)
        elif isinstance(obj, types.ModuleType):
            self.modules.add(obj.__name__)
        elif isinstance(obj, types.FunctionType | type) and isinstance(obj.__module__, str):
            self.modules.add(obj.__module__)
        return super().reducer_override(obj)


def _failure(value: Any, sink: _Sink | None = None) -> Exception | None:
    """Return what pickling a value by itself raises, or None if it can be pickled."""
    try:
        _Pickler(sink or _Sink(sys.maxsize, keep=False)).dump(value)
    except Exception as error:  # noqa: BLE001 - a value's own methods may raise anything
        return error
    return None


def _explain(map_fun: Callable[..., Any], args: Any, error: Exception) -> PayloadError:
    """Return the error that names the value to blame, and says what to do."""
    # Where each value can be pickled by itself, it is the function.
    culprit = CapturedValue(getattr(map_fun, "__name__", "map_fun"), map_fun)
    for captured in captured_values(map_fun, args):
        if _failure(captured.value):
            culprit = _innermost(captured, set())
            break
    kind = unpicklable_kind(culprit.value) or _other_kind(culprit.value, error)
    through = f" (used by {culprit.via[-1]}())" if len(culprit.via) > 1 else ""
    return PayloadError(
        name=culprit.path,
        type_name=type(culprit.value).__name__,
        reason=kind.reason + through,
        advice=kind.advice.format(name=culprit.path),
    )


def _other_kind(value: Any, error: Exception) -> UnpicklableKind:
    """Return what is wrong with a value of no known kind: what it holds, or else what pickling it raised."""
    error = _failure(value) or error
    if isinstance(error, _Unpicklable):
        return UnpicklableKind(f"it holds a {type(error.value).__name__}, and {error.kind.reason}", _DEFAULT_ADVICE)
    return UnpicklableKind(first_line(error), _DEFAULT_ADVICE)


def _too_large(map_fun: Callable[..., Any], args: Any, limit_bytes: int) -> PayloadError:
    sizes = captured_sizes(map_fun, args)
    biggest = [f"{name} {size / 1e6:,.0f} MB" for name, size in list(sizes.items())[:3] if size >= 5e5]
    name = next(iter(sizes), "args")
    values = {captured.path: captured.value for captured in captured_values(map_fun, args)}
    return PayloadError(
        name=name,
        type_name=type(values.get(name)).__name__,
        reason=(
            f"the function and what it captures take more than {limit_bytes / 1e6:,.0f} MB "
            f"({', '.join(biggest) or 'many small values'})"
        ),
        advice=_RAW_DATA_ADVICE,
    )


def _foreign(data: bytes) -> PayloadError:
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if data[:5] == _HEADER[:5] and len(data) >= len(_HEADER):
        reason = f"it was packed by Python {data[5]}.{data[6]}, and this node runs Python {here}"
    else:
        reason = "these bytes were not packed by this version of tfos_lab"
    return PayloadError(
        name="the function",
        type_name="payload",
        reason=reason,
        advice="Give the nodes the notebook's environment: point spark.pyspark.python at the same Python",
    )


# ---- what a function captures ---------------------------------------------------------------------------------------


class CapturedValue(NamedTuple):
    """A value, the name that leads to it (``config['session']``), and the functions through which it is reached."""

    path: str
    value: Any
    via: tuple[str, ...] = ()


def captured_values(map_fun: Callable[..., Any], args: Any) -> list[CapturedValue]:
    """Return what is sent with ``map_fun``: the values of the names that it uses, and ``args``; not what they hold."""
    return [*_captured_by(map_fun, ()), CapturedValue("args", args)]


def _innermost(captured: CapturedValue, seen: set[int]) -> CapturedValue:
    """Return the innermost value with a name that cannot be pickled, within one that cannot."""
    seen.add(id(captured.value))
    if unpicklable_kind(captured.value):
        return captured
    for child in _children(captured):
        if id(child.value) not in seen and _failure(child.value):
            return _innermost(child, seen)
    return captured


def _children(captured: CapturedValue) -> Iterator[CapturedValue]:
    path, value, via = captured
    if isinstance(value, types.FunctionType | types.MethodType | functools.partial):
        yield from _captured_by(value, via)
    elif isinstance(value, dict):
        yield from (CapturedValue(f"{path}[{key!r}]", item, via) for key, item in value.items())
    elif isinstance(value, list | tuple):
        yield from (CapturedValue(f"{path}[{index}]", item, via) for index, item in enumerate(value))
    else:
        attributes = dict(getattr(value, "__dict__", None) or {})
        yield from (CapturedValue(f"{path}.{name}", item, via) for name, item in attributes.items())


def _captured_by(function: Callable[..., Any], via: tuple[str, ...]) -> Iterator[CapturedValue]:
    """Yield what a callable captures; ``via`` are the functions that lead to it, from the outermost on."""
    if isinstance(function, functools.partial):
        yield from _captured_by(function.func, via)
        values = {f"args[{index}]": item for index, item in enumerate(function.args)} | function.keywords
        yield from (CapturedValue(name, item, (*via, "partial")) for name, item in values.items())
    elif isinstance(function, types.MethodType):
        yield from _captured_by(function.__func__, via)
        yield CapturedValue("self", function.__self__, (*via, function.__func__.__name__))
    elif isinstance(function, types.FunctionType):
        inner = (*via, function.__name__)
        yield from (CapturedValue(name, item, inner) for name, item in _values_by_name(function).items())
    else:
        yield CapturedValue(type(function).__name__, function, via)


def _values_by_name(function: types.FunctionType) -> dict[str, Any]:
    """Return the globals, closure cells and defaults of a function."""
    values = {
        name: function.__globals__[name] for name in global_names(function.__code__) if name in function.__globals__
    }
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        with contextlib.suppress(ValueError):  # a name that is not bound yet
            values[name] = cell.cell_contents
    parameters = inspect.signature(function, follow_wrapped=False).parameters
    return values | {name: one.default for name, one in parameters.items() if one.default is not one.empty}


def global_names(code: types.CodeType) -> list[str]:
    """Return the global names that a code object and the code inside it read or write, in order of appearance."""
    instructions = (one for inner in sources.codes_in(code) for one in dis.get_instructions(inner))
    return list(dict.fromkeys(str(one.argval) for one in instructions if one.opname.endswith("_GLOBAL")))
