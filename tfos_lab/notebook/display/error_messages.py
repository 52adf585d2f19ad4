"""How errors and warnings of tfos_lab look in a notebook: a sentence for what the user can fix, the remote traceback.

The driver raises ordinary exceptions. Loading the extension adds IPython's rendering hook to their classes.
"""

from __future__ import annotations

import linecache
import logging
import re
import sys
import threading
import traceback
from typing import Any

from tfos_lab.core import sources
from tfos_lab.errors import ClusterInterrupted, ConfigError, NodeFailed, TfosError
from tfos_lab.notebook.cell.function import CellSyntaxError
from tfos_lab.texts import first_line

# If an exception has this method, IPython calls it for the lines to show.
_HOOK = "_render_traceback_"
_RED = "\x1b[31m"
_PLAIN = "\x1b[39m"
_INDENT = "  "


def install(shell: Any) -> None:
    """Make the shell render our errors with `render_error`; may be called twice."""
    for kind in (TfosError, ClusterInterrupted):
        setattr(kind, _HOOK, render_error)
    previous, show_previous = shell.custom_exceptions, shell.CustomTB
    if CellSyntaxError in previous:
        return

    def show(shell: Any, kind: Any, error: Any, tb: Any, tb_offset: Any = None) -> Any:
        if isinstance(error, CellSyntaxError):
            shell.showsyntaxerror()  # without the frames of the magic
            return None
        return show_previous(kind, error, tb, tb_offset=tb_offset)

    shell.set_custom_exc((*previous, CellSyntaxError), show)


def render_error(error: BaseException) -> list[str]:
    """Return the lines that a notebook shows for one of our errors."""
    return [*error_lines(error), *_own_lines(error)]


def error_lines(error: BaseException) -> list[str]:
    """Return what one of our errors says, the same before and after it has been raised."""
    match error:
        case NodeFailed():
            return _node_failed(error)
        case ConfigError(problems=problems) if len(problems) > 1:
            headline = _headline("ConfigError", f"{len(problems)} problems")
            return [headline, *(f"{_INDENT}• {problem}" for problem in problems)]
        case ClusterInterrupted():
            return [_headline("KeyboardInterrupt", str(error))]
        case _:
            return [_headline(type(error).__name__, str(error))]


def _node_failed(error: NodeFailed) -> list[str]:
    """Return the traceback of the first node that failed, and a line for the nodes that failed because of it."""
    nodes = _listed([error.node, *error.also])
    lines = [_headline(type(error).__name__, f"{nodes} failed")]
    told = f"{error.kind}: {error.message}" if error.message else error.kind
    # TensorFlow and Keras say where it was before what it was.
    if first_line(told) not in error.traceback or error.has_stacks:
        lines[0] += f": {told}"
    if error.traceback:
        *above, last = error.traceback.rstrip().split("\n")
        # The exception's name is coloured where the last line begins with it.
        if named := re.match(rf"(?:[\w.]+\.)?{re.escape(error.kind)}(?=$|:)", last):
            last = f"{_RED}{named[0]}{_PLAIN}{last[named.end() :]}"
        lines += ["", *above, last]
    elif error.log_tail:
        lines += [
            "",
            f"last lines of {error.node}:",
            *(f"{_INDENT}{line}" for line in error.log_tail.rstrip().split("\n")),
        ]
    if error.consequences:
        lines += ["", f"{_listed(sorted(error.consequences))} ended because {error.node} was gone."]
    return lines


def _own_lines(error: BaseException) -> list[str]:
    """Return the lines of the notebook that led to the error, except the ``%%tfos`` line itself."""
    lines = []
    for frame in traceback.extract_tb(error.__traceback__):
        label = sources.label(frame.filename)
        text = linecache.getline(frame.filename, frame.lineno or 0).strip()
        if label and text and not text.startswith(("# %%tfos", "get_ipython()")):
            name = "" if frame.name == "<module>" else f", in {frame.name}"
            lines += [f"{_INDENT}{label}, line {frame.lineno}{name}", f"{_INDENT * 2}{text}"]
    return ["", *lines] if lines else []


def _headline(name: str, text: str) -> str:
    return f"{_RED}{name}{_PLAIN}: {text}"


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


# ---- warnings --------------------------------------------------------------------------------------------------------


class CellHandler(logging.Handler):
    """Writes the records of the main thread to the cell, and no others."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, if it comes from the main thread and no other handler writes it."""
        if threading.current_thread() is threading.main_thread() and not logging.getLogger().handlers:
            sys.stderr.write(f"{self.format(record)}\n")


def show_warnings() -> None:
    """Add the handler to our loggers; may be called twice."""
    hide_warnings()
    logging.getLogger("tfos_lab").addHandler(CellHandler(logging.WARNING))


def hide_warnings() -> None:
    """Remove the handler."""
    logger = logging.getLogger("tfos_lab")
    for handler in list(logger.handlers):
        if isinstance(handler, CellHandler):
            logger.removeHandler(handler)
