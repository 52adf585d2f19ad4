"""Where a cell's text lies in the notebook: its made-up file name, its lines, and its label.

IPython knows a ``%%tfos`` cell as one line, a call of the magic. Here the text as typed is registered under the name
that tracebacks, breakpoints and ``%debug`` use, so that line 1 is the ``%%tfos`` line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple


class CellText(NamedTuple):
    """A cell as it was typed: its file name in code objects, the lines before its body, and the body."""

    filename: str
    lines_before: int
    body: str

    @property
    def padded(self) -> str:
        """The body at its own line numbers, with nothing above it."""
        return "\n" * self.lines_before + self.body


def register_cell(shell: Any, line: str, body: str) -> CellText:
    """Make the text of the cell that runs now known to tracebacks and debuggers."""
    code = body.rstrip("\n")
    for text in _typed_texts(shell):
        above = text.rstrip("\n").removesuffix(code)
        if above != text.rstrip("\n") and "%%tfos" in above:
            break
    else:
        above = f"%%tfos {line}".rstrip() + "\n"
        text = above + body
    # The kernel derives the name from the raw text, and so does the front end that sets a breakpoint.
    filename = shell.compile.cache(text, shell.execution_count, raw_code=text)
    return CellText(filename, above.count("\n"), body)


def _typed_texts(shell: Any) -> Iterator[str]:
    """Yield what may be the whole text of the cell: as the front end sent it, and as the history has it."""
    kernel = getattr(shell, "kernel", None)
    if kernel is not None:
        yield str(kernel.get_parent().get("content", {}).get("code", ""))
    if shell.history_manager and shell.history_manager.input_hist_raw:
        yield str(shell.history_manager.input_hist_raw[-1])


def make_labeller(shell: Any) -> Callable[[str], str | None]:
    """Return a function that says ``Cell In[5]`` for the file names of the shell's cells."""

    def label(filename: str) -> str | None:
        named = shell.compile.format_code_name(filename)
        return " ".join(named) if named else None

    return label
