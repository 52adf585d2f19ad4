"""The progress of a cluster's rows: one view for each call of `train` and of `inference`.

A table is one feed; after a restart it is fed again, and its view starts again. A stream has a feed for each
micro-batch, and its view adds them up. Pure: events go in, views come out.
"""

from __future__ import annotations

from dataclasses import replace

from tfos_lab.driver.state.events import FeedProgressed, FeedView, InferenceProgressed

# So many are shown one by one; if there are more, the oldest are summed up.
_MOST_SHOWN = 6


def recent_feeds(feeds: tuple[FeedView, ...]) -> tuple[tuple[FeedView, ...], tuple[FeedView, ...]]:
    """Return the earlier feeds, of which only a sum is shown, and those that are shown one by one."""
    if len(feeds) <= _MOST_SHOWN:
        return (), feeds
    return feeds[: 1 - _MOST_SHOWN], feeds[1 - _MOST_SHOWN :]


def feed_name(feed: FeedView) -> str:
    """Return the name of a view among others: ``feed 2``, ``stream 1``, ``inference 1``."""
    return f"{'feed' if feed.kind == 'table' else feed.kind} {feed.number + 1:,}"


class FeedViews:
    """The views of one cluster, in the order in which they began.

    Parameters
    ----------
    called_s : float
        When the cluster was called for, in seconds since the epoch.
    """

    def __init__(self, called_s: float) -> None:
        self._called_s = called_s
        self._views: dict[tuple[str, int], FeedView] = {}
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
        else:
            before = self._begun("table", event.source, at_s)
            self._views["table", event.source] = _progressed(before, event, at_s)

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
    """Return the view, updated by the event."""
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
