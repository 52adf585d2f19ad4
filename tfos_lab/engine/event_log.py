"""The last events of a cluster, bounded in number and in what each may hold."""

from __future__ import annotations

import itertools
from collections import OrderedDict

from tfos_lab.engine.state.events import Event, FeedProgressed, InferenceProgressed

# The progress of a feed names all nodes: where there are more, only the newest is kept.
_ALL_KEPT = 64
# A tuple is compared quicker than a union; thousands of events come a second.
_PROGRESS = (FeedProgressed, InferenceProgressed)


class EventLog:
    """The last events, oldest first.

    Parameters
    ----------
    at_most : int
        How many are kept.
    """

    def __init__(self, at_most: int) -> None:
        self._at_most = at_most
        self._numbers = itertools.count()
        # A plain dict would look past all that were removed to find its first one.
        self._events: OrderedDict[int, Event] = OrderedDict()
        self._progress: dict[tuple[str, int], int] = {}

    @property
    def all(self) -> list[Event]:
        """Those that are kept."""
        return list(self._events.values())

    def add(self, event: Event) -> None:
        """Add an event."""
        number = next(self._numbers)
        self._events[number] = event
        if isinstance(event, _PROGRESS) and len(event.rows) > _ALL_KEPT:
            self._events.pop(self._progress.get(_key(event), -1), None)
            self._progress[_key(event)] = number
        if len(self._events) > self._at_most:
            self._events.popitem(last=False)


def _key(event: FeedProgressed | InferenceProgressed) -> tuple[str, int]:
    return ("feed", event.feed) if isinstance(event, FeedProgressed) else ("inference", event.inference)
