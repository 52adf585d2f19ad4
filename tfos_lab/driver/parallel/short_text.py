"""Arguments of runs as texts that fit into a table."""

from __future__ import annotations

import itertools
import reprlib
from collections.abc import Mapping
from typing import Any

_SHOWN_CHARS = 60


class _Short(reprlib.Repr):
    """Texts of arguments, short enough for a table."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = _SHOWN_CHARS
        self.maxdict = self.maxlist = self.maxtuple = 8


_short = _Short()


def short(args: Any) -> str:
    """Return an argument in short: options as ``lr=0.1, units=64``, others as Python shows them."""
    fields = args if isinstance(args, Mapping) else getattr(args, "__dict__", None)
    if fields and all(isinstance(key, str) for key in fields):
        text = ", ".join(f"{key}={_short.repr(value)}" for key, value in itertools.islice(fields.items(), 8))
    elif args is None:
        text = ""
    else:
        text = _short.repr(args)
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARS else line[: _SHOWN_CHARS - 1] + "…"
