"""What a node's process knows of its feeds, and how it has been asked to read them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tfos_lab.data.batches import row_bytes
from tfos_lab.data.schema import ColumnSpec

# What is handed over to TensorFlow at once, which costs the same for one batch as for many.
_BYTES_AT_ONCE = 16 << 20
_BATCHES_AT_ONCE = 64
# Strings are copied one by one: fewer of them stay in the processor's caches (60,000 of 784 bytes: 42 ms, not 50-77).
_BATCHES_OF_STRINGS_AT_ONCE = 16


@dataclass
class Feed:
    """One feed, as far as it has come to this node."""

    number: int
    epochs: int
    remainder: str
    specs: tuple[ColumnSpec, ...]
    segments: list[tuple[str, int]] = field(default_factory=list)
    resolved: bool = False
    rows: int | None = None
    steps: dict[int, int] = field(default_factory=dict)
    taken: dict[int, int] = field(default_factory=dict)
    unknown: set[int] = field(default_factory=set)
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

    def has_come(self, index: int) -> bool:
        """Whether a segment is here, or will never be."""
        return index < len(self.segments) or self.complete

    def may_end(self, reading: Reading, step: int) -> bool:
        """Whether this step may be the last of an epoch, as far as is known by now."""
        steps = self.steps.get(reading.opening)
        if steps is not None:
            return step == steps
        return step * reading.batch_size >= sum(rows for _, rows in self.segments)

    def is_undecided(self, reading: Reading) -> bool:
        """Whether nobody knows yet if an epoch was left after its last step, and so has been read, or before it."""
        step = self.taken.get(reading.opening, 0)
        return step > 0 and reading.opening not in self.steps and self.may_end(reading, step)

    def plan(self, opening: int, steps: int) -> bool:
        """Take in how many steps an epoch has; returns whether one that is under way has been read by that."""
        if opening in self.steps:
            return False  # nodes that do not wait for one another are told again whenever one opens a dataset
        self.steps[opening] = steps
        return self._count_epoch(opening)

    def take_steps(self, opening: int, step: int) -> bool:
        """Take in that an epoch has come to this step; returns whether it has been read by that."""
        self.taken[opening] = step
        return self._count_epoch(opening)

    def _count_epoch(self, opening: int) -> bool:
        # The last step is often taken before the driver has said that it is the last.
        is_read = 0 < self.taken.get(opening, 0) == self.steps.get(opening)
        self.epochs_read += is_read
        return is_read


@dataclass(frozen=True)
class Reading:
    """How one dataset reads: its number, and what was asked of ``ctx.dataset``."""

    opening: int
    batch_size: int
    remainder: str | None
    shuffle: bool
    seed: int | None

    def rows_at_once(self, feed: Feed) -> int:
        """Return how many rows are handed over at once: several batches, unless they are large."""
        has_strings = any(np.dtype(spec.dtype) == object for spec in feed.specs)
        most = _BATCHES_OF_STRINGS_AT_ONCE if has_strings else _BATCHES_AT_ONCE
        batches = _BYTES_AT_ONCE // (row_bytes(feed.specs) * self.batch_size)
        return self.batch_size * min(max(batches, 1), most)
