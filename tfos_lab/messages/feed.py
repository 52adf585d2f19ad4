"""Feeds: rows on their way to a node, which of them count, and the datasets that read them."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tfos_lab.messages.common import INPUT_QUEUE, Message, TlsIdentity


class FeedOpen(Message, frozen=True):
    """Open endpoints for the rows of a feed: a unix socket and, if ``tls`` is given, a TLS one.

    ``schema`` is the DataFrame's, as Spark writes it in JSON. A feed that is part of a ``stream`` is followed by the
    next one within the same epoch. The node's files of rows may take ``spool_bytes``; 0 leaves the limit to the node.

    Rows that are ``objects`` come pickled, in one column, and ``advice`` says what to do where columns are needed. Each
    ``queue`` of rows is read by itself. Rows of ``files`` need no endpoints: nodes read them themselves (`FilesDealt`).
    """

    feed: int
    epochs: int
    remainder: str
    schema: str
    token: str
    tls: TlsIdentity | None = None
    stream: bool = False
    spool_bytes: int = 0
    objects: bool = False
    advice: str = ""
    queue: str = INPUT_QUEUE
    files: bool = False


class FeedReady(Message, frozen=True):
    """The node's endpoints are open; ``locations`` are Flight locations, the nearest first."""

    rank: int
    feed: int
    locations: list[str]


class AttemptStored(Message, frozen=True):
    """A feed task has stored all its rows on the nodes, ``rows`` on each of them, and asks to commit.

    The ``leftover`` rows, too few to give each node one, are stored on every node, and dealt out when the feed is
    complete.
    """

    rank: int
    feed: int
    partition: int
    attempt: str
    rows: int
    size_bytes: int
    leftover: int = 0
    shapes: dict[str, list[int]] = msgspec.field(default_factory=dict)


class Commit(Message, frozen=True):
    """Make the attempt's rows visible, ``rows`` on each node; any other attempt of the partition is dropped.

    ``shapes`` gives the inner shape of array columns, so that a node without rows knows it, too.
    """

    feed: int
    partition: int
    attempt: str
    rows: int
    leftover: int = 0
    shapes: dict[str, list[int]] = msgspec.field(default_factory=dict)


class CommittedPartition(msgspec.Struct, frozen=True, array_like=True):
    """A partition and its attempt that counts, with the rows that each node has got of it."""

    partition: int
    attempt: str
    rows: int
    leftover: int


class Commits(Message, frozen=True):
    """Several commits of a feed at once, in few bytes: a large cluster gets them a few times a second."""

    feed: int
    partitions: list[CommittedPartition]
    shapes: dict[str, list[int]]

    @property
    def commits(self) -> list[Commit]:
        """The commits, one by one."""
        return [
            Commit(self.feed, one.partition, one.attempt, one.rows, one.leftover, self.shapes)
            for one in self.partitions
        ]


class FeedComplete(Message, frozen=True):
    """All rows of the feed are committed: this node has ``rows`` of them.

    They include those in ``[leftovers[0], leftovers[1])`` of all leftover rows, partition by partition.
    """

    feed: int
    rows: int
    leftovers: tuple[int, int] = (0, 0)


class FeedAborted(Message, frozen=True):
    """The feed failed or was cancelled; what was not committed is dropped."""

    feed: int
    reason: str


class FeedsEnded(Message, frozen=True):
    """There will be no further feed."""


class DatasetOpened(Message, frozen=True):
    """The node's function has opened its ``dataset_id``-th dataset: the steps of its epochs can now be planned."""

    rank: int
    dataset_id: int
    batch_size: int
    remainder: str | None
    shuffle: bool = False


class Share(NamedTuple):
    """One node's part of an epoch, and how many ``nodes`` have the same."""

    rows: int
    batch_size: int
    nodes: int


class EpochPlan(Message, frozen=True):
    """All lock-step nodes take ``steps`` steps in each epoch that their ``dataset_id``-th dataset reads of this feed.

    ``shares`` has each distinct share, so that a node knows the rows of a step on all nodes
    (`tfos_lab.node.feed.schedule`).
    """

    feed: int
    dataset_id: int
    steps: int
    shares: list[Share]


class PlanLater(Message, frozen=True):
    """The dataset ``dataset_id`` is open on all nodes, but the feed is not complete: its steps are not known yet.

    All lock-step nodes receive either this or the `EpochPlan` first, so they agree on whether the length is known.
    Where batch sizes are not ``alike``, it is not known how full a step is before all rows have arrived.
    """

    feed: int
    dataset_id: int
    alike: bool = True


class DataFile(msgspec.Struct, frozen=True):
    """A file of rows: ``path`` is within the file system that ``root`` is on."""

    root: str
    path: str
    size_bytes: int


class FilesAsked(Message, frozen=True):
    """See whether the files of a feed can be read, and count their rows if it is not known how many there are.

    ``numbers`` are those of the ``files`` among all files of the feed; ``count_as`` is their format, if it is to count.
    """

    feed: int
    files: list[DataFile]
    numbers: list[int]
    count_as: str


class FilesFound(Message, frozen=True):
    """The node has found these files: ``blocks`` maps the number of a file to its blocks, if they were counted.

    A block is where it begins, in bytes, and its rows. With the last message, ``done``, the node has looked at all
    files, or ``problem`` says on which ``host`` it failed, and why.
    """

    rank: int
    feed: int
    blocks: dict[int, list[tuple[int, int]]]
    done: bool = False
    problem: str = ""
    host: str = ""


class FilePart(msgspec.Struct, frozen=True):
    """The rows of one file that a node reads; ``number`` is the file's among all files of the feed.

    Each of the ``pieces`` says where to begin (the number of a row group, or a byte), how many rows to skip there, and
    how many to read. ``partition`` has the values of the file's folders, such as ``year=2024``.
    """

    file: DataFile
    pieces: list[tuple[int, int, int]]
    number: int = 0
    partition: dict[str, str | None] = {}


class FilesDealt(Message, frozen=True):
    """The node's share of a feed of files, all of whose rows are known by now; ``format`` is that of the files.

    The agent adds the ``folder`` of its spool, where rows are stored if their order is to be random, and may take
    ``spool_bytes``; 0 leaves the limit to the node.
    """

    feed: int
    format: str
    parts: list[FilePart]
    rows: int
    shapes: dict[str, list[int]] = msgspec.field(default_factory=dict)
    folder: str = ""
    spool_bytes: int = 0


class SegmentReady(Message, frozen=True):
    """Agent to child: the Arrow IPC file at ``path`` holds ``rows`` committed rows of a partition.

    They are followed by its ``leftover`` rows, which are stored on every node.
    """

    feed: int
    path: str
    rows: int
    partition: int = 0
    leftover: int = 0
    shapes: dict[str, list[int]] = msgspec.field(default_factory=dict)


class SegmentRead(Message, frozen=True):
    """The node's function has taken all rows of a segment that is not read again."""

    rank: int
    path: str


class RowsWanted(Message, frozen=True):
    """The node's function has asked for rows for the first time, or for another kind of rows: this node reads.

    ``objects`` says whether it wants Python objects or columns; None if it has asked for neither yet.
    """

    rank: int
    objects: bool | None = None


class RowsTaken(Message, frozen=True):
    """How many real rows the node's function has taken so far, in all epochs.

    ``feeds`` maps each feed that is no part of a stream to its epochs read and rows taken.
    """

    rank: int
    rows: int
    epoch: int
    feeds: dict[int, tuple[int, int]] = msgspec.field(default_factory=dict)


class FeedRead(Message, frozen=True):
    """The node's function has taken the last row of a feed that is part of a stream."""

    rank: int
    feed: int


class FeedStopped(Message, frozen=True):
    """The node's function wants no more rows."""

    rank: int


FromAgent = (
    FeedReady
    | AttemptStored
    | FilesFound
    | RowsWanted
    | DatasetOpened
    | SegmentRead
    | RowsTaken
    | FeedRead
    | FeedStopped
)
ToAgent = (
    FeedOpen
    | Commit
    | Commits
    | FilesAsked
    | FilesDealt
    | FeedComplete
    | FeedAborted
    | FeedsEnded
    | EpochPlan
    | PlanLater
    | SegmentReady
)
