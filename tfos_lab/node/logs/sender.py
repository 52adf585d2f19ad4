"""What the child has written on its way to the driver: in batches, a few at a time, until the driver has kept them."""

from __future__ import annotations

import time
from collections.abc import Callable

from tfos_lab import messages as m
from tfos_lab.node.logs.spool import LogSpool

# Batches that the driver has not yet written to its files.
_IN_FLIGHT = 8
# Lines that come close together travel together.
_INTERVAL_S = 0.02


class LogSender:
    """Sends one node's log; used in the agent's poll loop only.

    Parameters
    ----------
    rank : int
        The node's rank, which its messages bear.
    spool : LogSpool
        What was written.
    send : callable
        Says something to the driver.
    """

    def __init__(self, rank: int, spool: LogSpool, send: Callable[[m.FromAgent], None]) -> None:
        self._rank = rank
        self._spool = spool
        self._send = send
        self._sequence = 0
        self._kept = -1
        self._sent_s = 0.0

    @property
    def can_send(self) -> bool:
        """Whether there is something to send, and the driver is ready for it."""
        return self._spool.has_unread and self._sequence - self._kept <= _IN_FLIGHT

    def take_credit(self, credit: m.LogCredit) -> None:
        """Hear that the driver has kept a batch."""
        self._kept = max(self._kept, credit.sequence)

    def send_due(self) -> None:
        """Send what is there, unless something was sent a moment ago; called often."""
        if self._spool.has_unread and time.monotonic() - self._sent_s >= _INTERVAL_S:
            self._sent_s = time.monotonic()
            self.send_all()

    def send_all(self) -> None:
        """Send what is there, as far as the driver is ready for it."""
        while self.can_send:
            self._send(m.Logs(rank=self._rank, sequence=self._sequence, records=self._spool.read()))
            self._sequence += 1
