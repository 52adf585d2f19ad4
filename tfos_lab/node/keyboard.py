"""Input on a node, where nobody can type: whoever asks for some is told what to do instead."""

from __future__ import annotations

import bdb
import io
import os
import sys
from typing import Any

from tfos_lab.errors import NoKeyboard


class NoInput(io.TextIOWrapper):
    """Standard input without a line in it; `input` reads lines. Without content, as ever, for those who read it all."""

    def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]  # noqa: ARG002 - as in Python
        """Refuse: an empty line would come out as an EOFError that says nothing."""
        raise NoKeyboard(asked="input()")

    def __next__(self) -> str:  # type: ignore[override]  # as TextIOWrapper itself does
        raise StopIteration


def take_away() -> None:
    """Have this process know of no keyboard."""
    sys.stdin = NoInput(io.FileIO(0, "r", closefd=False), encoding="utf-8")
    own = sys.breakpointhook

    def refuse(*args: Any, **named: Any) -> Any:
        if os.environ.get("PYTHONBREAKPOINT"):
            return own(*args, **named)  # one that listens elsewhere, or none at all
        raise NoKeyboard(asked="breakpoint()")

    sys.breakpointhook = refuse


def explained(error: BaseException) -> BaseException:
    """Return what is to be said of an error: of a debugger's that found nobody at the keyboard, the reason."""
    if isinstance(error, bdb.BdbQuit):
        return NoKeyboard(asked="the debugger").with_traceback(error.__traceback__)
    return error
