"""What has happened to a cluster so far: events, phases with their seconds, metrics; and a way to wait for more."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from tfos_lab.core.states import NodeState, RunState
from tfos_lab.engine.state.events import (
    Event,
    FeedProgressed,
    FeedView,
    InferenceProgressed,
    LogText,
    MetricsReported,
    NodeChanged,
    StateChanged,
)
from tfos_lab.engine.state.feed_views import FeedViews

# The cluster's states, and the phase that each one completes.
_PHASES = {RunState.RESERVING: "launched", RunState.STARTING: "reserved", RunState.RUNNING: "running"}
_MAX_EVENTS = 10_000
_MAX_METRICS = 200_000


class History:
    """Listens on the bus as its tap; everything else reads."""

    def __init__(self, called_s: float) -> None:
        self._called_s = called_s
        self._changed = threading.Condition()
        self._events: deque[Event] = deque(maxlen=_MAX_EVENTS)
        self._metrics: list[MetricsReported] = []
        self._metrics_count = 0
        self._last_import_s: float | None = None
        self.timings: dict[str, float] = {}
        self._restarts: list[tuple[float, float | None]] = []
        self._feeds = FeedViews(called_s)
        self.ended_s: float | None = None

    def note(self, event: Event) -> None:
        """Take an event in; log text is not kept here (the files are whole)."""
        if isinstance(event, LogText):
            return
        with self._changed:
            self._events.append(event)
            if isinstance(event, StateChanged):
                self._record_state(event)
            elif isinstance(event, NodeChanged) and event.state is NodeState.STARTING:
                self._last_import_s = event.time_s
            elif isinstance(event, FeedProgressed):
                self._record_feed(event)
            elif isinstance(event, InferenceProgressed):
                self._feeds.record(event)
            elif isinstance(event, MetricsReported):
                self._record_metrics(event)
            self._changed.notify_all()

    def _record_feed(self, event: FeedProgressed) -> None:
        self._feeds.record(event)
        self._mark("feeding", event.time_s)
        if event.complete:
            self._mark("fed", event.time_s)
        else:
            self.timings.pop("fed", None)  # a further feed has begun

    def _record_metrics(self, event: MetricsReported) -> None:
        self._metrics.append(event)
        self._metrics_count += 1
        if len(self._metrics) > _MAX_METRICS:
            del self._metrics[1 : _MAX_METRICS // 2 : 2]

    def _record_state(self, event: StateChanged) -> None:
        phase = _PHASES.get(event.state)
        self._record_restart(event)
        if event.state is RunState.RUNNING and self._last_import_s is not None:
            self._mark("imported", self._last_import_s)
        if phase is not None:
            self._mark(phase, event.time_s)
        if event.state.ended and self.ended_s is None:
            self.ended_s = event.time_s
            self._mark("done", event.time_s)

    def _record_restart(self, event: StateChanged) -> None:
        at_s = max(0.0, event.time_s - self._called_s)
        is_over = event.state.is_settled or event.state is RunState.RUNNING
        if is_over and self._restarts and self._restarts[-1][1] is None:
            self._restarts[-1] = self._restarts[-1][0], at_s
        if event.state is RunState.RESTARTING:
            self._restarts.append((at_s, None))

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
    def feeds(self) -> tuple[FeedView, ...]:
        """What has been fed, and answered, so far."""
        with self._changed:
            return self._feeds.views

    @property
    def restarts(self) -> tuple[tuple[float, float | None], ...]:
        """When nodes began to start again, and when all of them ran again, in seconds since the call."""
        with self._changed:
            return tuple(self._restarts)

    @property
    def metrics(self) -> list[MetricsReported]:
        """All reported metrics, oldest first; of very many, every second one of the older half gives way."""
        with self._changed:
            return list(self._metrics)

    def metrics_after(self, count: int) -> tuple[list[MetricsReported], int]:
        """Return the metrics that came after the first ``count`` ones, and how many there have been in all."""
        with self._changed:
            new = self._metrics_count - count
            return (self._metrics[-new:] if new > 0 else []), self._metrics_count

    def wait_for(self, predicate: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until ``predicate()`` holds after some event; returns whether it does."""
        with self._changed:
            return self._changed.wait_for(predicate, timeout_s)
