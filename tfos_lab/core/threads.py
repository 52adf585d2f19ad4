"""Threads: one that may be given up, those whose frames are looked at, and interrupts of the main one."""

from __future__ import annotations

import contextlib
import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import FrameType
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


_looking = threading.Lock()


@contextlib.contextmanager
def frames_of_threads() -> Iterator[dict[int, FrameType]]:
    """Give the innermost frame of each other thread, by its identifier; they are looked at within the block only.

    Nothing collects garbage meanwhile. Python 3.11 may do so while it makes the object of a frame. What that runs lets
    the thread go on whose frames are looked at, and these are gone then: a segmentation fault, which a loop meets
    within seconds, and a node that is sampled now and then. From 3.12 on, garbage is collected between two instructions
    only.
    """
    with _looking:
        collects = gc.isenabled()
        gc.disable()
        try:
            frames = sys._current_frames()  # noqa: SLF001 - the only way to them, and documented
            del frames[threading.get_ident()]
            yield frames
        finally:
            if collects:
                gc.enable()


def outwards(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame, and those that it was called from, the outermost last."""
    while frame is not None:
        yield frame
        frame = frame.f_back
