"""Checks the rows of an RDD inside Spark tasks, before Spark turns values that do not fit their column into nulls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from tfos_lab.errors import FeedError

# Spark accepts no other Python types for these: not even an int for a double, or a bool for a long.
_ALLOWED: dict[str, frozenset[type]] = {
    "long": frozenset({int, type(None)}),
    "double": frozenset({float, type(None)}),
    "boolean": frozenset({bool, type(None)}),
}
LEAVES = tuple(_ALLOWED)
_MOST_SHOWN = 60
# A suggested `map` writes out this many columns one by one.
_MOST_NAMED = 4


class Column(NamedTuple):
    """One column of an RDD's rows.

    Parameters
    ----------
    name : str
        Spark's name for it.
    shape : {"tuple", "Row", "dict"}
        What the first row is.
    key : int or str
        The index or key of the value in a row.
    width : int
        How many columns there are.
    leaf : str
        Spark's type of the values, or of those within arrays; empty where it is not known.
    label : str
        The column's whole type in SQL.
    depth : int
        How many arrays are around the values.
    """

    name: str
    shape: Literal["tuple", "Row", "dict"]
    key: Any
    width: int
    leaf: str
    label: str
    depth: int = 0


def checked(rows: Iterable[Any], columns: list[tuple[Any, ...]]) -> Iterator[Any]:
    """Pass rows on, and raise at the first value that Spark would turn into null.

    Raises
    ------
    FeedError
        With the column, the value, and what to do.
    """
    known = [(column, column.key, column.depth, _ALLOWED[column.leaf]) for column in map(Column._make, columns)]
    for row in rows:
        for column, key, depth, allowed in known:
            try:
                value = row[key]
            except (LookupError, TypeError):
                continue  # Spark's own error explains a row that has other columns
            if not depth:
                if type(value) not in allowed:
                    raise _refusal(column, value)
            elif value is not None:
                for wrong in _wrong_in(value, depth, allowed):
                    raise _refusal(column, wrong)
        yield row


def _wrong_in(values: Any, depth: int, allowed: frozenset[type]) -> Iterator[Any]:
    """Yield the values that do not fit, in an array of ``depth`` dimensions."""
    if depth > 1:
        for inner in values:
            if inner is not None:
                yield from _wrong_in(inner, depth - 1, allowed)
    elif not allowed.issuperset(map(type, values)):
        yield from (value for value in values if type(value) not in allowed)


def _refusal(column: Column, value: Any) -> FeedError:
    kind = type(value)
    package = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    held = f"the {package}{kind.__name__} {value!r:.{_MOST_SHOWN}}"
    became = "" if package else ", which Spark would turn into null without a word"
    return FeedError(
        reason=f"data: column '{column.name}' of the RDD is {column.label}, as in its first row, but another row holds "
        f"{held}{became}: give all its values one type{_cure(column, value)}"
    )


def _cure(column: Column, value: Any) -> str:
    if column.leaf == "boolean" or not hasattr(value, "__float__"):
        return ""
    how = "int({})" if column.leaf == "long" and hasattr(value, "__index__") else "float({})"
    each = how.format("value")
    if column.depth > 1:
        return f", such as {each}"
    whole = f"[{each} for value in {{}}]" if column.depth else how
    return f", as in {converted(column, {column.key: whole})}"


def converted(column: Column, hows: Mapping[Any, str]) -> str:
    """Write the `map` that converts values of each row: ``hows`` has an expression of ``{}`` for each key.

    Examples
    --------
    >>> converted(Column("_1", "tuple", 0, 2, "long", "bigint"), {0: "float({})"})
    'rdd.map(lambda row: (float(row[0]), row[1]))'
    """
    values = {key: how.format(f"row[{key!r}]") for key, how in hows.items()}
    if column.shape != "tuple":
        old = "row.asDict()" if column.shape == "Row" else "row"
        changed = ", ".join(f"{key!r}: {value}" for key, value in values.items())
        return f"rdd.map(lambda row: {{**{old}, {changed}}})"
    if column.width > _MOST_NAMED and len(values) == 1:
        ((key, value),) = values.items()
        return f"rdd.map(lambda row: (*row[:{key}], {value}, *row[{key + 1}:]))"
    parts = [values.get(number, f"row[{number}]") for number in range(column.width)]
    return f"rdd.map(lambda row: ({', '.join(parts)}{',' if column.width == 1 else ''}))"
