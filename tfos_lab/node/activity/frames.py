"""Tells from the Python frames of threads what the function's thread does: the names of files and functions say it."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from types import FrameType

from tfos_lab import sources


class Doing(StrEnum):
    """What the function's thread does at a moment."""

    ROWS = "rows"  # waits for rows of a feed
    DATA = "data"  # waits for a tf.data pipeline
    PEERS = "peers"  # waits for other nodes, in Python
    TENSORFLOW = "tensorflow"  # is within TensorFlow's own code
    TRACING = "tracing"  # has TensorFlow trace a function, which happens once
    PYTHON = "python"  # anything else


class _Place(StrEnum):
    """What is known of a piece of code by its file."""

    WAITING = "waiting"
    FEED = "feed"
    LOCK_STEP = "lock-step"
    ITERATOR = "iterator"
    TENSORFLOW = "tensorflow"
    TRACING = "tracing"
    LIBRARY = "library"
    OTHER = "other"


_OF_FILES = {
    threading.__file__: _Place.WAITING,
    "tfos_lab/node/lock_step.py": _Place.LOCK_STEP,
    "tensorflow/python/framework/func_graph.py": _Place.TRACING,
    "tensorflow/python/data/ops/iterator_ops.py": _Place.ITERATOR,
    "tensorflow/python/data/ops/multi_device_iterator_ops.py": _Place.ITERATOR,
}
_WAITS = {_Place.FEED: Doing.ROWS, _Place.LOCK_STEP: Doing.PEERS}
_PACKAGE = f"{Path(__file__).resolve().parents[2]}{os.sep}"
_LIBRARIES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}lib{os.sep}python", _PACKAGE)


def what_it_does(frame: FrameType) -> Doing:
    """Return what a thread does whose innermost frame is given."""
    places = [_place_of(inner.f_code.co_filename) for inner in _outwards(frame)]
    if _Place.TRACING in places:
        return Doing.TRACING
    if (waited := _waited_for(places)) is not None:
        return waited
    if places[0] in (_Place.TENSORFLOW, _Place.ITERATOR):
        return Doing.DATA if _Place.ITERATOR in places[:3] else Doing.TENSORFLOW
    return Doing.PYTHON


def awaited_by(frames: Iterable[FrameType]) -> Doing | None:
    """Return what threads that prepare data wait for: rows (or read them), peers, or None if nothing of ours."""
    places = [[_place_of(inner.f_code.co_filename) for inner in _innermost(frame)] for frame in frames]
    waits = {_waited_for(some) for some in places}
    if Doing.ROWS in waits or Doing.PEERS in waits:
        return Doing.ROWS if Doing.ROWS in waits else Doing.PEERS
    return Doing.ROWS if any(_Place.FEED in some for some in places) else None


def _waited_for(places: list[_Place]) -> Doing | None:
    """Return what is waited for, if the innermost code waits for a condition of ours."""
    if places[0] is not _Place.WAITING:
        return None
    return _WAITS.get(next((place for place in places if place is not _Place.WAITING), _Place.OTHER))


def where(frame: FrameType) -> str:
    """Return the innermost line of the function's own code, or of any code where there is none of its own."""
    own = next((inner for inner in _outwards(frame) if _place_of(inner.f_code.co_filename) is _Place.OTHER), frame)
    name, file = own.f_code.co_qualname, own.f_code.co_filename
    file = sources.label(file) or Path(file).name
    return f"{file}, line {own.f_lineno}" if name == "<module>" else f"{name}, {file}, line {own.f_lineno}"


def _outwards(frame: FrameType) -> Iterator[FrameType]:
    outer: FrameType | None = frame
    while outer is not None:
        yield outer
        outer = outer.f_back


def _innermost(frame: FrameType) -> Iterator[FrameType]:
    for _, inner in zip(range(6), _outwards(frame), strict=False):
        yield inner


@functools.lru_cache(maxsize=10_000)
def _place_of(file: str) -> _Place:
    for ending, place in _OF_FILES.items():
        if file.endswith(ending):
            return place
    if "tfos_lab/node/feed/" in file:
        return _Place.FEED
    if f"{os.sep}tensorflow{os.sep}" in file:
        return _Place.TENSORFLOW
    is_library = any(part in file for part in _LIBRARIES)
    if file.startswith("<") and sources.label(file) is None:
        is_library = True  # generated code
    return _Place.LIBRARY if is_library else _Place.OTHER
