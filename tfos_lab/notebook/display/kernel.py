"""The kernel that this code runs in, if any: who watches its cells, what it announces, and what its server shows.

Everything that this package asks of ipykernel and of the Jupyter server's files is here.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tfos_lab.core import cluster_records

NONINTERACTIVE = "TFOS_LAB_NONINTERACTIVE"
WIDGETS = "TFOS_LAB_WIDGETS"
# VS Code's Jupyter extension defines this name in each kernel before the first cell; Colab's kernels have this module.
_VS_CODE = "__vsc_ipynb_file__"
_COLAB = "google.colab"
# The Jupyter server sets it to the path of the notebook that the kernel was started for.
_NOTEBOOK = "JPY_SESSION_NAME"

# Spark's progress bar for consoles: bars, each over the one before it, and blanks over the last one.
_BARS = re.compile(r"\r?(?:\[Stage \d+:[=> ]*\(\d+ \+ \d+\) / \d+\] *)+\r?|\r +\r")


def current_kernel() -> Any | None:
    """Return the ipykernel that runs this code, or None."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None)


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
    """Return whether the front end shows widgets, which it cannot be asked: by default, all do but VS Code and Colab.

    These fetch a widget's code from the internet, after asking, and show an error where they may not.
    ``TFOS_LAB_WIDGETS`` says otherwise: ``0`` for none, ``1`` for widgets there, too.
    """
    chosen = os.environ.get(WIDGETS)
    if chosen:
        return chosen != "0"
    kernel = current_kernel()
    return kernel is None or (_VS_CODE not in kernel.shell.user_ns and _COLAB not in sys.modules)


def takes_input(kernel: Any) -> bool:
    """Return whether somebody can type where the cell that runs now was started."""
    try:
        content = kernel.get_parent()["content"]
    except (AttributeError, LookupError, TypeError):
        return True
    return bool(content.get("allow_stdin", True))


class NoProgressBars:
    """Leaves out what Spark's progress bar writes below the cell that runs now, until it is closed.

    The card counts Spark's tasks. The bar is wiped away with blanks at its end: they would be an empty red strip.
    """

    def __init__(self, kernel: Any) -> None:
        self._stream = sys.stderr if hasattr(sys.stderr, "register_hook") else None
        try:
            self._cell = str(kernel.get_parent("shell")["header"]["msg_id"])
        except (AttributeError, LookupError, TypeError):
            self._cell = ""
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


# ---- files at the Jupyter server ------------------------------------------------------------------------------------


def link_to(path: Path) -> str | None:
    """Return the link to a file, relative to the notebook, or None where it would not work.

    A Jupyter server shows files below its root folder that are not hidden. Outside a notebook of such a server, in a
    script or in another editor, there is nothing to link to.
    """
    root, notebook = cluster_records.own_server_root(), os.environ.get(_NOTEBOOK, "")
    if not root or not Path(notebook).is_absolute():
        return None
    try:
        shown = path.resolve().relative_to(Path(root).resolve())
        here = Path(notebook).parent.resolve()
    except (OSError, ValueError):
        return None
    if any(part.startswith(".") for part in shown.parts) or not here.is_dir() or not path.is_file():
        return None
    return quote(os.path.relpath(path.resolve(), here))


def served_path(path: Path, root: str) -> str | None:
    """Return the path of a log below the Jupyter server's ``root``, or None where that does not serve it.

    Pages download it from the server's ``files/``. Asked several times a second for each node: it looks at no disk.
    """
    try:
        below = path.relative_to(root) if root else None
    except ValueError:
        return None
    return None if below is None or any(part.startswith(".") for part in below.parts) else quote(below.as_posix())


# ---- what a kernel announces ----------------------------------------------------------------------------------------

_MARK = "tfos_lab_busy"
# One of the server's `untracked_message_types`, which JupyterLab ignores too.
_UNTRACKED = "comm_info_request"


class BusyKernel:
    """Corrects the announcements of a kernel: its ``_publish_status`` is replaced."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._publish = kernel._publish_status  # noqa: SLF001 - there is no public way
        # The end of a cell must not come between another channel's `idle` and the `busy` that follows it.
        self._lock = threading.RLock()
        self._running: Any = kernel.get_parent("shell") if _on_main_thread() else None
        kernel._publish_status = self._announce  # noqa: SLF001 - the same

    def repeat(self) -> None:
        """Announce again that the kernel is busy, if it is: for pages that were loaded since the last time."""
        with self._lock:
            if self._running:
                self._publish("busy", "shell", parent=self._running)

    def _announce(self, status: str, channel: str, parent: Any = None) -> None:
        with self._lock:
            if parent is None and channel == "shell" and _on_main_thread():
                self._publish(status, channel)
                self._running = self._kernel.get_parent("shell") if status == "busy" else None
                return
            parent = parent or self._kernel.get_parent(channel)
            if self._running:  # a request with the same id, of a type that does not count as activity
                parent = {**parent, "header": {**parent.get("header", {}), "msg_type": _UNTRACKED}}
            self._publish(status, channel, parent=parent)
            if status == "idle":
                self.repeat()


def keep_busy(kernel: Any) -> BusyKernel | None:
    """Correct the announcements of a kernel, once in its life; None for a kernel that works differently."""
    if not hasattr(kernel, "_publish_status"):
        return None
    if not hasattr(kernel, _MARK):
        setattr(kernel, _MARK, BusyKernel(kernel))
    busy: BusyKernel = getattr(kernel, _MARK)
    return busy


def _on_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
