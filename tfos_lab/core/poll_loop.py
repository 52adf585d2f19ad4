"""A poll loop: calls back when a socket or descriptor can be read or written."""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Protocol


class HasFileno(Protocol):
    """Anything with a file descriptor, such as a `FrameSocket`."""

    def fileno(self) -> int:
        """Return the file descriptor."""


Pollable = int | HasFileno


class PollLoop:
    """Callbacks by source; for one thread."""

    def __init__(self) -> None:
        self._poller = select.poll()
        self._callbacks: dict[int, Callable[[], None]] = {}

    def watch(self, source: Pollable, callback: Callable[[], None]) -> None:
        """Call ``callback`` whenever the source can be read."""
        fd = _fd_of(source)
        self._callbacks[fd] = callback
        self._poller.register(fd, select.POLLIN)

    def watch_writing(self, source: Pollable, *, wanted: bool) -> None:
        """Start or stop calling back also when a watched source can be written."""
        fd = _fd_of(source)
        if fd in self._callbacks:
            self._poller.modify(fd, select.POLLIN | (select.POLLOUT if wanted else 0))

    def is_watched(self, source: Pollable) -> bool:
        """Whether the source is watched."""
        return _fd_of(source) in self._callbacks

    def unwatch(self, source: Pollable) -> None:
        """Stop calling back; does nothing if the source is not watched."""
        fd = _fd_of(source)
        if self._callbacks.pop(fd, None) is not None:
            self._poller.unregister(fd)

    def turn(self, timeout_ms: int) -> None:
        """Wait for at most ``timeout_ms``, and call back for every source that is ready."""
        for fd, _ in self._poller.poll(timeout_ms):
            callback = self._callbacks.get(fd)
            if callback is not None:
                callback()


def _fd_of(source: Pollable) -> int:
    return source if isinstance(source, int) else source.fileno()
