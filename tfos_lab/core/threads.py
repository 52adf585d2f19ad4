"""Runs a function on a thread of its own, and lets whoever waits for it give up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def on_a_thread(function: Callable[[], T], *, name: str) -> Future[T]:
    """Run a function on a daemon thread; its result, or what it raises, is in the future.

    Python's end waits for no such thread, as it does for those of an executor.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
