"""The clock of a node's steps: whoever hands a batch to the function, or hears of a step, ticks it."""

from __future__ import annotations

import statistics
import time
from collections import deque

# Step times are the median of those of the last seconds, of at most so many, and of the last few if they are longer.
_RECENT_S = 5.0
_MOST_STEPS = 50
_FEWEST_STEPS = 3
# What counts best goes first, unless it has stopped for so long while others go on.
_STALE_S = 10.0


class _Ticks:
    """Steps from one kind of source."""

    def __init__(self) -> None:
        self.step = 0
        self.ticked_s: float | None = None
        self.seconds: deque[tuple[float, float]] = deque(maxlen=_MOST_STEPS)

    def tick(self, now_s: float, steps: int = 1) -> None:
        if self.ticked_s is not None and steps > 0:
            self.seconds.append((now_s, (now_s - self.ticked_s) / steps))
        self.step += steps
        self.ticked_s = now_s

    def median_s(self, now_s: float) -> float | None:
        # The other thread may append meanwhile.
        seconds = list(self.seconds)
        recent = [step_s for ended_s, step_s in seconds if now_s - ended_s <= _RECENT_S]
        if len(recent) < _FEWEST_STEPS:
            recent = [step_s for _, step_s in seconds[-_FEWEST_STEPS:]]
        return statistics.median(recent) if recent else None


class StepClock:
    """Counts steps and how long they take. Called by the thread that trains, read by another."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Begin anew: another function runs."""
        self._batches = _Ticks()
        self._fetches = _Ticks()
        self._reports = _Ticks()

    def take_batch(self) -> None:
        """Count a step: the function takes its next batch."""
        self._batches.tick(time.perf_counter())

    def fetch(self, steps: int) -> None:
        """Note that TensorFlow has fetched so many batches in all, where Python does not see each of them."""
        if steps > self._fetches.step:
            self._fetches.tick(time.perf_counter(), steps - self._fetches.step)

    def report(self, step: int) -> None:
        """Note that the function says that it has done so many steps."""
        if step < self._reports.step:
            self._reports = _Ticks()
        if step > self._reports.step:
            self._reports.tick(time.perf_counter(), step - self._reports.step)

    def read(self) -> tuple[int | None, float | None]:
        """Return how many steps there have been, and the median seconds of the last ones; None where not known."""
        known = [(ticks.ticked_s, ticks) for ticks in (self._batches, self._fetches, self._reports)]
        latest_s = max((ticked_s for ticked_s, _ in known if ticked_s is not None), default=0.0)
        for ticked_s, ticks in known:
            if ticked_s is not None and latest_s - ticked_s <= _STALE_S:
                return ticks.step, ticks.median_s(time.perf_counter())
        return None, None


STEPS = StepClock()


class Fits:
    """What Keras' `fit` has told last; noted by what `node.keras` patches, and read by other threads.

    Attributes
    ----------
    is_alone : bool
        Whether its model trains without the other nodes.
    stopped_after : int
        The epoch after which it was stopped before the last one (``model.stop_training``); 0 if it was not.
    """

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Begin anew: another function runs."""
        self.is_alone = False
        self.stopped_after = 0


FITS = Fits()
