"""How much of the training is done, and how long the rest will take. Pure: views and times go in."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tfos_lab.engine.diagnosis.figures import trains
from tfos_lab.engine.state.events import FeedView, NodeView

# The speed is that of the last half minute: the first steps are slow, as TensorFlow traces functions.
_WINDOW_S = 30.0
_SAMPLE_EVERY_S = 1.0
# Of less than this, no speed can be told.
_SHORTEST_S = 2.0


def progress_of(nodes: Sequence[NodeView], feeds: Sequence[FeedView] = ()) -> float | None:
    """Return which part of the training is done, 0 to 1, or None if that is not known.

    By steps where nodes that train have said how many there will be, else by rows where all of them have arrived.
    """
    training = [node for node in nodes if trains(node)]
    parts = [_part(node.step or 0, node.total_steps) for node in training if node.total_steps]
    if parts:
        # Nodes that do not report are as far as the others: often only the chief does.
        return sum(parts) / len(parts)
    rows = sum(sum(feed.rows.values()) * feed.epochs for feed in feeds)
    if not rows or not all(feed.kind == "table" and feed.complete for feed in feeds):
        return None
    return _part(sum(node.rows for node in training), rows)


def _part(done: int, total: int) -> float:
    return max(0.0, min(1.0, done / total))


class TimeLeft:
    """Tells from the progress of the last seconds how long the rest will take."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque()

    def note(self, progress: float | None, now_s: float) -> float | None:
        """Record the progress at a time; return the seconds that are left, or None if that is not known."""
        if progress is None:
            self._samples.clear()
            return None
        if self._samples and progress < self._samples[-1][1]:
            self._samples.clear()  # the nodes have started again
        if not self._samples or now_s - self._samples[-1][0] >= _SAMPLE_EVERY_S:
            self._samples.append((now_s, progress))
        while len(self._samples) > 2 and now_s - self._samples[1][0] >= _WINDOW_S:
            self._samples.popleft()
        return _left(progress, now_s, self._samples[0])


def _left(progress: float, now_s: float, first: tuple[float, float]) -> float | None:
    elapsed_s, done = now_s - first[0], progress - first[1]
    if progress >= 1.0:
        return 0.0
    return (1.0 - progress) * elapsed_s / done if elapsed_s >= _SHORTEST_S and done > 0 else None
