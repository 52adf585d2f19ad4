"""A node's clock, which may be off the driver's: what its messages say of when is told in the driver's time. Pure."""

from __future__ import annotations

import math

# A message may be on its way for a while; clocks that are off by less are taken for right.
_TOLERANCE_S = 5.0
# A clock that is off by more was never set: certificates are not good on such a host either, and nothing is made right.
_MOST_S = 86_400.0


class NodeClock:
    """What is known of one node's clock, from the times in its messages and those of their arrival."""

    def __init__(self) -> None:
        self._ahead_s = -math.inf

    def to_driver_s(self, time_s: float, now_s: float) -> float:
        """Return a time of the node's clock, in a message that arrives now, as one of the driver's clock.

        The message that was quickest says how far the clock is ahead; it is never too far by more than that took.
        """
        self._ahead_s = max(self._ahead_s, time_s - now_s)
        if -_TOLERANCE_S <= self._ahead_s <= _TOLERANCE_S:
            return time_s
        return time_s - self._ahead_s if abs(self._ahead_s) < _MOST_S else time_s
