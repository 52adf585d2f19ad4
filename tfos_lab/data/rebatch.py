"""Cuts a stream of batches of any size into multiples of one size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tfos_lab.data.rows import Array, Batch, count_rows, join_rows, slice_rows


def in_multiples(batches: Iterable[Mapping[str, Array] | None], rows: int, most: int) -> Iterator[Batch | None]:
    """Cut a stream of batches of any size into pieces of whole multiples of ``rows`` rows, at most ``most`` rows each.

    Rows keep their order; only the last piece may have fewer than ``rows`` of them. Almost all pieces are views. None,
    which means that the stream has nothing yet, is passed on.

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
