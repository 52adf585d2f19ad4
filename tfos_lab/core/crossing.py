"""Carries errors of tfos_lab across Spark, TensorFlow and the wire of rows, type and fields included.

These pass on an error as text only, and wrap it into their own: Java stack traces, op errors. So the
sender adds a token to the text, such as ``[tfos_lab:FeedError:eNqrVi...]``: the type, and the fields in letters that no
wrapper escapes. What a person reads in Spark's UI or in a log is the usual traceback, with the token on the line below.

- Code that Spark or TensorFlow calls raises inside `crossing`, or is wrapped by `carrying`. `core.code_archive` does so
  for everything that runs in Spark's Python workers.
- A node sends `to_text` to a Spark task (`tfos_lab.node.feed.wire`).
- The receiver calls `own_error_in`.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import re
import zlib
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar, cast

from tfos_lab import errors
from tfos_lab.errors import TfosError
from tfos_lab.texts import shorten

P = ParamSpec("P")
T = TypeVar("T")

_TOKEN = re.compile(r"\[tfos_lab:(\w+):([\w-]+)\]", re.ASCII)
# Long ones fill logs that others read.
_MAX_TEXT = 1000
# A token is some hundred bytes; what unpacks to more than this was not made here.
_MAX_FIELDS_BYTES = 1 << 20


def to_text(error: TfosError) -> str:
    """Return the error as one text: its type, its message (shortened if very long), and the token."""
    return f"{type(error).__name__}: {shorten(str(error), _MAX_TEXT)} {_token(error)}"


def own_error_in(error: BaseException | str) -> TfosError | None:
    """Return the error of tfos_lab that ``error`` is or carries in its text, or None if there is none.

    A text is not trusted: nothing in it is run, and a token that makes no sense is passed over.
    """
    if isinstance(error, TfosError):
        return error
    found = (_decode(kind, fields) for kind, fields in _TOKEN.findall(str(error)))
    return next((own for own in found if own is not None), None)


@contextlib.contextmanager
def crossing() -> Iterator[None]:
    """Add the token to errors of tfos_lab that leave this block, as a note below their message."""
    try:
        yield
    except TfosError as error:
        token = _token(error)
        if token not in getattr(error, "__notes__", ()):
            error.add_note(token)
        raise


def carrying(function: Callable[P, T]) -> Callable[P, T]:
    """Return the function with calls of it inside `crossing`, and iterations over what it returns, if an iterator."""
    if isinstance(function, type):
        return function

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with crossing():
            result = function(*args, **kwargs)
        return cast("T", _iterate(result)) if isinstance(result, Iterator) else result

    return call


def _iterate(items: Iterator[object]) -> Iterator[object]:
    with crossing():
        yield from items


def _token(error: TfosError) -> str:
    fields = {name: _shortened(value) for name, value in vars(error).items() if name != "__notes__"}
    data = zlib.compress(json.dumps(fields, default=str).encode())
    return f"[tfos_lab:{type(error).__name__}:{base64.urlsafe_b64encode(data).decode().rstrip('=')}]"


def _decode(kind: str, token: str) -> TfosError | None:
    # Any of these may fail for a token that was cut off or made up, and a field may be missing from the message.
    with contextlib.suppress(Exception):
        data = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        fields = json.loads(zlib.decompressobj().decompress(data, _MAX_FIELDS_BYTES))
        error_type = getattr(errors, kind)
        if issubclass(error_type, TfosError):
            error: TfosError = error_type(**fields)
            str(error)
            return error
    return None


def _shortened(value: object) -> object:
    """Shorten the texts in a field, also those inside its lists and dicts."""
    if isinstance(value, str):
        return shorten(value, _MAX_TEXT)
    if isinstance(value, list | tuple):
        return [_shortened(item) for item in value]
    if isinstance(value, dict):
        return {key: _shortened(item) for key, item in value.items()}
    return value
