"""What a node's process knows of its feeds, and how it has been asked to read them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tfos_lab.data.rows import row_bytes
from tfos_lab.data.schema import ColumnSpec
from tfos_lab.messages import EpochPlan
from tfos_lab.node.feed.schedule import Schedule
from tfos_lab.node.feed.segments import Segment

# What is handed over to TensorFlow at once, which costs the same for one batch as for many.
_BYTES_AT_ONCE = 16 << 20
_BATCHES_AT_ONCE = 64
# Strings are copied one by one: fewer of them stay in the processor's caches (60,000 of 784 bytes: 42 ms, not 50-77).
_BATCHES_OF_STRINGS_AT_ONCE = 16


@dataclass
class NodeFeed:
    """One feed, as far as it has come to this node."""

    number: int
    epochs: int
    remainder: str
    specs: tuple[ColumnSpec, ...]
    segments: list[Segment] = field(default_factory=list)
    resolved: bool = False
    rows: int | None = None
    leftovers: tuple[int, int] = (0, 0)
    plans: dict[int, EpochPlan] = field(default_factory=dict)
    unknown: set[int] = field(default_factory=set)
    unlike: set[int] = field(default_factory=set)
    aborted: str | None = None
    epochs_read: int = 0
    rows_taken: int = 0
    stream: bool = False
    told: bool = False
    serving: bool = False

    @property
    def complete(self) -> bool:
        """Whether all rows have come."""
        return self.rows is not None

    @property
    def rows_come(self) -> int:
        """How many rows have come that are surely this node's."""
        return sum(segment.rows for segment in self.segments)

    def steps(self, reading: Reading) -> int | None:
        """Return how many steps an epoch has, if that is known by now."""
        plan = self.plans.get(reading.dataset_id)
        return None if plan is None else plan.steps

    def schedule(self, reading: Reading) -> Schedule | None:
        """Return how the rows become steps, if that is known by now."""
        plan = self.plans.get(reading.dataset_id)
        if plan is None or self.rows is None:
            return None
        return Schedule(plan.steps, self.rows, reading.batch_size, plan.shares)

    def has_come(self, index: int) -> bool:
        """Whether a segment is here, or will never be."""
        return index < len(self.segments) or self.complete

    def is_last(self, reading: Reading, step: int) -> bool:
        """Whether this step is the last of an epoch; none is taken as long as that is not known."""
        return step == self.steps(reading)

    def take_steps(self, reading: Reading, step: int) -> bool:
        """Take in that an epoch has come to this step; returns whether it has been read by that."""
        is_read = self.is_last(reading, step)
        self.epochs_read += is_read
        return is_read


@dataclass(frozen=True)
class Reading:
    """How one dataset reads: its number, and what was asked of ``ctx.dataset``."""

    dataset_id: int
    batch_size: int
    remainder: str | None
    shuffle: bool
    seed: int | None

    def rows_at_once(self, feed: NodeFeed) -> int:
        """Return how many rows are handed over at once: several batches, unless they are large."""
        has_strings = any(np.dtype(spec.dtype) == object for spec in feed.specs)
        most = _BATCHES_OF_STRINGS_AT_ONCE if has_strings else _BATCHES_AT_ONCE
        batches = _BYTES_AT_ONCE // (row_bytes(feed.specs) * self.batch_size)
        return self.batch_size * min(max(batches, 1), most)
