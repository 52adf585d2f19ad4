"""Turns what ``ctx.put_results`` is given into columns whose types Spark has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tfos_lab.data.rows import Array, Batch
from tfos_lab.errors import FeedError

# The column of results that were put without a name.
RESULT_COLUMN = "prediction"


def result_columns(values: Any) -> Batch:
    """Return results as columns: a dict as it is, and anything else as the one column `RESULT_COLUMN`."""
    if isinstance(values, Mapping):
        return {str(name): as_array(name, column) for name, column in values.items()}
    return {RESULT_COLUMN: as_array(RESULT_COLUMN, values)}


# Types that Spark lacks, and the next wider type that it has; mixed precision yields bfloat16 and float16.
_WIDER = {"bfloat16": "float32", "float16": "float32", "uint8": "int16", "uint16": "int32", "uint32": "int64"}


def as_array(name: Any, values: Any) -> Array:
    """Return a column as an array of a type that Spark has; a FeedError if that would lose types or values."""
    listed = values.tolist() if isinstance(values, np.ndarray) and values.dtype == object else values
    if isinstance(listed, list | tuple) and len(_kinds_in(listed)) > 1:
        raise FeedError(reason=_mixed(name, listed))
    array = np.asarray(values)
    if array.ndim == 0:
        raise FeedError(reason=f"put_results needs one result per row, but '{name}' is a single value: {values!r:.80}")
    if array.dtype == np.uint64:
        if array.size and array.max() > np.iinfo(np.int64).max:
            raise FeedError(reason=f"put_results: '{name}' has {array.max()}, which no integer of Spark holds")
        return array.astype(np.int64)
    return array.astype(_WIDER.get(array.dtype.name, array.dtype), copy=False)


# NumPy silently converts values of two of these kinds to one kind.
_KINDS: dict[str, tuple[type, ...]] = {
    "true and false": (bool, np.bool_),
    "text": (str,),
    "bytes": (bytes, bytearray),
    "numbers": (int, float, np.number),
}


def _kinds_in(values: list[Any] | tuple[Any, ...]) -> set[str]:
    """Return which of the kinds a list holds, including the lists and tuples within it."""
    found = set(map(type, values))
    kinds = {next((kind for kind, types in _KINDS.items() if issubclass(one, types)), "") for one in found} - {""}
    if any(issubclass(one, list | tuple) for one in found):
        kinds = kinds.union(*(_kinds_in(value) for value in values if isinstance(value, list | tuple)))
    return kinds


def _mixed(name: Any, values: list[Any] | tuple[Any, ...]) -> str:
    row = next((value for value in values if isinstance(value, list | tuple) and len(_kinds_in(value)) > 1), values)
    kinds = " and ".join(sorted(_kinds_in(row)))
    return (
        f"put_results: '{name}' mixes {kinds} ({row!r:.60}), and a column of Spark holds values of one type; give each "
        "type a column of its own, as in ctx.put_results({'label': ['a', 'b'], 'score': [0.1, 0.9]})"
    )
