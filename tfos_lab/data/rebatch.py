"""Cuts a stream of batches of any size into batches, or multiples of batches, of one size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tfos_lab.data.rows import Array, Batch, count_rows, join_rows, slice_rows


def rebatch(batches: Iterable[Mapping[str, Array]], rows: int) -> Iterator[Batch]:
    """Cut a stream of batches of any size into batches of ``rows`` rows each.

    Rows keep their order; the last batch may have fewer of them, and is never empty. Only batches that span two of the
    incoming ones are copied; the others are views.

    Examples
    --------
    >>> import numpy as np
    >>> [batch["x"].tolist() for batch in rebatch([{"x": np.arange(3)}, {"x": np.arange(3, 7)}], 2)]
    [[0, 1], [2, 3], [4, 5], [6]]
    """
    if rows < 1:
        raise ValueError(f"batches need at least one row, not {rows}")
    held: list[Batch] = []
    missing = rows
    for batch in batches:
        total, start = count_rows(batch), 0
        while start < total:
            stop = min(total, start + missing)
            held.append(slice_rows(batch, start, stop))
            missing -= stop - start
            start = stop
            if not missing:
                yield join_rows(held)
                held, missing = [], rows
    if held:
        yield join_rows(held)


def in_multiples(batches: Iterable[Mapping[str, Array] | None], rows: int, most: int) -> Iterator[Batch | None]:
    """Cut a stream of batches of any size into pieces of whole multiples of ``rows`` rows, at most ``most`` rows each.

    Rows keep their order; only the last piece may have fewer than ``rows`` of them. Fewer, larger pieces cost less than
    `rebatch`, and almost all are views. None, which means that the stream has nothing yet, is passed on.

    Examples
    --------
    >>> import numpy as np
    >>> [batch["x"].tolist() for batch in in_multiples([{"x": np.arange(3)}, {"x": np.arange(3, 10)}], 2, 4)]
    [[0, 1], [2, 3], [4, 5, 6, 7], [8, 9]]
    """
    held: list[Batch] = []
    missing = rows
    for batch in batches:
        if batch is None:
            yield None
            continue
        total, start = count_rows(batch), 0
        if held:
            start = min(total, missing)
            held.append(slice_rows(batch, 0, start))
            missing -= start
            if not missing:
                yield join_rows(held)
                held, missing = [], rows
        while total - start >= rows:
            stop = start + min((total - start) // rows * rows, max(rows, most // rows * rows))
            yield slice_rows(batch, start, stop)
            start = stop
        if start < total:
            held.append(slice_rows(batch, start, total))
            missing -= total - start
    if held:
        yield join_rows(held)
