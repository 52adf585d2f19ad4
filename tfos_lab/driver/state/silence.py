"""For how long nodes have been silent, in time in which the driver would have heard them. Pure.

A driver that does not run hears nobody: the notebook's machine sleeps, its kernel is stopped, a cell holds the
interpreter's lock, or the machine is so busy that the driver's turn comes late. What the nodes have sent meanwhile is
read afterwards. Such pauses say nothing about the nodes and do not count. Nor does it matter when a clock is set. While
more has come than the driver has read yet, time counts less: what a node has sent may be among that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

# Ticks come five times a second. Of a longer time between two, only this much counts.
LONGEST_TICK_S = 1.0
# Of the time in which the driver is behind with reading.
BEHIND_SHARE = 0.5
# A pause that is worth telling, and for how long afterwards.
_PAUSE_S = 3.0
_TOLD_FOR_S = 10.0


class Silence:
    """The silence of each node.

    Parameters
    ----------
    nodes : int
        How many there are; each counts from its first message on.
    """

    def __init__(self, nodes: int) -> None:
        self._heard_s = [math.inf] * nodes
        self._attended_s = 0.0
        self._ticked_s: float | None = None
        self._last_pause_s = 0.0
        self._resumed_s = 0.0

    def broken_by(self, rank: int, now_s: float) -> None:
        """A node has sent a message."""
        self._heard_s[rank] = self._attended_s
        if self._ticked_s is None:
            self._ticked_s = now_s

    def tick(self, now_s: float, *, behind: bool = False) -> None:
        """Time passes; called when all messages have been handled that had arrived, unless the driver is ``behind``."""
        passed_s = now_s - self._ticked_s if self._ticked_s is not None else 0.0
        self._ticked_s = now_s
        self._attended_s += min(max(passed_s, 0.0), LONGEST_TICK_S) * (BEHIND_SHARE if behind else 1.0)
        if passed_s > _PAUSE_S:
            self._last_pause_s, self._resumed_s = passed_s, self._attended_s

    def pause_s(self, now_s: float) -> float:
        """Return for how many seconds the driver did not run until now, or until a moment ago; 0 if it did."""
        passed_s = now_s - self._ticked_s if self._ticked_s is not None else 0.0
        if passed_s > _PAUSE_S:
            return passed_s
        return self._last_pause_s if self._attended_s - self._resumed_s < _TOLD_FOR_S else 0.0

    @property
    def attended_s(self) -> float:
        """Seconds in which the driver would have heard a node."""
        return self._attended_s

    def longer_than(self, limit_s: float) -> Iterator[tuple[int, float]]:
        """Yield the rank of each node that has been silent for longer, and for how long."""
        since_s = self._attended_s - limit_s
        for rank, heard_s in enumerate(self._heard_s):
            if heard_s < since_s:
                yield rank, self._attended_s - heard_s
