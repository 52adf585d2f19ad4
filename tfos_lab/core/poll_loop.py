"""A poll loop: calls back when a socket or descriptor can be read or written."""

from __future__ import annotations

import selectors
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike


class PollLoop:
    """Callbacks by source; for one thread."""

    def __init__(self) -> None:
        self._selector = selectors.PollSelector()

    def watch(self, source: FileDescriptorLike, callback: Callable[[], None]) -> None:
        """Call ``callback`` whenever the source can be read."""
        self._selector.register(source, selectors.EVENT_READ, callback)

    def watch_writing(self, source: FileDescriptorLike, *, wanted: bool) -> None:
        """Start or stop calling back also when a watched source can be written."""
        if self.is_watched(source):
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if wanted else 0)
            self._selector.modify(source, events, self._selector.get_key(source).data)

    def is_watched(self, source: FileDescriptorLike) -> bool:
        """Whether the source is watched."""
        return source in self._selector.get_map()

    def unwatch(self, source: FileDescriptorLike) -> None:
        """Stop calling back; does nothing if the source is not watched."""
        if self.is_watched(source):
            self._selector.unregister(source)

    def turn(self, timeout_ms: int) -> None:
        """Wait for at most ``timeout_ms``, and call back for every source that is ready."""
        for key, _ in self._selector.select(timeout_ms / 1000):
            if self.is_watched(key.fd):
                key.data()
