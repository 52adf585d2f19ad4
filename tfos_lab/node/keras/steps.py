"""Counts the elements that loops in Python take from datasets, so that an error can say how far a node has come."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from tfos_lab.node.activity.fetches import patch_fetches
from tfos_lab.node.lock_step import STEP_COUNT

_PATCHED = "_tfos_lab_counted"
_ITERATORS = (
    ("tensorflow.python.data.ops.iterator_ops", "OwnedIterator"),
    ("tensorflow.python.distribute.input_lib", "DistributedIterator"),
)


def patch_iterators() -> None:
    """Count what the iterators of datasets give, distributed or not; may be called twice."""
    patch_fetches()
    for module, name in _ITERATORS:
        kind = getattr(sys.modules.get(module), name, None)  # TensorFlow has loaded them
        if kind is not None and not hasattr(kind.__next__, _PATCHED):
            kind.__next__ = _counted(kind.__next__)


def _counted(take: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(take)
    def __next__(iterator: Any) -> Any:  # noqa: N807 - it is that method
        try:
            element = take(iterator)
        except StopIteration:
            STEP_COUNT.end(iterator)
            raise
        STEP_COUNT.take(iterator)
        return element

    setattr(__next__, _PATCHED, True)
    return __next__
