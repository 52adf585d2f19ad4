"""The feeds of a node's process, in the order in which they are read: messages add to them, readers wait for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from tfos_lab.core import messages as m
from tfos_lab.core.messages import INPUT_QUEUE, VALIDATION
from tfos_lab.data.schema import column_specs
from tfos_lab.errors import FeedError
from tfos_lab.node.feed.files.segment import file_segments
from tfos_lab.node.feed.node_feed import NodeFeed
from tfos_lab.node.feed.segments import Segment

WAIT_STEP_S = 1.0
_NOBODY_LEFT = "the cluster has ended, and with it the rows that this function has not read yet"
_SERVED_OBJECTS = (
    "the rows to infer are Python objects, of which no tensors are made: read them with ctx.data_feed() and answer "
    "with its batch_results, or give cluster.inference a DataFrame"
)


class FeedQueue:
    """All feeds of this node. The session's thread calls `handle`; tf.data's threads wait for what it changes.

    ``changed`` guards the feeds, and is notified by `FeedReader` after each message. ``serving`` has, by queue, the
    endless feed of rows to be inferred, once the driver has opened it. When it has ``ended``, no further feed will be
    opened.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.feeds: list[NodeFeed] = []
        self.serving: dict[str, NodeFeed] = {}
        self.ended = False

    # ---- messages ---------------------------------------------------------------------------------------------------

    def handle(self, message: m.ToAgent) -> None:
        """Apply a message of the driver or the agent; call it with `changed` held."""
        match message:
            case m.FeedOpen():
                self.feeds.append(NodeFeed(message, column_specs(message.schema)))
            case m.SegmentReady():
                self._add_segment(self.feeds[message.feed], message)
            case m.FeedComplete(feed=number):
                feed = self.feeds[number]
                feed.rows = feed.rows_come + sum(segment.own_leftover is not None for segment in feed.segments)
            case m.FilesDealt(feed=number):
                feed = self.feeds[number]
                _resolve(feed, message.shapes)
                # Nothing more will come: the node reads its share of the files by itself.
                feed.segments.extend(file_segments(message, feed.opened.schema))
                feed.files, feed.rows = message, message.rows
            case m.EpochPlan() | m.PlanLater():
                _add_plan(self.feeds[message.feed], message)
            case m.FeedAborted(feed=number, reason=reason):
                self.feeds[number].aborted = reason
            case m.InferenceOpen(queue=queue):
                self.serving.setdefault(queue, _served(message))
            case m.ExchangeRows(shapes=shapes) if INPUT_QUEUE in self.serving:
                _resolve(self.serving[INPUT_QUEUE], shapes)
            case m.FeedsEnded():
                self.ended = True

    def give_up(self) -> None:
        """Nobody is left who would send messages; call it with `changed` held."""
        for feed in self.feeds:
            feed.aborted = feed.aborted or _NOBODY_LEFT
        self.ended = True

    def _add_segment(self, feed: NodeFeed, message: m.SegmentReady) -> None:
        _resolve(feed, message.shapes)
        if message.path:
            feed.segments.append(Segment(message.path, message.rows, message.own_leftover))
            feed.rows_come += message.rows

    # ---- what is read next ------------------------------------------------------------------------------------------

    def find_next(self, timeout_s: float, queue: str) -> NodeFeed | None:
        """Return the feed that the next epoch reads, or None if there is none within this time.

        A feed is read ``epochs`` times before the next one. The last one may be read any number of times once the
        driver has said that no other will come. An epoch that was left before its last step does not count.

        Splits are fed before the rows to train on, so one that has not come by then will not come.
        """
        with self.changed:
            for wait_s in (timeout_s, 0.0):
                if (feed := self._first_unread(queue)) is not None:
                    return feed
                if queue in self.serving:
                    return self.serving[queue]
                if self.ended or (queue != INPUT_QUEUE and (self._of(INPUT_QUEUE) or self._of(queue))):
                    return self._last_feed(queue)
                self.changed.wait(wait_s)
            return None

    def find_next_of_stream(self, timeout_s: float) -> NodeFeed | None:
        """Return the next feed of a stream that is being read, or None if there is none within this time."""
        with self.changed:
            if self._first_unread() is None:
                self.changed.wait(timeout_s)
            feed = self._first_unread()
            return feed if feed is not None and feed.opened.stream else None

    def stream_is_over(self) -> bool:
        """Whether the stream that is being read has no further feed: none will come, or the next is no part of it."""
        with self.changed:
            feed = self._first_unread()
            return self.ended if feed is None else not feed.opened.stream

    def _first_unread(self, queue: str = INPUT_QUEUE) -> NodeFeed | None:
        return next(
            (feed for feed in self._of(queue) if feed.epochs_read < feed.opened.epochs and not feed.aborted), None
        )

    def _last_feed(self, queue: str) -> NodeFeed:
        feeds = self._of(queue)
        if not feeds and queue != INPUT_QUEUE:
            there = ", ".join(repr(feed.opened.queue) for feed in self.feeds if feed.kept)
            has = f"it has {there}" if there else "it has none beside the rows to train on"
            given = "validation=..." if queue == VALIDATION else f"validation={{{queue!r}: ...}}"
            advice = f"give the cell, tfos_lab.run or cluster.train {given}"
            raise FeedError(reason=f"this cluster has no split {queue!r}; {has}: {advice}")
        if not feeds:
            raise FeedError(reason="this cluster is fed no rows: give the cell data=..., or call cluster.train(df)")
        if feeds[-1].aborted is not None:
            raise FeedError(reason=feeds[-1].aborted)
        return feeds[-1]

    def _of(self, queue: str) -> list[NodeFeed]:
        return [feed for feed in self.feeds if feed.opened.queue == queue]

    # ---- rows of any queue, as Python values ------------------------------------------------------------------------

    def find_rows(self, queue: str, timeout_s: float) -> NodeFeed | None:
        """Return the feed of a queue that is to be read next, or None if there is none within this time."""
        with self.changed:
            self.changed.wait_for(lambda: self._rows_to_read(queue) is not None or self.ended, timeout_s)
            return self._rows_to_read(queue)

    def _rows_to_read(self, queue: str) -> NodeFeed | None:
        return self._first_unread(queue) or self.serving.get(queue)

    def is_over(self, queue: str) -> bool:
        """Whether no further rows of a queue will come; a FeedError if its last feed has failed."""
        with self.changed:
            if not self.ended or self._rows_to_read(queue) is not None:
                return False
            if self._of(queue):
                self._last_feed(queue)
            return True

    # ---- waiting ----------------------------------------------------------------------------------------------------

    def wait_for(self, feed: NodeFeed, predicate: Callable[[], bool]) -> None:
        """Wait until the predicate holds; a FeedError if the feed has failed."""
        while not self.holds(feed, predicate, WAIT_STEP_S):
            pass

    def holds(self, feed: NodeFeed, predicate: Callable[[], bool], timeout_s: float) -> bool:
        """Return whether the predicate holds within this time; a FeedError if the feed has failed."""
        with self.changed:
            holds = self.changed.wait_for(lambda: predicate() or feed.aborted is not None, timeout_s)
            if holds and not predicate():
                raise FeedError(reason=str(feed.aborted))
            return holds


def _served(message: m.InferenceOpen) -> NodeFeed:
    opened = m.FeedOpen(
        feed=-1,
        epochs=1,
        remainder="pad",
        schema=message.schema,
        token="",
        objects=message.objects,
        advice=_SERVED_OBJECTS,
        queue=message.queue,
    )
    return NodeFeed(opened, column_specs(message.schema), serving=True)


def _resolve(feed: NodeFeed, shapes: dict[str, list[int]]) -> None:
    """Fill in the lengths of arrays, which only the rows show."""
    if shapes and not feed.resolved:
        feed.resolved = True
        feed.specs = tuple(replace(spec, shape=tuple(shapes[spec.name])) for spec in feed.specs)


def _add_plan(feed: NodeFeed, message: m.EpochPlan | m.PlanLater) -> None:
    """Record what the nodes have agreed on for one dataset, or that they cannot agree yet."""
    if isinstance(message, m.EpochPlan):
        feed.plans.setdefault(message.dataset_id, message)
        return
    feed.unplanned.add(message.dataset_id)
    if not message.alike:
        feed.mixed_sizes.add(message.dataset_id)
