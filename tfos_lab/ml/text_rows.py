"""Checks a column of features on its way to the nodes: all sentence matrices have to be of one shape."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tfos_lab.errors import FeedError

_PAD = "pad short sentences with zeros, and cut long ones"


class NotRectangular(ValueError):
    """The vectors of a matrix are not all of one size."""


def shape_of(feature: Any) -> tuple[int, ...]:
    """Return ``(words, embedding_size)`` of a matrix, ``(size,)`` of a vector or list, and ``()`` of anything else.

    Raises
    ------
    NotRectangular
        For a matrix of vectors of several sizes.

    Examples
    --------
    >>> shape_of([[0.1, 0.2], [0.3, 0.4], [0.0, 0.0]])
    (3, 2)
    """
    if hasattr(feature, "numRows"):  # one of spark.ml's matrices
        return int(feature.numRows), int(feature.numCols)
    size = _size_of(feature)
    if size is None:
        return ()
    if not isinstance(feature, list | tuple):
        return (size,)
    widths = {_size_of(vector) for vector in feature}
    if widths <= {None}:
        return (size,)
    if len(widths) > 1:
        found = " and ".join(sorted("none" if width is None else str(width) for width in widths))
        raise NotRectangular(f"a sentence matrix has vectors of {found} values: all need to have one size")
    return size, widths.pop() or 0


def _size_of(value: Any) -> int | None:
    """Return how many values a list or one of spark.ml's vectors has, or None."""
    if isinstance(value, list | tuple):
        return len(value)
    size = getattr(value, "size", None)
    return size if isinstance(size, int) else None


def problem_of(feature: Any, shape: tuple[int, ...], column: str) -> str:
    """Return what is wrong with a feature where the first row's has this shape, in a sentence, or nothing."""
    if feature is None:
        return f"column '{column}' has a null: leave such rows out, as in df.dropna(subset=['{column}'])"
    try:
        found = shape_of(feature)
    except NotRectangular as error:
        return f"column '{column}': {error}"
    # Lists of words may have any length; matrices go into tensors.
    if found == shape or len(shape) < 2:
        return ""
    one, other = (" × ".join(map(str, each)) or "no matrix" for each in (shape, found))
    return f"column '{column}': the first row's sentence matrix is {one}, another row's is {other}: {_PAD}"


def checked(rows: Iterable[Any], column: str, shape: tuple[int, ...]) -> Iterator[Any]:
    """Pass rows on, and raise at the first feature that does not fit the first row's; runs in Spark's tasks.

    Raises
    ------
    FeedError
        With the column, and what to do.
    """
    for row in rows:
        if problem := problem_of(row[column], shape, column):
            raise FeedError(reason=problem)
        yield row
