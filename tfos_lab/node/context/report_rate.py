"""Bounds how many reports of a node reach the notebook: a loop can call `ctx.report` 100,000 times a second.

So many at once are sent as they come; then the newest one at a time, as often as the driver can take it from all nodes.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from tfos_lab.core.messages import Reported

# What a node may send at once, and per second; all nodes together.
BURST = 1000
MOST_PER_S = 1000.0
_LEAST_PER_S = 5.0
_OF_ALL_PER_S = 20_000.0
# A report that was held back is sent after this time, if no other has come.
_HELD_S = 0.25


class ReportRate:
    """Sends the reports of one of so many nodes; safe to use from several threads."""

    def __init__(self, send: Callable[[Reported], None], nodes: int) -> None:
        self._send = send
        self._per_s = min(MOST_PER_S, max(_LEAST_PER_S, _OF_ALL_PER_S / max(1, nodes)))
        self._lock = threading.Lock()
        self._tokens = float(BURST)
        self._filled_at = time.monotonic()
        self._held: Reported | None = None
        self._timer: threading.Timer | None = None
        self._has_told = False

    def take(self, report: Reported) -> None:
        """Send a report, or hold it back: it is sent later, or a newer one is."""
        with self._lock:
            now = time.monotonic()
            self._tokens = min(float(BURST), self._tokens + (now - self._filled_at) * self._per_s)
            self._filled_at = now
            if self._tokens >= 1.0:
                self._tokens -= 1.0
                self._leave_out_held()
                self._send(report)
            else:
                self._leave_out_held()
                self._hold(report)

    def _leave_out_held(self) -> None:
        if self._held is None:
            return
        self._held = None
        if not self._has_told:
            self._has_told = True
            sys.stderr.write(
                f"tfos_lab: ctx.report is called more than {self._per_s:,.0f} times a second on this node: the "
                "notebook gets so many of them, the newest at each time. Report every n-th step to choose which.\n"
            )

    def _hold(self, report: Reported) -> None:
        self._held = report
        if self._timer is None:
            self._timer = threading.Timer(_HELD_S, self.flush)
            self._timer.name, self._timer.daemon = "tfos-report", True
            self._timer.start()

    def flush(self) -> None:
        """Send the report that was held back, if any."""
        with self._lock:
            self._timer = None
            report, self._held = self._held, None
            if report is not None:
                self._send(report)
