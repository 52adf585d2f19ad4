"""The clock of a node's steps: whoever hands a batch to the function, or hears of a step, ticks it."""

from __future__ import annotations

import statistics
import time
from collections import deque

# Step times are the median of those of the last seconds, of at most so many, and of the last few if they are longer.
_RECENT_S = 5.0
_MOST_STEPS = 50
_FEWEST_STEPS = 3
# A clock that others than loops over data tick counts only where there are no such loops.
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
        self._reports = _Ticks()
        self._reported: int | None = None

    def take_batch(self) -> None:
        """Count a step: the function takes its next batch."""
        self._batches.tick(time.perf_counter())

    def report(self, step: int) -> None:
        """Note that the function says that it has done so many steps."""
        before, self._reported = self._reported, step
        if before is None or step < before:
            self._reports = _Ticks()
            self._reports.tick(time.perf_counter(), step)
        elif step > before:
            self._reports.tick(time.perf_counter(), step - before)

    def read(self) -> tuple[int | None, float | None]:
        """Return how many steps there have been, and the median seconds of the last ones; None where not known."""
        ticks = self._batches
        if ticks.ticked_s is None or (self._is_stale(ticks) and self._reports.step):
            ticks = self._reports
        if ticks.ticked_s is None:
            return None, None
        return ticks.step, ticks.median_s(time.perf_counter())

    def _is_stale(self, ticks: _Ticks) -> bool:
        reported_s = self._reports.ticked_s
        return ticks.ticked_s is not None and reported_s is not None and reported_s - ticks.ticked_s > _STALE_S


STEPS = StepClock()
