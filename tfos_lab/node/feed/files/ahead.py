"""Reads ahead on threads of its own, in order: rows are decoded while the function trains on those before them."""

from __future__ import annotations

import itertools
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")
# How many items a thread may be ahead.
_MOST_AHEAD = 8
_STEP_S = 0.2
_numbers = itertools.count()


def default_threads() -> int:
    """Return how many threads a node reads with: it shares its host's cores with training, and with other nodes."""
    return max(1, min(4, (os.cpu_count() or 1) // 2))


def read_ahead(sources: Iterable[Callable[[], Iterator[T]]], threads: int) -> Iterator[T | None]:
    """Yield all items of all sources, in order; None now and then while there is nothing.

    Parameters
    ----------
    sources : iterable of callable
        Each returns an iterator, which a thread of its own goes through.
    threads : int
        How many of them at once.
    """
    waiting = iter(sources)
    running: deque[_Source[T]] = deque()
    try:
        while True:
            while sum(not source.has_ended for source in running) < threads and len(running) <= threads:
                following = next(waiting, None)
                if following is None:
                    break
                running.append(_Source(following))
            if not running:
                return
            yield from running[0].items()
            running.popleft().stop()
    finally:
        for source in running:
            source.stop()


class _Source(Generic[T]):
    """One source, and the thread that reads it."""

    def __init__(self, read: Callable[[], Iterator[T]]) -> None:
        self._read = read
        self._items: queue.Queue[T | BaseException | None] = queue.Queue(_MOST_AHEAD)
        self._stopped = threading.Event()
        self.has_ended = False
        self._thread = threading.Thread(target=self._run, name=f"tfos-files-{next(_numbers)}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            for item in self._read():
                if not self._put(item):
                    return
        except BaseException as raised:  # noqa: BLE001 - raised again where the items are wanted
            error = raised
        finally:
            self.has_ended = True
            self._put(error)

    def _put(self, item: T | BaseException | None) -> bool:
        while not self._stopped.is_set():
            try:
                self._items.put(item, timeout=_STEP_S)
            except queue.Full:
                continue
            return True
        return False

    def items(self) -> Iterator[T | None]:
        """Yield its items; None now and then while there is none."""
        while True:
            try:
                item = self._items.get(timeout=_STEP_S)
            except queue.Empty:
                yield None
                continue
            if isinstance(item, BaseException):
                raise item
            if item is None:
                return
            yield item

    def stop(self) -> None:
        """Have the thread end with the item that it reads."""
        self._stopped.set()
