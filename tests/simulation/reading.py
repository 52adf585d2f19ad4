"""Rows on a node: what its agent has stored of a feed, and what its function reads."""

from __future__ import annotations

from dataclasses import dataclass

from tfos_lab.core import messages as m

Row = tuple[int, int]


@dataclass(frozen=True)
class Stored:
    """What a node holds of a partition: rows of its own, and leftovers, which are on every node.

    It is the ``place``-th of all ``nodes``.
    """

    own: list[Row]
    leftover: list[Row]
    place: int
    nodes: int


@dataclass(frozen=True)
class Segment:
    """The rows of a partition that are a node's."""

    partition: int
    rows: list[Row]


class Spool:
    """What tasks have stored with one agent, by feed and partition, and then by attempt."""

    def __init__(self) -> None:
        self.size = 0
        self._stored: dict[tuple[int, int], dict[str, Stored]] = {}
        self._over: set[int] = set()

    def store(self, feed: int, partition: int, attempt: str, rows: Stored) -> None:
        self.size += len(rows.own) + len(rows.leftover)
        if feed not in self._over:
            self._stored.setdefault((feed, partition), {})[attempt] = rows

    def commit(self, message: m.Commit) -> Segment:
        """Return the rows of the attempt that counts, and drop those of others."""
        stored = self._stored.pop((message.feed, message.partition), {}).get(message.attempt)
        if stored is None:
            assert not message.rows, "committed rows are stored"
            assert not message.leftover, "committed rows are stored"
            return Segment(message.partition, [])
        turns = enumerate(stored.leftover, message.dealt)  # all nodes take them in turn, and have taken some before
        leftover = [row for turn, row in turns if turn % stored.nodes == stored.place]
        return Segment(message.partition, stored.own + leftover)

    def drop(self, feed: int) -> None:
        """Drop what was not committed: the feed is over."""
        self._over.add(feed)
        self._stored = {key: rows for key, rows in self._stored.items() if key[0] != feed}


class Reader:
    """The function's dataset: it has all rows of this node, once.

    ``plan`` is what the nodes have agreed on; ``is_done`` says whether everything has come, and ``aborted`` why no more
    rows come.
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.plan: m.EpochPlan | None = None
        self.is_done = False
        self.aborted = ""
        self._segments: list[Segment] = []
        self._is_complete = False

    def open(self) -> list[m.FromAgent]:
        """Return what the function says when it opens its dataset."""
        return [m.RowsWanted(objects=False), m.DatasetOpened(dataset_id=0, batch_size=2, remainder="exact")]

    def take(self, message: object) -> None:
        """Take what the agent passes on."""
        match message:
            case Segment():
                self._segments.append(message)
            case m.FeedComplete():
                self._is_complete = True
            case m.EpochPlan():
                self.plan = message
            case m.FeedAborted(reason=reason):
                self.aborted = reason
        if self._is_complete and self.plan is not None and not self.is_done:
            segments = sorted(self._segments, key=lambda segment: segment.partition)
            self.rows = [row for segment in segments for row in segment.rows]
            self.is_done = True

    def taken(self) -> m.RowsTaken:
        """Return how much it has read."""
        return m.RowsTaken(rows=len(self.rows), feeds={0: (1, len(self.rows))} if self.rows else {})
