"""The timeline of a cluster: its marks (`ClusterView.timings`) as spans with a start and an end."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from tfos_lab.driver.state.events import ClusterView, FeedView

# The span that each mark ends. Feeds are drawn below, each on its own track.
_SPANS = {
    "launched": "launch",
    "reserved": "reserve",
    "released": "release",
    "imported": "import",
    "running": "start",
    "done": "run",
}
#: A phase that has passed in less would read as "0.00 s", and say nothing.
SHORTEST_S = 0.005


@dataclass(frozen=True)
class Span:
    """A stretch of time, in seconds since the call.

    ``kind`` is launch, reserve, release, import, start, run or restart on track 0, and feed, stream or inference on the
    tracks below. An ``open`` span goes on.
    """

    name: str
    kind: str
    start_s: float
    end_s: float
    open: bool = False
    track: int = 0


def spans_of(view: ClusterView, now_s: float | None = None) -> list[Span]:
    """Return the spans so far: launch, reserve, release, import, start and run, then those of feeds."""
    until_s = (view.ended_s or now_s or time.time()) - view.started_s
    spans = _main_spans(view, until_s)
    for start_s, end_s in view.restarts:
        restart = Span("restart", "restart", start_s, until_s if end_s is None else end_s, open=end_s is None)
        spans = _put_between(restart, spans)
    return [*spans, *_feed_spans(view, until_s)]


def told_spans(view: ClusterView, now_s: float | None = None) -> list[Span]:
    """Return the spans that are worth showing: without phases that have passed in no time, if others are left."""
    spans = spans_of(view, now_s)
    told = [span for span in spans if span.open or span.track or span.end_s - span.start_s >= SHORTEST_S]
    return told or spans


def _main_spans(view: ClusterView, until_s: float) -> list[Span]:
    marks = [(mark, view.timings[mark]) for mark in _SPANS if mark in view.timings and mark != "done"]
    marks.sort(key=lambda mark: mark[1])
    spans, before_s = [], 0.0
    for mark, end_s in marks:
        spans.append(Span(_SPANS[mark], _SPANS[mark], before_s, end_s))
        before_s = end_s
    going_on = next(name for mark, name in _SPANS.items() if mark == "done" or not _reached(mark, view.timings))
    return [*spans, Span(going_on, going_on, before_s, max(before_s, until_s), open=view.ended_s is None)]


def _reached(mark: str, timings: dict[str, float]) -> bool:
    """Whether a mark is passed, which a later mark proves as well."""
    marks = list(_SPANS)
    return any(later in timings for later in marks[marks.index(mark) : -1])


def _put_between(span: Span, spans: list[Span]) -> list[Span]:
    """Return the spans with another one between them, which takes its time from those that it overlaps."""
    before = [replace(one, end_s=min(one.end_s, span.start_s)) for one in spans if one.start_s < span.start_s]
    after = [replace(one, start_s=max(one.start_s, span.end_s)) for one in spans if one.end_s > span.end_s]
    before = [replace(one, open=False) if one.end_s == span.start_s else one for one in before]
    return [*before, span, *after]


def _feed_spans(view: ClusterView, until_s: float) -> list[Span]:
    earlier, shown = recent_feeds(view.feeds)
    spans = [_sum_span([_feed_span(feed, view, until_s) for feed in earlier])] if earlier else []
    spans += [_feed_span(feed, view, until_s) for feed in shown]
    return [replace(span, track=track) for track, span in enumerate(spans, 1)]


def _feed_span(feed: FeedView, view: ClusterView, until_s: float) -> Span:
    kind = "feed" if feed.kind == "table" else feed.kind
    name = kind if is_only(feed, view.feeds) else feed_name(feed)
    end_s = until_s if feed.ended_s is None else feed.ended_s
    going_on = feed.ended_s is None and view.ended_s is None
    return Span(name, kind, feed.started_s, max(feed.started_s, end_s), open=going_on)


def _sum_span(spans: list[Span]) -> Span:
    start_s, end_s = min(span.start_s for span in spans), max(span.end_s for span in spans)
    return Span(f"{len(spans)} earlier ones", "feed", start_s, end_s, open=any(span.open for span in spans))


# So many are shown one by one; if there are more, the oldest are summed up.
_MOST_SHOWN = 6


def recent_feeds(feeds: tuple[FeedView, ...]) -> tuple[tuple[FeedView, ...], tuple[FeedView, ...]]:
    """Return the earlier feeds, of which only a sum is shown, and those that are shown one by one."""
    if len(feeds) <= _MOST_SHOWN:
        return (), feeds
    return feeds[: 1 - _MOST_SHOWN], feeds[1 - _MOST_SHOWN :]


def feed_name(feed: FeedView) -> str:
    """Return the name of a view among others: ``feed 2``, ``stream 1``, ``inference 1``, ``validation``."""
    return feed.split or f"{'feed' if feed.kind == 'table' else feed.kind} {feed.number + 1:,}"


def is_only(feed: FeedView, feeds: tuple[FeedView, ...]) -> bool:
    """Whether a view is that of the rows to train on, and there is no other but those of splits."""
    return [one for one in feeds if not one.split] == [feed]
