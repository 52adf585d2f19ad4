"""Takes the lists off an Arrow column, level by level, until flat values are left.

The offsets of a list show whether all rows are equally long, so no value is looked at. A `Level` knows where in the
nesting a flat array is, so that errors name the row of the batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyarrow import types

from tfos_lab.data.rows import Array
from tfos_lab.data.type_table import is_array
from tfos_lab.errors import FeedError


@dataclass(frozen=True)
class Level:
    """One level of a column's nesting: which row of the batch a value of its flat array belongs to."""

    name: str
    rows: int
    per_row: int = 1  # values of the flat array per row
    depth: int = 0

    def inside(self, length: int) -> Level:
        """Return the next level inwards, whose lists have this length."""
        return Level(self.name, self.rows, self.per_row * length, self.depth + 1)

    def row(self, position: int) -> int:
        """Return the row that the value at a position belongs to."""
        return position // max(self.per_row, 1)

    def refuse_nulls(self, values: pa.Array) -> None:
        """Raise a FeedError if there are nulls; it names the first row that has one."""
        if not values.null_count:
            return
        first = self.row(int(np.argmax(values.is_null().to_numpy(zero_copy_only=False))))
        inside = " inside its arrays" if self.depth else ""
        advice = (
            f"replace them: F.transform('{self.name}', lambda x: F.coalesce(x, F.lit(0)))"
            if self.depth
            else f"fill them with df.fillna(...), or leave the rows out with df.dropna(subset=['{self.name}'])"
        )
        raise FeedError(
            reason=f"column '{self.name}' has {values.null_count} nulls{inside} in a batch of {self.rows} rows "
            f"(the first in row {first}): {advice}"
        )

    def refuse_ragged(self, lengths: Array, what: str = "values") -> None:
        """Raise a FeedError unless all lengths are equal; it names the first row that differs."""
        wrong = int(np.argmax(lengths != lengths[0]))
        if lengths[wrong] == lengths[0]:
            return
        raise FeedError(
            reason=f"column '{self.name}' is ragged: row {self.row(wrong)} of a batch has {lengths[wrong]} {what} "
            f"where the first has {lengths[0]}. Make all equally long in Spark: F.slice cuts, F.array_repeat fills up"
        )


def peel(column: pa.Array, level: Level) -> tuple[pa.Array, tuple[int, ...]]:
    """Take the lists off a column: return its flat values, and the length of the lists at each level."""
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    level.refuse_nulls(column)
    if not is_array(column.type):
        return column, ()
    if types.is_fixed_size_list(column.type):
        length, values = column.type.list_size, column.flatten()
    else:
        offsets = column.offsets.to_numpy()
        length = common_length(offsets, level)
        values = between(column.values, offsets)
    leaves, inner = peel(values, level.inside(length))
    return leaves, (length, *inner)


def common_length(offsets: Array, level: Level, what: str = "values") -> int:
    """Return the one length that all lists have; a FeedError names the first row that differs."""
    if len(offsets) < 2:
        return 0
    lengths = np.diff(offsets)
    level.refuse_ragged(lengths, what)
    return int(lengths[0])


def between(values: pa.Array, offsets: Array) -> pa.Array:
    """Return the values that the offsets of a (sliced) list column span."""
    return values.slice(offsets[0], offsets[-1] - offsets[0]) if len(offsets) else values.slice(0, 0)
