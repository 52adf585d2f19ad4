"""What a function takes along when it travels: the names it captures, and where in them a value lies.

Used by `payload` only when packing has failed or the payload is too large, to say whose fault it is.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tfos_lab.payload.unpicklable import refusal


class CapturedValue(NamedTuple):
    """A value, the name that leads to it (``config['session']``), and the functions through which it is reached."""

    path: str
    value: Any
    via: tuple[str, ...] = ()


def closure_of(map_fun: Any, args: Any) -> list[CapturedValue]:
    """Return what travels with ``map_fun``: its captured names and ``args``, outermost only."""
    return [*_closure_of(map_fun, ()), CapturedValue("args", args)]


def find_culprit(map_fun: Any, args: Any, travels: Callable[[Any], bool]) -> CapturedValue | None:
    """Return the innermost value that does not travel and has a name, or None if each one travels alone."""
    seen: set[int] = set()
    for capture in closure_of(map_fun, args):
        if not travels(capture.value):
            return _descend(capture, travels, seen)
    return None


def _descend(capture: CapturedValue, travels: Callable[[Any], bool], seen: set[int]) -> CapturedValue:
    seen.add(id(capture.value))
    if refusal(capture.value):
        return capture
    for child in _children(capture):
        if id(child.value) not in seen and not travels(child.value):
            return _descend(child, travels, seen)
    return capture


def _children(capture: CapturedValue) -> Iterator[CapturedValue]:
    path, value, via = capture
    if isinstance(value, types.FunctionType | types.MethodType | functools.partial):
        yield from _closure_of(value, via)
    elif isinstance(value, dict):
        yield from (CapturedValue(f"{path}[{key!r}]", item, via) for key, item in value.items())
    elif isinstance(value, list | tuple):
        yield from (CapturedValue(f"{path}[{index}]", item, via) for index, item in enumerate(value))
    elif isinstance(value, set | frozenset):
        yield from (CapturedValue(f"an element of {path}", item, via) for item in value)
    else:
        yield from (CapturedValue(f"{path}.{name}", item, via) for name, item in _attributes(value))


def _closure_of(callable_: Any, via: tuple[str, ...]) -> Iterator[CapturedValue]:
    """Yield what a callable captures; ``via`` are the functions on the way to it, the outermost left out."""
    if isinstance(callable_, functools.partial):
        yield from _closure_of(callable_.func, via)
        values = {f"args[{index}]": item for index, item in enumerate(callable_.args)} | callable_.keywords
        yield from (CapturedValue(name, item, (*via, "partial")) for name, item in values.items())
    elif isinstance(callable_, types.MethodType):
        yield from _closure_of(callable_.__func__, via)
        yield CapturedValue("self", callable_.__self__, (*via, callable_.__func__.__name__))
    elif isinstance(callable_, types.FunctionType):
        inner = (*via, callable_.__name__)
        yield from (CapturedValue(name, item, inner) for name, item in _names_of(callable_).items())
    else:
        yield CapturedValue(type(callable_).__name__, callable_, via)


def _names_of(function: types.FunctionType) -> dict[str, Any]:
    names: dict[str, Any] = {}
    space = function.__globals__
    for name in global_names(function.__code__):
        if name in space:
            names[name] = space[name]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            names[name] = cell.cell_contents
        except ValueError:
            continue  # not yet bound
    defaults = function.__defaults__ or ()
    with_default = function.__code__.co_varnames[: function.__code__.co_argcount][-len(defaults) or None :]
    names.update(zip(with_default, defaults, strict=False))
    names.update(function.__kwdefaults__ or {})
    return names


def global_names(code: types.CodeType) -> list[str]:
    """Return the global names that a code object and all code within it read or write, in order of appearance."""
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
