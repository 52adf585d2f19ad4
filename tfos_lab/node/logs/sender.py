"""Sends a node's log to the driver in batches, of which only a few are unacknowledged at a time."""

from __future__ import annotations

import time
from collections.abc import Callable

from tfos_lab import messages as m
from tfos_lab.node.logs.spool import LogSpool

# How many batches the driver may not have written to its files yet.
_IN_FLIGHT = 8
# Lines that come close together travel together.
_INTERVAL_S = 0.02
# The nodes of a large cluster wait longer for more lines: the driver gets no more batches a second than this in all.
_BATCHES_PER_S = 4_000


def interval_s(nodes: int) -> float:
    """Return the seconds between two batches of one of so many nodes."""
    return max(_INTERVAL_S, nodes / _BATCHES_PER_S)


class LogSender:
    """Sends one node's log; used in the agent's poll loop only.

    Parameters
    ----------
    rank : int
        The node's rank, for its messages.
    spool : LogSpool
        The log.
    send : callable
        Sends a message to the driver.
    """

    def __init__(self, rank: int, spool: LogSpool, send: Callable[[m.FromAgent], None]) -> None:
        self._rank = rank
        self._spool = spool
        self._send = send
        self._sequence = 0
        self._acknowledged = -1
        self._sent_s = 0.0
        self._interval_s = _INTERVAL_S

    def share_with(self, nodes: int) -> None:
        """Send as often as one of so many nodes may."""
        self._interval_s = interval_s(nodes)

    @property
    def can_send(self) -> bool:
        """Whether there is something to send, and the driver has acknowledged enough batches."""
        return self._spool.has_unread and self._sequence - self._acknowledged <= _IN_FLIGHT

    def take_credit(self, credit: m.LogCredit) -> None:
        """Handle the driver's acknowledgement of a batch."""
        self._acknowledged = max(self._acknowledged, credit.sequence)

    def send_due(self, *, at_once: bool = False) -> None:
        """Send what is there, unless a batch was sent a moment ago; called often."""
        if self._spool.has_unread and (at_once or time.monotonic() - self._sent_s >= self._interval_s):
            self._sent_s = time.monotonic()
            self.send_all()

    def send_all(self) -> None:
        """Send as much as may be unacknowledged."""
        while self.can_send:
            self._send(m.Logs(rank=self._rank, sequence=self._sequence, records=self._spool.read()))
            self._sequence += 1
