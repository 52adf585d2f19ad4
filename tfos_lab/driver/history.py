"""What has happened to a cluster so far: events, phases with their seconds, feeds, metrics and notes."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from dataclasses import replace

from tfos_lab.core.states import NodeState, RunState
from tfos_lab.driver.state.events import (
    EvaluatorFailed,
    Event,
    FeedProgressed,
    FeedView,
    InferenceProgressed,
    LogText,
    MetricsReported,
    NodeChanged,
    NodeHung,
    NodeStartedAgain,
    StateChanged,
)

# The cluster's states, and the phase that each one completes.
_PHASES = {RunState.RESERVING: "launched", RunState.STARTING: "reserved", RunState.RUNNING: "running"}
_MAX_EVENTS = 10_000
_MAX_METRICS = 200_000


class History:
    """Records every event of one cluster's bus; safe to read from any thread. Phases count from ``called_s``."""

    def __init__(self, called_s: float) -> None:
        self._called_s = called_s
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        # A plain dict would look past all that were removed to find its first one.
        self._events: OrderedDict[object, Event] = OrderedDict()
        self._metrics: list[MetricsReported] = []
        self._metrics_count = 0
        self._notes: list[str] = []
        self._last_import_s: float | None = None
        self.timings: dict[str, float] = {}
        self._restarts: list[tuple[float, float | None]] = []
        self._feeds = FeedViews(called_s)
        self.ended_s: float | None = None

    def record(self, *events: Event) -> None:
        """Record events. Log text is left out: the log files hold all of it."""
        with self._lock:
            for event in events:
                if not isinstance(event, LogText):
                    self._record(event)

    def _record(self, event: Event) -> None:
        # Of a feed's progress, which names all nodes each time, the newest is kept.
        key = ("feed", event.feed) if isinstance(event, FeedProgressed) else next(self._numbers)
        self._events.pop(key, None)
        self._events[key] = event
        if len(self._events) > _MAX_EVENTS:
            self._events.popitem(last=False)
        if isinstance(event, MetricsReported):  # most are
            self._metrics.append(event)
            self._metrics_count += 1
            if len(self._metrics) > _MAX_METRICS:
                del self._metrics[1 : _MAX_METRICS // 2 : 2]
        elif isinstance(event, StateChanged):
            self._record_state(event)
        elif isinstance(event, NodeChanged) and event.state is NodeState.STARTING:
            self._last_import_s = event.time_s
        elif isinstance(event, FeedProgressed):
            self._feeds.record(event)
            if event.split:
                return
            self._mark("feeding", event.time_s)
            if event.complete:
                self._mark("fed", event.time_s)
            else:
                self.timings.pop("fed", None)  # a further feed has begun
        elif isinstance(event, InferenceProgressed):
            self._feeds.record(event)

    def _record_state(self, event: StateChanged) -> None:
        at_s = max(0.0, event.time_s - self._called_s)
        is_over = event.state.is_settled or event.state is RunState.RUNNING
        if is_over and self._restarts and self._restarts[-1][1] is None:
            self._restarts[-1] = self._restarts[-1][0], at_s
        if event.state is RunState.RESTARTING:
            self._restarts.append((at_s, None))
        if event.state is RunState.RUNNING and self._last_import_s is not None:
            self._mark("imported", self._last_import_s)
        if phase := _PHASES.get(event.state):
            self._mark(phase, event.time_s)
        if event.state.ended and self.ended_s is None:
            self.ended_s = event.time_s
            self._mark("done", event.time_s)

    def story(self) -> str:
        """Return how the cluster and its nodes came to be where they are: a line for each change, oldest first."""
        lines = [(event.time_s, told) for event in self.events if (told := _line_of(event))]
        return "\n".join(f"{max(0.0, time_s - self._called_s):9.3f} s  {text}" for time_s, text in lines)

    def mark_released(self, time_s: float) -> None:
        """Record that the first node was sent its start message."""
        with self._lock:
            self._mark("released", time_s)

    def _mark(self, phase: str, time_s: float) -> None:
        self.timings.setdefault(phase, max(0.0, time_s - self._called_s))

    def add_note(self, text: str) -> None:
        """Add a sentence that the cell shows beside the table."""
        with self._lock:
            self._notes.append(text)

    @property
    def notes(self) -> tuple[str, ...]:
        """The sentences that were added, oldest first."""
        with self._lock:
            return tuple(self._notes)

    @property
    def events(self) -> list[Event]:
        """All events but log text, oldest first (at most 10,000); of a feed, how far it is now."""
        with self._lock:
            return list(self._events.values())

    @property
    def feeds(self) -> tuple[FeedView, ...]:
        """The calls of `Cluster.train` and `Cluster.inference` so far."""
        with self._lock:
            return self._feeds.views

    @property
    def restarts(self) -> tuple[tuple[float, float | None], ...]:
        """When nodes began to start again, and when all of them ran again, in seconds since the call."""
        with self._lock:
            return tuple(self._restarts)

    @property
    def metrics(self) -> list[MetricsReported]:
        """The reported metrics, oldest first. Above 200,000, every second one of the older half is dropped."""
        with self._lock:
            return list(self._metrics)

    def sample_metrics(self, at_most: int) -> list[MetricsReported]:
        """Return at most so many of the reported metrics, evenly spread, the newest among them; oldest first."""
        with self._lock:
            stride = -(-len(self._metrics) // at_most) or 1
            return self._metrics[::-stride][::-1]

    def metrics_after(self, count: int) -> tuple[list[MetricsReported], int]:
        """Return the metrics that came after the first ``count`` ones, and how many there have been in all."""
        with self._lock:
            new = self._metrics_count - count
            return (self._metrics[-new:] if new > 0 else []), self._metrics_count


def _line_of(event: Event) -> str:
    match event:
        case StateChanged(state=state, reason=reason):
            return f"{state}{reason and ': '}{reason}"
        case NodeChanged(node=node, state=state, detail=detail):
            return f"{node} {state}{detail and ': '}{detail}"
        case NodeHung(node=node, text=text):
            return f"{node} hangs: {text}" if text else f"{node} goes on"
        case NodeStartedAgain(node=node, reason=reason):
            return f"{node} is started again: {reason}"
        case EvaluatorFailed(node=node, kind=kind, message=message):
            return f"{node} has failed, and training goes on: {kind}: {message}"
        case _:
            return ""


class FeedViews:
    """The progress of a cluster's rows: one view for each call of `train` and of `inference`, and for each split.

    They are as they began. A table is one feed; after a restart it is fed again, and its view starts again, as the
    last one. A stream has a feed for each micro-batch, and its view adds them up.
    """

    def __init__(self, called_s: float) -> None:
        self._called_s = called_s
        self._views: dict[tuple[str, int | str], FeedView] = {}
        self._finished: dict[int, FeedView] = {}

    @property
    def views(self) -> tuple[FeedView, ...]:
        """All of them."""
        return tuple(self._views.values())

    def record(self, event: FeedProgressed | InferenceProgressed) -> None:
        """Update the view of the event's feed."""
        at_s = max(0.0, event.time_s - self._called_s)
        if isinstance(event, InferenceProgressed):
            before = self._begun("inference", event.inference, at_s)
            view = replace(before, rows=event.rows, partitions=event.partitions, ended_s=at_s)
            self._views["inference", event.inference] = view
        elif event.stream:
            self._record_micro_batch(event, at_s)
        elif event.split:
            before = self._views.get(("split", event.split)) or FeedView(split=event.split, started_s=at_s)
            self._progress(("split", event.split), before, event, at_s)
        else:
            self._progress(("table", event.source), self._begun("table", event.source, at_s), event, at_s)

    def _progress(self, key: tuple[str, int | str], before: FeedView, event: FeedProgressed, at_s: float) -> None:
        if before.complete and not event.complete:
            del self._views[key]  # it is fed again, and is the last one, which is shown with all details
        self._views[key] = _progressed(before, event, at_s)

    def _begun(self, kind: str, source: int, at_s: float) -> FeedView:
        number = sum(known == kind for known, _ in self._views)
        return self._views.get((kind, source)) or FeedView(kind=kind, number=number, started_s=at_s)

    def _record_micro_batch(self, event: FeedProgressed, at_s: float) -> None:
        before = self._begun("stream", event.source, at_s)
        # A micro-batch that was not completed is fed again; its rows do not count twice.
        if before.complete and not event.complete:
            self._finished[event.source] = before
        finished = self._finished.get(event.source, FeedView(kind="stream", number=before.number))
        view = _progressed(before, event, at_s)
        self._views["stream", event.source] = replace(
            view,
            rows={node: rows + finished.rows.get(node, 0) for node, rows in event.rows.items()},
            partitions=view.partitions + finished.partitions,
            total_partitions=None,
            size_bytes=view.size_bytes + finished.size_bytes,
            micro_batches=finished.micro_batches + event.complete,
        )


def _progressed(before: FeedView, event: FeedProgressed, at_s: float) -> FeedView:
    return replace(
        before,
        rows=event.rows,
        partitions=event.partitions,
        total_partitions=event.total_partitions,
        tasks=event.tasks,
        size_bytes=event.size_bytes,
        complete=event.complete,
        epochs=event.epochs,
        ended_s=(before.ended_s if before.complete else at_s) if event.complete else None,
    )
