"""There is no keyboard on a node: reading from stdin and the debugger raise an error that says what to do instead."""

from __future__ import annotations

import bdb
import io
import os
import sys
from typing import Any

from tfos_lab.errors import NoKeyboard


class NoInput(io.TextIOWrapper):
    """Standard input that refuses to be read by lines, as `input` does; reading it whole returns nothing, as usual."""

    def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]  # noqa: ARG002 - as in Python
        """Refuse: an empty line would surface as an EOFError without an explanation."""
        raise NoKeyboard(asked="input()")

    def __next__(self) -> str:  # type: ignore[override]  # as TextIOWrapper itself does
        raise StopIteration


def disable() -> None:
    """Make ``input()`` and ``breakpoint()`` raise `NoKeyboard` in this process."""
    sys.stdin = NoInput(io.FileIO(0, "r", closefd=False), encoding="utf-8")
    original_hook = sys.breakpointhook

    def refuse(*args: Any, **kwargs: Any) -> Any:
        if os.environ.get("PYTHONBREAKPOINT"):
            return original_hook(*args, **kwargs)  # a remote debugger, or none at all
        raise NoKeyboard(asked="breakpoint()")

    sys.breakpointhook = refuse


def explained(error: BaseException) -> BaseException:
    """Return the error to report: a debugger that quits for want of a keyboard is explained by `NoKeyboard`."""
    if isinstance(error, bdb.BdbQuit):
        return NoKeyboard(asked="the debugger").with_traceback(error.__traceback__)
    return error
