"""Runs a function on a thread that one may give up waiting for, and holds back interrupts of the main thread."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

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


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back an interrupt of the main thread (SIGINT) until the end of the block; a second one is not held back.

    For short questions to Spark's JVM. An interrupt within one has py4j close the connections of other threads: the
    jobs that they wait for begin once more, beyond what cancels them (seen on Spark 4.3).
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    held: list[tuple[int, Any]] = []

    def hold(number: int, frame: Any) -> None:
        held.append((number, frame))
        if len(held) > 1:
            handler(number, frame)

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if len(held) == 1:
            handler(*held[0])
