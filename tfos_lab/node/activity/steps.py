"""The clock of a node's steps: whoever hands a batch to the function, or hears of a step, ticks it."""

from __future__ import annotations

import statistics
import time
from collections import deque

# In an epoch of Keras' `fit`, a step takes the mean of its steps so far; elsewhere, the median of those of the last
# seconds, of at most so many, and of the last few if they are longer.
_RECENT_S = 5.0
_MOST_STEPS = 50
_FEWEST_STEPS = 3
# What counts best goes first, unless it has stopped for so long while others go on.
_STALE_S = 10.0


class _Ticks:
    """Steps from one kind of source."""

    def __init__(self) -> None:
        self.step = 0
        self.seen_s: float | None = None
        self.ticked_s: float | None = None
        self.seconds: deque[tuple[float, float]] = deque(maxlen=_MOST_STEPS)

    def count(self, now_s: float, steps: int = 1) -> None:
        """Count steps whose time is of no interest; the time until the next one is of none, either."""
        self.step += steps
        self.seen_s, self.ticked_s = now_s, None

    def tick(self, now_s: float, steps: int = 1) -> None:
        if self.ticked_s is not None and steps > 0:
            self.seconds.append((now_s, (now_s - self.ticked_s) / steps))
        self.step += steps
        self.seen_s = self.ticked_s = now_s

    def median_s(self, now_s: float) -> float | None:
        # The other thread may append meanwhile.
        seconds = list(self.seconds)
        recent = [step_s for ended_s, step_s in seconds if now_s - ended_s <= _RECENT_S]
        if len(recent) < _FEWEST_STEPS:
            recent = [step_s for _, step_s in seconds[-_FEWEST_STEPS:]]
        return statistics.median(recent) if recent else None


class _Epoch:
    """The steps of an epoch. The first one is left out, as Keras does: functions are traced in it."""

    def __init__(self, mean_s: float | None) -> None:
        self.mean_s = mean_s  # until there are two, that of the epoch before
        self.is_over = False
        self._steps = 0
        self._first_s = 0.0

    def tick(self, now_s: float) -> None:
        if self._steps == 0:
            self._first_s = now_s
        else:
            self.mean_s = (now_s - self._first_s) / self._steps
        self._steps += 1


class StepClock:
    """Counts steps and how long they take. Called by the thread that trains, read by another.

    It ``evaluates`` while a model is evaluated, or predicts.
    """

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Begin anew: another function runs."""
        self._batches = _Ticks()
        self._fetches = _Ticks()
        self._reports = _Ticks()
        self._epoch: _Epoch | None = None
        self.evaluates = False

    def begin_epoch(self) -> None:
        """Note that an epoch of `fit` begins."""
        self.evaluates = False  # an evaluation that failed has not said that it ended
        self._epoch = _Epoch(self._epoch.mean_s if self._epoch is not None else None)

    def end_fit(self) -> None:
        """Note that `fit` ends: the time of its steps stays until others are taken."""
        if self._epoch is not None:
            self._epoch.is_over = True

    def evaluate(self, *, begins: bool) -> None:
        """Note that a model is evaluated from now on, or no longer: its steps are signs of work, and no training."""
        self.evaluates = begins

    def take_batch(self) -> None:
        """Count a step: the function takes its next batch."""
        now_s = time.perf_counter()
        if self.evaluates:
            self._batches.count(now_s)
            return
        self._batches.tick(now_s)
        if self._epoch is not None:
            if self._epoch.is_over:
                self._epoch = None
            else:
                self._epoch.tick(now_s)

    def fetch(self, steps: int) -> None:
        """Note that TensorFlow has fetched so many batches in all, where Python does not see each of them."""
        if steps > self._fetches.step:
            note = self._fetches.count if self.evaluates else self._fetches.tick
            note(time.perf_counter(), steps - self._fetches.step)

    def report(self, step: int) -> None:
        """Note that the function says that it has done so many steps."""
        if step < self._reports.step:
            self._reports = _Ticks()
        if step > self._reports.step:
            self._reports.tick(time.perf_counter(), step - self._reports.step)

    def read(self) -> tuple[int | None, float | None]:
        """Return how many steps there have been, and the seconds of one of the last ones; None where not known."""
        epoch_s = self._epoch.mean_s if self._epoch is not None else None
        known = [(ticks.seen_s, ticks) for ticks in (self._batches, self._fetches, self._reports)]
        latest_s = max((seen_s for seen_s, _ in known if seen_s is not None), default=0.0)
        for seen_s, ticks in known:
            if seen_s is not None and latest_s - seen_s <= _STALE_S:
                return ticks.step, epoch_s or ticks.median_s(time.perf_counter())
        return None, None


STEPS = StepClock()


class Fits:
    """What training with Keras has told last; noted by what `node.keras` patches, and read by other threads.

    A model ``is_alone`` if it trains without the other nodes, by `fit` or in a loop of the user's own. It
    ``has_arrays`` if Keras makes its batches of them, and no pipeline of the user's does. ``last_epoch`` is how many
    epochs have ended, and with which learning rate the last one has; None where that is not known. ``stopped_after`` is
    the epoch after which `fit` was stopped before the last one (``model.stop_training``); 0 if it was not. A function
    that has cached fed rows ``keeps_rows``.
    """

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Begin anew: another function runs."""
        self.is_alone = self.has_arrays = self.keeps_rows = False
        self.stopped_after = 0
        self.last_epoch: tuple[int, float | None] = 0, None

    def end_epoch(self, learning_rate: float | None) -> None:
        """Note that an epoch has ended of a model that the nodes train together."""
        if not self.is_alone:
            self.last_epoch = self.last_epoch[0] + 1, learning_rate


FITS = Fits()
