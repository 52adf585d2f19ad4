"""A poll loop: calls back when a socket or descriptor can be read or written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import zmq

_Key = zmq.Socket[bytes] | int


class HasFileno(Protocol):
    """Anything with a file descriptor, such as a `FrameSocket`."""

    def fileno(self) -> int:
        """Return the file descriptor."""


Pollable = _Key | HasFileno


class PollLoop:
    """Callbacks by source; for one thread."""

    def __init__(self) -> None:
        self._poller = zmq.Poller()
        self._callbacks: dict[_Key, Callable[[], None]] = {}

    def watch(self, source: Pollable, callback: Callable[[], None]) -> None:
        """Call ``callback`` whenever the source can be read."""
        key = _key(source)
        self._callbacks[key] = callback
        self._poller.register(key, zmq.POLLIN)

    def watch_writing(self, source: Pollable, *, wanted: bool) -> None:
        """Start or stop calling back also when a watched source can be written."""
        key = _key(source)
        if key in self._callbacks:
            self._poller.modify(key, zmq.POLLIN | (zmq.POLLOUT if wanted else 0))

    def is_watched(self, source: Pollable) -> bool:
        """Whether the source is watched."""
        return _key(source) in self._callbacks

    def unwatch(self, source: Pollable) -> None:
        """Stop calling back; does nothing if the source is not watched."""
        key = _key(source)
        if self._callbacks.pop(key, None) is not None:
            self._poller.unregister(key)

    def turn(self, timeout_ms: int) -> None:
        """Wait for at most ``timeout_ms``, and call back for every source that is ready."""
        for key, _ in self._poller.poll(timeout_ms):
            callback = self._callbacks.get(key)
            if callback is not None:
                callback()


def _key(source: Pollable) -> _Key:
    """Return what zmq's poller reports for a source: its own sockets as they are, everything else by descriptor."""
    return source if isinstance(source, zmq.Socket | int) else source.fileno()
