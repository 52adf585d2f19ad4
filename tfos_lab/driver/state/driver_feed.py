"""One feed as the driver knows it: what was committed, what Spark announced, and how far it is."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tfos_lab.core.messages import INPUT_QUEUE, KEPT
from tfos_lab.driver.state.events import FeedProgressed
from tfos_lab.driver.state.instructions import Instruction, Publish


@dataclass
class DriverFeed:
    """The rows of one feed; `FeedState` alone changes it."""

    number: int
    # The nodes that are fed, by rank.
    names: Mapping[int, str]
    epochs: int
    # Which call of `Cluster.train` it belongs to, and which ``ctx.data_feed`` reads it.
    source: int = 0
    stream: bool = False
    queue: str = INPUT_QUEUE
    # Of the nodes whose endpoints are open, by rank.
    locations: dict[int, list[str]] = field(default_factory=dict)
    # The attempt that counts, by partition.
    committed: dict[int, str] = field(default_factory=dict)
    # Rows committed on each node by tasks, which deal them out evenly: one number for thousands of nodes. Beside these,
    # the rows of single nodes, by rank: leftover rows, or their shares of files.
    each: int = 0
    own: Counter[int] = field(default_factory=Counter)
    size_bytes: int = 0
    # What Spark's job has produced; None until it is over. What Spark says it will produce is only shown.
    expected_rows: int | None = None
    expected_partitions: int | None = None
    foreseen_partitions: int | None = None
    tasks: tuple[int, int] | None = None
    # Steps of an epoch that the nodes have agreed on, by dataset.
    steps: dict[int, int] = field(default_factory=dict)
    # Nodes that have read this feed of a stream.
    read_by: set[int] = field(default_factory=set)
    state: Literal["open", "complete", "aborted"] = "open"
    # How long its rows may lie still, and when all had come.
    timeout_s: float = 0.0
    complete_s: float | None = None
    # Whether it ended early, as a node wants no more rows.
    is_cut: bool = False
    # Of a feed of files: the blocks of those that nodes have counted, by the number of the file; and what the nodes
    # that have looked at all theirs have found wrong, by rank: mostly nothing.
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
        return {rank: self.rows_of(rank) for rank in self.names}

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
                    rows={name: self.rows_of(rank) for rank, name in self.names.items()},
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
