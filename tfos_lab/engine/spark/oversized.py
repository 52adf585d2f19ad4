"""Rows that are too large for Spark itself: its errors name classes of Java, and not the column."""

from __future__ import annotations

import json
import re

from tfos_lab.errors import FeedError

# A column of one Arrow batch ends at 2 GiB; one of arrays at 1 GiB, as room for them grows by doubling.
_VECTOR = re.compile(r"OversizedAllocationException: Memory required for vector.*? is \((-?\d+)\).*?allowed \((\d+)\)")
_ROW = re.compile(r"Cannot grow BufferHolder by size (-?\d+) .*?exceeds size limitation (\d+)")
_ADVICE = (
    "make several rows of a large one, or feed the path of a file; where no row is large, lower "
    "spark.sql.execution.arrow.maxRecordsPerBatch"
)
_MOST_NAMED = 5


def oversized(error: Exception, schema: str = "") -> FeedError | None:
    """Return the error that says so where Spark cannot hold a row; ``schema`` is that of the rows, in Spark's JSON."""
    text = str(error)
    if found := _VECTOR.search(text):
        needed, most = (f"{abs(int(size)):,}" for size in found.groups())
        what = f"needs room for {needed} bytes of {_columns(schema)} in one Arrow batch, and {most} is the most"
    elif found := _ROW.search(text):
        needed, most = (f"{abs(int(size)):,}" for size in found.groups())
        what = f"needs {needed} bytes more for a row with {_columns(schema)}, and a row has {most} at most"
    else:
        return None
    return FeedError(reason=f"Spark {what}: {_ADVICE}")


def _columns(schema: str) -> str:
    """Name the columns whose values may be large."""
    fields = json.loads(schema)["fields"] if schema else []
    large = [f"'{field['name']}'" for field in fields if field["type"] in ("string", "binary") or _is_nested(field)]
    if not large:
        return "a column"
    shown = ", ".join(large[:_MOST_NAMED]) + (f" and {len(large) - _MOST_NAMED} more" if large[_MOST_NAMED:] else "")
    return f"column {shown}" if len(large) == 1 else f"one of the columns {shown}"


def _is_nested(field: dict[str, object]) -> bool:
    return not isinstance(field["type"], str)
