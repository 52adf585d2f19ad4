"""Functions for Spark's `mapInArrow` that carry the code of tfos_lab along (see `core.code_archive`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tfos_lab.core.code_archive import make_finder

if TYPE_CHECKING:
    import pyarrow as pa


def make_task(work_module: str, work_name: str, *arguments: Any) -> Callable[[Iterator[pa.RecordBatch]], Any]:
    """Return a function for `mapInArrow` that unpacks tfos_lab on the executor and calls one of its functions.

    That function is called as ``work(batches, *arguments)`` and yields Arrow record batches.
    """
    find = make_finder()

    # Spark pickles this function by value, so it must not refer to anything of this package.
    def task(batches: Any) -> Any:
        yield from find(work_module, work_name)(batches, *arguments)

    return task
