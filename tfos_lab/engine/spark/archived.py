"""Functions of tfos_lab as functions for Spark's `mapInArrow`, with the code they need (see `core.code_archive`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tfos_lab.core.code_archive import make_finder

if TYPE_CHECKING:
    import pyarrow as pa


def make_task(module: str, name: str, *arguments: Any) -> Callable[[Iterator[pa.RecordBatch]], Any]:
    """Return a function for `mapInArrow` that calls a function of tfos_lab on the executor.

    Parameters
    ----------
    module, name : str
        The function. It is called as ``function(batches, *arguments)`` and yields Arrow record batches.
    arguments : object
        Anything that pickles.
    """
    find = make_finder()

    # A local function is pickled by value. It must not refer to any name of this module.
    def task(batches: Any) -> Any:
        yield from find(module, name)(batches, *arguments)

    return task
