"""The kernel that this code runs in, if any, whether somebody watches its cells, and what Spark writes below them."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

NONINTERACTIVE = "TFOS_LAB_NONINTERACTIVE"
WIDGETS = "TFOS_LAB_WIDGETS"

# Spark's progress bar for consoles: bars, each over the one before it, and blanks over the last one.
_BARS = re.compile(r"\r?(?:\[Stage \d+:[=> ]*\(\d+ \+ \d+\) / \d+\] *)+\r?|\r +\r")


def current_kernel() -> Any | None:
    """Return the ipykernel that runs this code, or None."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None)


def kernel_id() -> str:
    """Return the id by which the Jupyter server knows this kernel, from the name of its connection file."""
    if current_kernel() is None:
        return ""
    from ipykernel.connect import get_connection_file

    try:
        name = Path(get_connection_file()).stem
    except (RuntimeError, OSError):
        return ""
    return name.removeprefix("kernel-") if name.startswith("kernel-") else ""


def has_front_end() -> bool:
    """Return whether somebody looks at this cell.

    There is none when ``TFOS_LAB_NONINTERACTIVE`` is set (to anything but ``0``), outside a Jupyter kernel (a script, a
    terminal), and where the kernel's client does not take input: nbclient, and therefore papermill and ``nbconvert
    --execute``, send ``allow_stdin=False`` with every cell; front ends used by a person send true.
    """
    if os.environ.get(NONINTERACTIVE, "0") not in ("", "0"):
        return False
    kernel = current_kernel()
    return kernel is not None and takes_input(kernel)


def may_use_widgets() -> bool:
    """Return whether the front end is not said to have no widgets, by ``TFOS_LAB_WIDGETS=0``: it cannot be asked."""
    return os.environ.get(WIDGETS, "1") != "0"


def takes_input(kernel: Any) -> bool:
    """Return whether somebody can type where the cell that runs now was started."""
    try:
        content = kernel.get_parent()["content"]
    except (AttributeError, KeyError, LookupError, TypeError):
        return True
    return bool(content.get("allow_stdin", True))


class NoProgressBars:
    """Leaves out what Spark's progress bar writes below the cell that runs now, until it is closed.

    The card counts Spark's tasks. The bar is wiped away with blanks at its end: they would be an empty red strip.
    """

    def __init__(self, kernel: Any) -> None:
        self._stream = sys.stderr if hasattr(sys.stderr, "register_hook") else None
        self._cell = _cell_of(kernel)
        self._change("register_hook")

    def close(self) -> None:
        """Let everything through again."""
        self._change("unregister_hook")

    def _change(self, name: str) -> None:
        # Hooks belong to the thread that sends.
        if self._stream is not None and self._cell:
            stream: Any = self._stream
            stream.flush()
            stream.pub_thread.schedule(lambda: getattr(stream, name)(self._filter))

    def _filter(self, message: dict[str, Any]) -> dict[str, Any] | None:
        if message.get("parent_header", {}).get("msg_id") != self._cell:
            return message
        content = message["content"]
        rest = _BARS.sub("", content["text"])
        return {**message, "content": {**content, "text": rest}} if rest.strip("\r") else None


def _cell_of(kernel: Any) -> str:
    try:
        return str(kernel.get_parent("shell")["header"]["msg_id"])
    except (AttributeError, KeyError, LookupError, TypeError):
        return ""
