"""The values that a function captures, and which value inside them cannot be pickled.

`packing` asks only when it has failed, or when the payload is too large, to name what is to blame.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tfos_lab.payload.unpicklable import unpicklable_kind


class CapturedValue(NamedTuple):
    """A value, the name that leads to it (``config['session']``), and the functions through which it is reached."""

    path: str
    value: Any
    via: tuple[str, ...] = ()


def captured_values(map_fun: Callable[..., Any], args: Any) -> list[CapturedValue]:
    """Return what is sent with ``map_fun``: the values of the names that it uses, and ``args``; not what they hold."""
    return [*_captured_by(map_fun, ()), CapturedValue("args", args)]


def find_culprit(map_fun: Callable[..., Any], args: Any, is_picklable: Callable[[Any], bool]) -> CapturedValue | None:
    """Return the innermost value with a name that cannot be pickled, or None if each one can by itself."""
    seen: set[int] = set()
    for captured in captured_values(map_fun, args):
        if not is_picklable(captured.value):
            return _innermost(captured, is_picklable, seen)
    return None


def _innermost(captured: CapturedValue, is_picklable: Callable[[Any], bool], seen: set[int]) -> CapturedValue:
    seen.add(id(captured.value))
    if unpicklable_kind(captured.value):
        return captured
    for child in _children(captured):
        if id(child.value) not in seen and not is_picklable(child.value):
            return _innermost(child, is_picklable, seen)
    return captured


def _children(captured: CapturedValue) -> Iterator[CapturedValue]:
    path, value, via = captured
    if isinstance(value, types.FunctionType | types.MethodType | functools.partial):
        yield from _captured_by(value, via)
    elif isinstance(value, dict):
        yield from (CapturedValue(f"{path}[{key!r}]", item, via) for key, item in value.items())
    elif isinstance(value, list | tuple):
        yield from (CapturedValue(f"{path}[{index}]", item, via) for index, item in enumerate(value))
    elif isinstance(value, set | frozenset):
        yield from (CapturedValue(f"an element of {path}", item, via) for item in value)
    else:
        yield from (CapturedValue(f"{path}.{name}", item, via) for name, item in _attributes(value))


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
    defaults = function.__defaults__ or ()
    with_default = function.__code__.co_varnames[: function.__code__.co_argcount][-len(defaults) or None :]
    values.update(zip(with_default, defaults, strict=False))
    values.update(function.__kwdefaults__ or {})
    return values


def global_names(code: types.CodeType) -> list[str]:
    """Return the global names that a code object and the code inside it read or write, in order of appearance."""
    names: dict[str, None] = {}
    for instruction in dis.get_instructions(code):
        if instruction.opname.endswith("_GLOBAL"):
            names[str(instruction.argval)] = None
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names.update(dict.fromkeys(global_names(constant)))
    return list(names)


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    found = dict(getattr(value, "__dict__", None) or {})
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__"):
                with contextlib.suppress(AttributeError):  # a slot that is not set
                    found[name] = getattr(value, name)
    yield from found.items()
