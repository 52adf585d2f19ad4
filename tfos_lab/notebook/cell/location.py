"""Where a cell's code is, for tracebacks and debuggers: its file name, its lines, and its label.

To IPython a ``%%tfos`` cell is one line, a call of the magic. Here the text as typed is registered under the file name
that tracebacks, breakpoints and ``%debug`` use, so that line 1 is the ``%%tfos`` line.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

_NUMBER = re.compile(r"In\[(\d+)\]")


class CellText(NamedTuple):
    """A cell as typed: its file name in code objects, the number of lines before its body, and the body."""

    filename: str
    lines_before: int
    body: str

    @property
    def padded(self) -> str:
        """The body at its own line numbers, below empty lines."""
        return "\n" * self.lines_before + self.body


def register_cell(shell: Any, line: str, body: str) -> CellText:
    """Register the text of the cell that runs now for tracebacks and debuggers."""
    code = body.rstrip("\n")
    for text in _typed_texts(shell):
        above = text.rstrip("\n").removesuffix(code)
        if above != text.rstrip("\n") and "%%tfos" in above:
            break
    else:
        above = f"%%tfos {line}".rstrip() + "\n"
        text = above + body
    # The kernel, and a front end that sets a breakpoint, derive the file name from the raw text.
    filename = shell.compile.cache(text, cell_number(shell), raw_code=text)
    return CellText(filename, above.count("\n"), body)


def _typed_texts(shell: Any) -> Iterator[str]:
    """Yield candidates for the whole text of the cell: from the front end's request, and from the history."""
    kernel = getattr(shell, "kernel", None)
    if kernel is not None:
        yield str(kernel.get_parent().get("content", {}).get("code", ""))
    if shell.history_manager and shell.history_manager.input_hist_raw:
        yield str(shell.history_manager.input_hist_raw[-1])


def typed_cell(shell: Any) -> str:
    """Return what is the same when the cell that runs now runs again: its identity in the front end, else its text."""
    kernel = getattr(shell, "kernel", None)
    known = kernel.get_parent().get("metadata", {}).get("cellId", "") if kernel is not None else ""
    return str(known or next(_typed_texts(shell), ""))


def cell_number(shell: Any) -> int:
    """Return the number of the cell that runs now; some versions of IPython have already increased their count."""
    frame = inspect.currentframe()
    while frame is not None:
        named = shell.compile.format_code_name(frame.f_code.co_filename)
        found = _NUMBER.fullmatch(named[1]) if named else None
        if found:
            return int(found[1])
        frame = frame.f_back
    return int(shell.execution_count)


def make_labeller(shell: Any) -> Callable[[str], str | None]:
    """Return a function that labels file names of the shell's cells, such as ``Cell In[5]``."""

    def label(filename: str) -> str | None:
        named = shell.compile.format_code_name(filename)
        return " ".join(named) if named else None

    return label
