"""Keeps the kernel busy in the eyes of its front ends while a cell runs.

A kernel that runs a cell still answers on its control channel and on subshells, which is how JupyterLab sends what
widgets say. ipykernel announces ``busy`` and ``idle`` around each of these answers without regard to the cell, and
JupyterLab's status bar and the server's list of kernels believe the last word: one message of the dashboard, and the
kernel is shown as idle, and may be culled, until the cell has ended.

While a cell runs, such announcements are made as for a request that says nothing of how busy a kernel is, which server
and JupyterLab leave out of account; whoever waits for the answer knows it by its id. For older ones, which take every
word for the kernel's own, the cell has the last word.
"""

from __future__ import annotations

import threading
from typing import Any

_MARK = "tfos_lab_busy"
# One of the server's `untracked_message_types`, by which JupyterLab goes, too.
_UNTRACKED = "comm_info_request"


class BusyKernel:
    """What a kernel announces, put right from now on.

    Parameters
    ----------
    kernel : ipykernel.kernelbase.Kernel
        Whose announcements.
    """

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._publish = kernel._publish_status  # noqa: SLF001 - there is no public way
        # The end of a cell must not come between another channel's `idle` and the `busy` that follows it.
        self._lock = threading.RLock()
        self._running: Any = kernel.get_parent("shell") if _on_main_thread() else None
        kernel._publish_status = self._announce  # noqa: SLF001 - the same

    def repeat(self) -> None:
        """Announce once more that the kernel is busy, if it is: for pages that have been loaded since it was said."""
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
            self._publish(status, channel, parent=_untracked(parent) if self._running else parent)
            if status == "idle":
                self.repeat()


def _untracked(parent: dict[str, Any]) -> dict[str, Any]:
    """Return a request as one of the same id by which nobody judges whether the kernel is busy."""
    return {**parent, "header": {**parent.get("header", {}), "msg_type": _UNTRACKED}}


def keep_busy(kernel: Any) -> BusyKernel | None:
    """Put right what a kernel announces, once in its life; None for a kernel that announces nothing we know."""
    if not hasattr(kernel, "_publish_status"):
        return None
    if not hasattr(kernel, _MARK):
        setattr(kernel, _MARK, BusyKernel(kernel))
    busy: BusyKernel = getattr(kernel, _MARK)
    return busy


def _on_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
