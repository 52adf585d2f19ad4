"""The output of the command line: lines, a status line that changes, and colours where a terminal shows them."""

from __future__ import annotations

import os
import re
import shutil
import sys
from typing import TextIO

_COLOURS = {"red": "31", "green": "32", "dim": "2", "bold": "1"}
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def echo(text: str = "") -> None:
    """Write a line to standard output."""
    sys.stdout.write(_fit(f"{text}\n", sys.stdout))
    sys.stdout.flush()


def echo_error(text: str) -> None:
    """Write a line to standard error."""
    sys.stderr.write(_fit(f"{text}\n", sys.stderr))
    sys.stderr.flush()


def paint(text: str, colour: str) -> str:
    """Return the text in a colour; `echo` and `echo_error` remove it where it cannot be shown."""
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def without_colours(text: str) -> str:
    """Return the text without colours."""
    return _ANSI.sub("", text)


class StatusLine:
    """A last line that changes until it is finished; where there is no terminal, only the finished line is written."""

    def __init__(self) -> None:
        self._live = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"

    def show(self, text: str) -> None:
        """Show what happens now."""
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            sys.stdout.write(f"\r\x1b[K{without_colours(text)[:width]}")
            sys.stdout.flush()

    def finish(self, text: str) -> None:
        """Replace it by a line that remains."""
        self.clear()
        echo(text)

    def clear(self) -> None:
        """Remove it."""
        if self._live:
            sys.stdout.write("\r\x1b[K")


def _fit(text: str, stream: TextIO) -> str:
    if not stream.isatty() or os.environ.get("NO_COLOR"):
        text = without_colours(text)
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)
