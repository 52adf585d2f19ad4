"""Which nodes read the rows of a cluster, and how far each of them has read.

Pure state, used by the feed state. With parameter servers, the function decides who reads: under
ParameterServerStrategy only the chief does, and workers serve it from within ``ctx.strategy()``; if each worker trains
by itself, all of them read. Which kind a node is becomes known when it first asks for rows, or begins to serve.
"""

from __future__ import annotations

from collections.abc import Mapping

from tfos_lab.core import messages as m
from tfos_lab.core.states import NodeState
from tfos_lab.texts import format_count

_ALL_EPOCHS = "Pass epochs=ctx.epochs to Keras' fit, or read ctx.dataset(...) ctx.epochs times"
_TO_THE_END = "Read ctx.dataset(...) or ctx.data_feed() to the end"
_READ_SOME = (
    "loop over ctx.dataset(batch_size) in the function (Keras: model.fit(ctx.dataset(...), epochs=ctx.epochs)), or "
    "over ctx.data_feed(), feed no data, or call ctx.stop_feed() where none is wanted"
)
NOTHING_READ = f"no node has read any row of what this cluster was fed: {_READ_SOME}"


def returned_unread(nodes: list[str]) -> str:
    """Return the message for nodes that have returned, where no node has asked for rows."""
    return f"{', '.join(nodes)} returned, and no node has read any row: {_READ_SOME}"


def queue_unread(queue: str) -> str:
    """Return the message for rows of a queue that no node has read."""
    return (
        f"no node has read any row of the queue '{queue}': read them with ctx.data_feed(queue='{queue}') until its "
        "should_stop(), feed none there, or call ctx.stop_feed() where none is wanted"
    )


NOBODY_READS = (
    "all nodes that train only serve others, and none reads rows: in a cluster with parameter servers the chief reads, "
    "elsewhere nodes read that do not call ctx.start_server().join()"
)


def never_asked(nodes: list[str], waited_s: float) -> str:
    """Return the message for nodes that have neither asked for rows nor begun to serve."""
    return (
        f"{', '.join(nodes)} neither asked for rows nor began to serve within {waited_s:g} s: have each call "
        "ctx.dataset or ctx.data_feed, or serve the chief with ctx.strategy() (ctx.start_server().join() for a server "
        "of your own), or raise feed_timeout (timeout of cluster.train)"
    )


def not_open(nodes: list[str], waited_s: float) -> str:
    """Return the message for nodes to which no rows can be sent yet."""
    return f"{', '.join(nodes)} did not open their endpoints for rows within {waited_s:g} s"


class Readers:
    """The nodes that are fed, by rank, and how far they have read; all of them read unless they serve (``all_read``).

    `candidates` are all that may be fed, whether or not they read, and `returned` those of them whose function has, so
    that they read nothing more. `objects` says which kind of rows was asked for last: Python objects or columns; None
    if neither has been yet.
    """

    def __init__(self, names: Mapping[int, str], *, all_read: bool) -> None:
        self._names = names
        self.candidates = tuple(names)
        self.returned: set[int] = set()
        self._all_read = all_read
        self._asking: set[int] = set()
        self.objects: bool | None = None
        self._serving: set[int] = set()
        self._progress: dict[int, dict[int, tuple[int, int]]] = {}
        self._taken: dict[int, int] = {}
        self._stopped_after: set[int] = set()
        self._keeping: set[int] = set()

    def handle(self, message: m.FromAgent) -> None:
        """Handle an agent's message."""
        match message:
            case m.RowsWanted(rank=rank, objects=objects):
                self._asking.add(rank)
                self.objects = self.objects if objects is None else objects
            case m.DatasetOpened(rank=rank):
                self._asking.add(rank)
            case m.Progressed(rank=rank, state=NodeState.SERVING) if rank in self._names:
                self._serving.add(rank)
            case m.Ended(rank=rank, outcome=m.Outcome(kind="returned")) if rank in self._names:
                self.returned.add(rank)
                if message.outcome.keeps_rows:
                    self._keeping.add(rank)
                if rank not in self._serving:
                    self._stopped_after.add(message.outcome.stopped_after)
            case m.RowsTaken(rank=rank, rows=rows, feeds=feeds):
                self._taken[rank] = rows
                self._progress[rank] = feeds

    @property
    def ranks(self) -> list[int]:
        """The nodes that read, or may yet read."""
        return [rank for rank in self._names if rank not in self._serving]

    def is_reading(self, rank: int) -> bool:
        """Whether a node reads, or may yet read, and its function has not returned."""
        return rank not in self._serving and rank not in self.returned

    @property
    def any_reading(self) -> bool:
        """Whether there is any such node."""
        return any(map(self.is_reading, self.candidates))

    @property
    def undecided(self) -> list[str]:
        """The nodes of which it is not known yet whether they read; those that have returned will not."""
        if self._all_read:
            return []
        decided = self._asking | self._serving | self.returned
        return [name for rank, name in self._names.items() if rank not in decided]

    @property
    def has_asked(self) -> bool:
        """Whether any node has asked for rows."""
        return bool(self._asking)

    def has_read_of(self, feed: int) -> bool:
        """Whether any node has taken any row of a feed."""
        return any(progress.get(feed, (0, 0))[1] for progress in self._progress.values())

    @property
    def never_read(self) -> list[int]:
        """The nodes that may yet read, and have taken no row of any feed."""
        return [rank for rank in self.candidates if self.is_reading(rank) and not self._taken.get(rank)]

    @property
    def has_read(self) -> bool:
        """Whether any node has taken any row."""
        return any(self._taken.values())

    @property
    def stopped_early(self) -> str:
        """A sentence if Keras' `fit` was stopped on all nodes after the same epoch, so that they read no more rows."""
        epoch = max(self._stopped_after, default=0) if len(self._stopped_after) == 1 else 0
        return f"stopped early after epoch {epoch}" if epoch else ""

    def unread(self, feed: int, epochs: int, rows: Mapping[int, int]) -> str:
        """Return a sentence on what nodes have left unread of a feed of which they hold ``rows``, or "" for nothing.

        It says what to do about it.
        """
        left = self.left(feed, epochs, rows)
        nodes: dict[str, list[str]] = {}
        for rank, (epochs_read, taken) in left.items():
            nodes.setdefault(_share(epochs_read, epochs, taken, rows[rank]), []).append(self._names[rank])
        parts = "; ".join(f"{', '.join(names)} read {share}" for share, names in nodes.items())
        advice = f"{_ALL_EPOCHS if epochs > 1 else _TO_THE_END}, or call ctx.stop_feed() where no more are wanted"
        return f"rows were left unread: {parts}. {advice}" if left else ""

    def left(self, feed: int, epochs: int, rows: Mapping[int, int]) -> dict[int, tuple[int, int]]:
        """Return, for each node that has not read all it holds, the epochs that it has read and the rows taken."""
        left = {}
        for rank, held in rows.items():
            epochs_read, taken = self._progress.get(rank, {}).get(feed, (0, 0))
            # A node may have left after its last step before it knew that it was the last.
            wanted = 1 if rank in self._keeping else epochs
            if epochs_read < wanted and taken < held * wanted:
                left[rank] = epochs_read, taken
        return left


def _share(epochs_read: int, epochs: int, taken: int, rows: int) -> str:
    if not taken:
        return "none of its rows"
    return f"{epochs_read} of {epochs} epochs" if epochs > 1 else f"{taken:,} of {format_count(rows, 'row')}"
