"""One event loop, on a thread of its own (``tfos-connections``), for all connections that this process listens for.

It starts with the first listener and ends with the last.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_START_TIMEOUT_S = 10.0


class EventLoop:
    """The loop, its thread, which does not run in a forked process, and who uses it; from `join_loop`."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.users: set[object] = set()
        self.thread = threading.Thread(target=self._run, name="tfos-connections", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        finally:
            self.loop.close()

    def wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop, and return what it returns; for other threads."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(_START_TIMEOUT_S)


_lock = threading.Lock()
_shared: EventLoop | None = None


def join_loop(user: object) -> EventLoop:
    """Return the loop of this process, which runs until this and all other users have left it."""
    global _shared  # noqa: PLW0603 - one thread for all listeners of the process
    with _lock:
        if _shared is None or not _shared.thread.is_alive():
            _shared = EventLoop()
        _shared.users.add(user)
        return _shared


def leave_loop(user: object) -> None:
    """Use the loop no longer; may be called twice."""
    global _shared  # noqa: PLW0603
    with _lock:
        loop = _shared
        if loop is None or user not in loop.users:
            return
        loop.users.discard(user)
        if loop.users:
            return
        _shared = None
    loop.loop.call_soon_threadsafe(loop.loop.stop)
