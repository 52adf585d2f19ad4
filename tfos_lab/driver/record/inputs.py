"""The plain values that a run was started with: what makes two runs of the same cell differ.

They are the numbers and short texts in ``args``, and those behind the names that the function uses. Other values are
left out, and so are texts whose names look like those of passwords and keys.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tfos_lab.core.payload import captured_values
from tfos_lab.texts import encodable

Plain = bool | int | float | str | None

MAX_INPUTS = 200
HIDDEN = "(not recorded)"

_MAX_DEPTH = 3
_MAX_TEXT = 200
_MAX_ITEMS = 50
# JSON of larger ones cannot be read by everybody.
_MAX_WHOLE = 1 << 53
_SECRET = re.compile(
    r"passw|passphrase|secret|token|credential|api_?key|access_?key|private_?key|auth(?!or)", re.IGNORECASE
)


_WORD = rf"[\w-]*(?:{_SECRET.pattern})[\w-]*"
# In code or JSON, with quotes; and as environments are printed.
_GIVEN = re.compile(
    rf"""({_WORD}["']?\s*[=:]\s*)("[^"\n]*"|'[^'\n]*')|(\b(?=[A-Z0-9_]+=){_WORD}=)(\S+)""", re.IGNORECASE
)


def hide_secrets(text: str) -> str:
    """Return code, or what was printed, without the values that are given to names like those of passwords and keys.

    Examples
    --------
    >>> hide_secrets("password = 'abc'; tokens = count(words)")
    'password = (not recorded); tokens = count(words)'
    """
    return _GIVEN.sub(lambda found: f"{found[1] or found[3]}{HIDDEN}", text)


def plain_inputs(map_fun: Callable[..., Any], args: Any) -> dict[str, Plain]:
    """Return the plain values that a call of ``map_fun`` depends on.

    Names are such as ``"args.lr"``, or ``"LR"`` for a name of the notebook; there are at most 200 of them.

    Examples
    --------
    >>> plain_inputs(print, {"lr": 0.1, "layers": [64, 10]})
    {'args.lr': 0.1, 'args.layers': '[64, 10]'}
    """
    found: dict[str, Plain] = {}
    for captured in captured_values(map_fun, args):
        # What a function inside the function captures has a name of its own there.
        with contextlib.suppress(Exception):  # a value of the user's own class may raise anything
            for name, value in _flat(captured.path, captured.value, _MAX_DEPTH):
                if len(found) < MAX_INPUTS:
                    found.setdefault(encodable(name), value)
    return found


def plain_params(params: Mapping[str, Any]) -> dict[str, Plain]:
    """Return parameters as plain values: those of other types in the words in which Python shows them."""
    return {name: _param(name, value) for name, value in list(params.items())[:MAX_INPUTS]}


def _param(name: str, value: Any) -> Plain:
    plain = _plain(value)
    if isinstance(plain, str) and _SECRET.search(name):
        return HIDDEN
    return repr(value)[:_MAX_TEXT] if plain is None and value is not None else plain


def _flat(name: str, value: Any, depth: int) -> Iterator[tuple[str, Plain]]:
    fields = _fields(value) if depth else None
    if fields is not None:
        for key, item in fields.items():
            yield from _flat(f"{name}.{key}", item, depth - 1)
    elif value is not None and (plain := _plain(value)) is not None:
        hidden = isinstance(plain, str) and _SECRET.search(name)
        yield name, HIDDEN if hidden else plain


def _fields(value: Any) -> Mapping[str, Any] | None:
    """Return the fields of a dict, a dataclass or a namespace, such as argparse's; None for other values."""
    if isinstance(value, Mapping):
        return value if all(isinstance(key, str) for key in value) else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    is_namespace = type(value).__name__ in ("Namespace", "SimpleNamespace")
    return vars(value) if is_namespace else None


def _plain(value: Any) -> Plain:
    """Return a number or text, a short list as text, and None for values of other types."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _MAX_WHOLE:
        return str(value)[:_MAX_TEXT]
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return encodable(value[:_MAX_TEXT])
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray) and 0 < len(value) <= _MAX_ITEMS:
        return repr(value)[:_MAX_TEXT] if None not in map(_plain, value) else None
    # NumPy's scalars, without importing NumPy.
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        return _plain(value.item())
    return None
