"""Filters on partition columns: files in folders that do not pass are never opened.

Spark pushes filters into Python data sources only if ``spark.sql.python.filterPushdown.enabled`` is on, and otherwise
rejects sources that accept them. Filters on features are left to Spark, as they need the records.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

# By the names of Spark's classes; nulls are handled before.
_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "In": lambda value, several: value in several,
    "StringStartsWith": str.startswith,
    "StringEndsWith": str.endswith,
    "StringContains": operator.contains,
}
_NULL_TESTS = ("IsNull", "IsNotNull", "EqualNullSafe")


def can_use(condition: Filter, columns: Collection[str]) -> bool:
    """Whether a filter uses partition columns only."""
    inner: Any = condition
    while type(inner).__name__ == "Not":
        inner = inner.child
    known = type(inner).__name__ in _TESTS or type(inner).__name__ in _NULL_TESTS
    return known and len(inner.attribute) == 1 and inner.attribute[0] in columns


def passes(conditions: Sequence[Filter], values: Mapping[str, Any]) -> bool:
    """Whether rows with these values pass all filters; a filter that a null makes unknown is not passed."""
    return all(_holds(condition, values) is True for condition in conditions)


def _holds(condition: Any, values: Mapping[str, Any]) -> bool | None:
    name = type(condition).__name__
    if name == "Not":
        inner = _holds(condition.child, values)
        return None if inner is None else not inner
    value = values.get(condition.attribute[0])
    if name == "IsNull":
        return value is None
    if name == "IsNotNull":
        return value is not None
    if name == "EqualNullSafe":
        return bool(value == condition.value)
    return None if value is None else bool(_TESTS[name](value, condition.value))
