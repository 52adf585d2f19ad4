"""Holds what a node of a large cluster sends several times a second, to send it as one message."""

from __future__ import annotations

import time
from typing import get_args

from tfos_lab import messages as m
from tfos_lab.messages import Figure

# The driver gets no more messages with figures a second than this from all nodes together.
_MESSAGES_PER_S = 2_000
# Where each message may go at once, none is held.
_LEAST_S = 0.1
_MOST_HELD = 256
_MOST_LOG_BYTES = 1 << 16
_KINDS = get_args(Figure)


def interval_s(nodes: int) -> float:
    """Return for how many seconds one of so many nodes holds its figures; 0 if it sends each at once."""
    share_s = nodes / _MESSAGES_PER_S
    return share_s if share_s > _LEAST_S else 0.0


class FiguresHolder:
    """What one node has not sent yet; used in the agent's poll loop only.

    Parameters
    ----------
    rank : int
        The node's rank.
    """

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._held: list[Figure] = []
        self._interval_s = 0.0
        self._taken_s = 0.0
        self._has_sign = False

    def share_with(self, nodes: int) -> None:
        """Hold figures for as long as one of so many nodes should."""
        self._interval_s = interval_s(nodes)

    def hold(self, message: m.FromAgent) -> bool:
        """Keep a message if it can wait; return whether it does."""
        if not self._interval_s or not isinstance(message, _KINDS):
            return False
        if isinstance(message, m.Logs) and sum(len(record.data) for record in message.records) > _MOST_LOG_BYTES:
            return False
        self._held.append(message)
        self._has_sign |= isinstance(message, m.Heartbeat)
        return True

    @property
    def is_due(self) -> bool:
        """Whether to send what is held: for long enough, or with a heartbeat, or a great many."""
        waited = self._has_sign or time.monotonic() - self._taken_s >= self._interval_s
        return bool(self._held) and (waited or len(self._held) >= _MOST_HELD)

    def take(self) -> m.Figures | None:
        """Return what is held as one message, or None if there is nothing; it is held no longer."""
        held, self._held = self._held, []
        self._taken_s, self._has_sign = time.monotonic(), False
        return m.Figures(self._rank, held) if held else None
