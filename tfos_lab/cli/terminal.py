"""What the command line writes: lines, a line that is still changing, and a little colour where a terminal shows it."""

from __future__ import annotations

import os
import re
import shutil
import sys
from typing import TextIO

_COLOURS = {"red": "31", "green": "32", "dim": "2", "bold": "1"}
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def say(text: str = "") -> None:
    """Write a line to standard output."""
    sys.stdout.write(_fit(f"{text}\n", sys.stdout))
    sys.stdout.flush()


def complain(text: str) -> None:
    """Write a line to standard error."""
    sys.stderr.write(_fit(f"{text}\n", sys.stderr))
    sys.stderr.flush()


def paint(text: str, colour: str) -> str:
    """Return the text in a colour; `say` and `complain` take it out where it would not be seen."""
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def plain(text: str) -> str:
    """Return the text without colours."""
    return _ANSI.sub("", text)


class StatusLine:
    """The last line of a terminal, which changes until it is finished; elsewhere only finished lines are written."""

    def __init__(self) -> None:
        self._live = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"

    def show(self, text: str) -> None:
        """Show what is happening now."""
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            sys.stdout.write(f"\r\x1b[K{plain(text)[:width]}")
            sys.stdout.flush()

    def finish(self, text: str) -> None:
        """Replace it by a line that stays."""
        self.clear()
        say(text)

    def clear(self) -> None:
        """Take it away."""
        if self._live:
            sys.stdout.write("\r\x1b[K")


def _fit(text: str, stream: TextIO) -> str:
    """Return the text as the stream can show it."""
    if not stream.isatty() or os.environ.get("NO_COLOR"):
        text = plain(text)
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)
