"""What has happened to a cluster so far: events, phases with their seconds, metrics; and a way to wait for more."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from tfos_lab.engine.events import Event, FeedProgressed, LogText, MetricsReported, StateChanged

# The cluster's states, and the phase that each one completes.
_PHASES = {"reserving": "launched", "starting": "reserved", "running": "running"}
_FINAL = ("done", "failed", "stopped")
_MAX_EVENTS = 10_000


class Journal:
    """Listens on the bus as its tap; everything else reads."""

    def __init__(self, called_s: float) -> None:
        self._called_s = called_s
        self._changed = threading.Condition()
        self._events: deque[Event] = deque(maxlen=_MAX_EVENTS)
        self._metrics: list[MetricsReported] = []
        self.timings: dict[str, float] = {}
        self.feed: FeedProgressed | None = None
        self.ended_s: float | None = None

    def note(self, event: Event) -> None:
        """Take an event in; log text is not kept here (the files are whole)."""
        if isinstance(event, LogText):
            return
        with self._changed:
            self._events.append(event)
            if isinstance(event, StateChanged):
                self._note_state(event)
            elif isinstance(event, FeedProgressed):
                self.feed = event
            elif isinstance(event, MetricsReported):
                self._metrics.append(event)
            self._changed.notify_all()

    def _note_state(self, event: StateChanged) -> None:
        phase = _PHASES.get(event.state)
        if phase is not None:
            self._mark(phase, event.time_s)
        if event.state in _FINAL and self.ended_s is None:
            self.ended_s = event.time_s
            self._mark("done", event.time_s)

    def mark_released(self, time_s: float) -> None:
        """All nodes have been released."""
        with self._changed:
            self._mark("released", time_s)

    def _mark(self, phase: str, time_s: float) -> None:
        self.timings.setdefault(phase, max(0.0, time_s - self._called_s))

    @property
    def events(self) -> list[Event]:
        """All events but log text, oldest first (at most 10,000)."""
        with self._changed:
            return list(self._events)

    @property
    def metrics(self) -> list[MetricsReported]:
        """All reported metrics, oldest first."""
        with self._changed:
            return list(self._metrics)

    def wait_for(self, predicate: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until ``predicate()`` holds after some event; returns whether it does."""
        with self._changed:
            return self._changed.wait_for(predicate, timeout_s)
