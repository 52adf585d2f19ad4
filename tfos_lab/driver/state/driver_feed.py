"""One feed as the driver knows it: what was committed, what Spark announced, and how far it is."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tfos_lab.core.messages import INPUT_QUEUE, KEPT
from tfos_lab.driver.state.events import FeedProgressed
from tfos_lab.driver.state.instructions import Instruction, Publish


@dataclass
class DriverFeed:
    """The rows of one feed; `FeedState` alone changes it.

    Attributes
    ----------
    names : mapping of int to str
        The nodes that are fed, by rank.
    source : int
        Which call of `Cluster.train` it belongs to.
    queue : str
        Which ``ctx.data_feed`` reads it.
    locations : dict of int to list of str
        Locations of the nodes whose endpoints are open, by rank.
    committed : dict of int to str
        The attempt that counts, by partition.
    each : int
        Rows committed on each node by tasks, which deal them out evenly: one number for thousands of nodes.
    own : counter of int
        Beside these, the rows of single nodes, by rank: leftover rows, or their shares of files.
    expected_rows, expected_partitions : int or None
        What Spark's job has produced; None until it is over.
    foreseen_partitions : int or None
        What Spark says it will produce; only shown.
    steps : dict of int to int
        Steps of an epoch that the nodes have agreed on, by dataset.
    read_by : set of int
        Nodes that have read this feed of a stream.
    state : str
        ``"open"``, ``"complete"`` or ``"aborted"``.
    timeout_s : float
        How long its rows may lie still.
    complete_s : float or None
        When all its rows had come.
    is_cut : bool
        Whether it ended early, as a node wants no more rows.
    blocks : dict of int to list of tuple of int
        Of a feed of files, the blocks of those that nodes have counted, by the number of the file.
    problems : dict of int to str
        Of a feed of files, what the nodes that have looked at all theirs have found wrong, by rank; mostly nothing.
    """

    number: int
    names: Mapping[int, str]
    epochs: int
    source: int = 0
    stream: bool = False
    queue: str = INPUT_QUEUE
    locations: dict[int, list[str]] = field(default_factory=dict)
    committed: dict[int, str] = field(default_factory=dict)
    each: int = 0
    own: Counter[int] = field(default_factory=Counter)
    size_bytes: int = 0
    expected_rows: int | None = None
    expected_partitions: int | None = None
    foreseen_partitions: int | None = None
    tasks: tuple[int, int] | None = None
    steps: dict[int, int] = field(default_factory=dict)
    read_by: set[int] = field(default_factory=set)
    state: str = "open"
    timeout_s: float = 0.0
    complete_s: float | None = None
    is_cut: bool = False
    blocks: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    problems: dict[int, str] = field(default_factory=dict)

    @property
    def kept(self) -> bool:
        """Whether these are the rows of a split: kept to be read whenever the function asks, or never."""
        return self.epochs == KEPT

    @property
    def is_to_be_read(self) -> bool:
        """Whether all of its rows are to be read: a stream has no end to read to, and a split may be left alone."""
        return not (self.stream or self.kept)

    def rows_of(self, rank: int) -> int:
        """Return the rows committed on a node; none if it is not fed."""
        return self.each + self.own.get(rank, 0) if rank in self.names else 0

    @property
    def rows(self) -> dict[int, int]:
        """Rows committed, by rank."""
        return {rank: self.each + self.own.get(rank, 0) for rank in self.names}

    @functools.cached_property
    def ranks(self) -> tuple[int, ...]:
        """The nodes that are fed."""
        return tuple(self.names)

    @property
    def late(self) -> list[str]:
        """The nodes whose endpoints are not open yet, by name."""
        return [name for rank, name in self.names.items() if rank not in self.locations]

    @property
    def total_partitions(self) -> int | None:
        """How many partitions there will be, as far as Spark has said."""
        return self.foreseen_partitions if self.expected_partitions is None else self.expected_partitions

    @property
    def total_rows(self) -> int:
        """Rows committed on all nodes."""
        return self.each * len(self.names) + self.own.total()

    @property
    def all_committed(self) -> bool:
        """Whether Spark's job is over and all its partitions are committed."""
        return self.expected_partitions is not None and len(self.committed) >= self.expected_partitions

    def progress(self, now_s: float) -> list[Instruction]:
        """Return the event that shows how far it is."""
        return [
            Publish(
                FeedProgressed(
                    time_s=now_s,
                    feed=self.number,
                    rows={name: self.each + self.own.get(rank, 0) for rank, name in self.names.items()},
                    partitions=len(self.committed),
                    size_bytes=self.size_bytes,
                    complete=self.state == "complete",
                    steps=self.steps.get(0),
                    epochs=1 if self.kept else self.epochs,
                    total_partitions=self.total_partitions,
                    tasks=self.tasks,
                    source=self.source,
                    stream=self.stream,
                    split=self.queue if self.kept else "",
                )
            )
        ]
