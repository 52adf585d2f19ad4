"""Parses Python source in one of several threads."""

from __future__ import annotations

import ast
import threading

_lock = threading.Lock()
_TRIES = 10


def parse(source: str | bytes, path: str) -> ast.Module:
    """Return the syntax tree of a module, as `ast.parse` does.

    Python 3.11 keeps one count of depths for all threads while it makes a tree, and raises SystemError where two of
    them have made one at the same time (https://github.com/python/cpython/issues/106905). Ours wait for one another;
    for those of others, this is tried again.
    """
    for _ in range(_TRIES - 1):
        try:
            with _lock:
                return ast.parse(source, path)
        except SystemError:
            continue
    return ast.parse(source, path)
