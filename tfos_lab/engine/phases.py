"""Where a cluster's seconds went: its marks (`ClusterView.timings`) as spans of time with a beginning and an end."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tfos_lab.engine.events import ClusterView

# Each mark ends the span of its name; those of the feed lie beside them, in a lane of their own.
_SPANS = {
    "launched": "launch",
    "reserved": "reserve",
    "released": "release",
    "imported": "import",
    "running": "start",
    "done": "run",
}


@dataclass(frozen=True)
class Span:
    """Something that took time: seconds since the call. ``open`` says that it is going on."""

    name: str
    start_s: float
    end_s: float
    open: bool = False
    lane: int = 0


def spans_of(view: ClusterView, now_s: float | None = None) -> list[Span]:
    """Return what has taken time so far: launch, reserve, release, import, start, run; and feed in lane 1."""
    until_s = (view.ended_s or now_s or time.time()) - view.started_s
    return [*_main_spans(view, until_s), *_feed_spans(view, until_s)]


def _main_spans(view: ClusterView, until_s: float) -> list[Span]:
    marks = [(mark, view.timings[mark]) for mark in _SPANS if mark in view.timings and mark != "done"]
    marks.sort(key=lambda mark: mark[1])
    spans, before_s = [], 0.0
    for mark, end_s in marks:
        spans.append(Span(_SPANS[mark], before_s, end_s))
        before_s = end_s
    going_on = next(name for mark, name in _SPANS.items() if mark == "done" or not _reached(mark, view.timings))
    return [*spans, Span(going_on, before_s, max(before_s, until_s), open=view.ended_s is None)]


def _reached(mark: str, timings: dict[str, float]) -> bool:
    """Whether a mark is passed: also if it was never noted, but a later one was."""
    marks = list(_SPANS)
    return any(later in timings for later in marks[marks.index(mark) : -1])


def _feed_spans(view: ClusterView, until_s: float) -> list[Span]:
    if "feeding" not in view.timings:
        return []
    start_s = view.timings["feeding"]
    end_s = view.timings.get("fed")
    ends = until_s if end_s is None else end_s
    return [Span("feed", start_s, max(start_s, ends), open=end_s is None and view.ended_s is None, lane=1)]
