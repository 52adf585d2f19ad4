"""How large the rows may be that a task or a node sends at once: Arrow Flight sends no more than 2 GiB."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from tfos_lab.errors import FeedError

if TYPE_CHECKING:
    import pyarrow as pa

#: Of one record batch; the rest of 2 GiB is for what Arrow adds. Spark ends a batch with the row that fills 64 MiB.
MOST_BYTES = (2 << 30) - (1 << 20)


def refuse_large(batch: pa.RecordBatch) -> None:
    """Raise a FeedError for more than `MOST_BYTES`; it names the largest column."""
    size = batch.nbytes
    if size <= MOST_BYTES:
        return
    sizes = {name: column.nbytes for name, column in zip(batch.schema.names, batch.columns, strict=True)}
    name, most = max(sizes.items(), key=itemgetter(1))
    what, advice = "a row takes", "make several rows of it, or give the path of a file"
    if batch.num_rows > 1:
        what = f"{batch.num_rows} rows of one batch take"
        advice = "lower spark.sql.execution.arrow.maxBytesPerBatch or maxRecordsPerBatch"
    raise FeedError(
        reason=f"{what} {size:,} bytes ({most:,} of them in column '{name}'), and {MOST_BYTES:,} is the most: {advice}"
    )
