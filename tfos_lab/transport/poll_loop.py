"""A loop over sockets and descriptors: who can be read, or written to, is called back."""

from __future__ import annotations

from collections.abc import Callable

import zmq

from tfos_lab.transport.frames import FrameSocket

_Key = zmq.Socket[bytes] | int
Pollable = _Key | FrameSocket


class PollLoop:
    """Callbacks by source; for one thread."""

    def __init__(self) -> None:
        self._poller = zmq.Poller()
        self._callbacks: dict[_Key, Callable[[], None]] = {}

    def watch(self, source: Pollable, callback: Callable[[], None]) -> None:
        """Call back whenever the source can be read."""
        key = _key(source)
        self._callbacks[key] = callback
        self._poller.register(key, zmq.POLLIN)

    def watch_writing(self, source: Pollable, *, wanted: bool) -> None:
        """Call back also when the source, if it is watched, can be written to; or no longer."""
        key = _key(source)
        if key in self._callbacks:
            self._poller.modify(key, zmq.POLLIN | (zmq.POLLOUT if wanted else 0))

    def is_watched(self, source: Pollable) -> bool:
        """Whether the source is watched."""
        return _key(source) in self._callbacks

    def unwatch(self, source: Pollable) -> None:
        """Call back no more; nothing happens where nobody is called back."""
        key = _key(source)
        if self._callbacks.pop(key, None) is not None:
            self._poller.unregister(key)

    def turn(self, timeout_ms: int) -> None:
        """Wait for at most so long, and call back for all sources that are ready."""
        for key, _ in self._poller.poll(timeout_ms):
            callback = self._callbacks.get(key)
            if callback is not None:
                callback()


def _key(source: Pollable) -> _Key:
    """Return what zmq's poller reports for a source: its own sockets as they are, everything else by descriptor."""
    return source.fileno() if isinstance(source, FrameSocket) else source
