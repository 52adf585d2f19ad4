"""Keeps front ends showing the kernel as busy while a cell runs.

A kernel that runs a cell still answers on its control channel and on subshells, where JupyterLab sends the messages of
widgets. ipykernel announces ``busy`` and ``idle`` around each of these answers, whether or not a cell runs, and
JupyterLab's status bar and the server's list of kernels believe the latest announcement: after one message of the
dashboard the kernel is shown as idle, and may be culled, until the cell has ended.

While a cell runs, such announcements therefore name a type of request that the server and JupyterLab ignore when they
decide whether a kernel is busy; whoever waits for the answer recognizes it by its id. Older versions believe every
announcement: for them, the cell's ``busy`` is repeated after each ``idle``.
"""

from __future__ import annotations

import threading
from typing import Any

_MARK = "tfos_lab_busy"
# One of the server's `untracked_message_types`, which JupyterLab ignores too.
_UNTRACKED = "comm_info_request"


class BusyKernel:
    """Corrects the announcements of a kernel.

    Parameters
    ----------
    kernel : ipykernel.kernelbase.Kernel
        The kernel; its ``_publish_status`` is replaced.
    """

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
            self._publish(status, channel, parent=_untracked(parent) if self._running else parent)
            if status == "idle":
                self.repeat()


def _untracked(parent: dict[str, Any]) -> dict[str, Any]:
    """Return a request with the same id, of a type that does not count as activity."""
    return {**parent, "header": {**parent.get("header", {}), "msg_type": _UNTRACKED}}


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
