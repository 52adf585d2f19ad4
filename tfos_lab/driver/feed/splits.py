"""What ``validation=`` asks for: rows beside those to train on, by the name of their split.

They are given as another source, as several by name, or as a fraction of the rows to train on, which is then taken out
of these.
"""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from tfos_lab.core.messages import INPUT_QUEUE, TRAIN, VALIDATION
from tfos_lab.data.frames import is_stream
from tfos_lab.driver.feed.arrays import TUPLE_NAMES, is_in_memory
from tfos_lab.driver.feed.request import are_files, check_rows, is_dstream, is_rows
from tfos_lab.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The same rows are held out each time, so that runs can be compared.
_SEED = 0
_NEEDED = "rows as for data, a fraction of data such as 0.1, or a dict of splits by name are needed"


def split_rows(data: Any, validation: Any) -> tuple[Any, dict[str, Any]]:
    """Return the rows to train on, and those of each split.

    ``validation`` is a source of rows, a fraction between 0 and 1, or a dict of either by the name of a split; None for
    none. Raises ConfigError for anything else, and where a fraction cannot be taken of ``data``.
    """
    asked: dict[str, Any] = {}
    if isinstance(validation, Mapping) and not _are_columns(data, validation):
        asked = dict(validation)
    elif validation is not None:
        asked = {VALIDATION: validation}
    problems = [problem for name, one in asked.items() for problem in _problems(name, one)]
    if problems:
        raise ConfigError(problems)
    fractions = {name: float(one) for name, one in asked.items() if _is_number(one)}
    if not fractions:
        return data, asked
    if sum(fractions.values()) >= 1:
        raise ConfigError(
            [f"validation={validation!r}: nothing would be left to train on; hold out less than 1 in all"]
        )
    data, *parts = _parted(data, [1 - sum(fractions.values()), *fractions.values()])
    return data, {**asked, **dict(zip(fractions, parts, strict=True))}


def check_splits(
    data: Any,
    validation: Any,
    session: SparkSession | None,
    *,
    columns: list[str] | None = None,
    objects: bool | None = None,
) -> tuple[Any, dict[str, Any]]:
    """Return what `split_rows` does, with names of files found, before nodes start; raises as `make_request` does."""
    if data is None and validation is not None:
        raise ConfigError(["validation: there are no rows to train on beside these; give data=..., too"])
    data, splits = split_rows(data, validation)
    data = check_rows(data, columns, session, objects=objects)
    for name, one in splits.items():
        with as_split(name):
            splits[name] = check_rows(one, columns, session, objects=False)
    return data, splits


@contextmanager
def as_split(name: str) -> Iterator[None]:
    """Have errors name these rows as they were given, where they would name ``data``."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(
            [re.sub(r"^data\b", lambda _: as_given(name), problem) for problem in error.problems]
        ) from None


def as_given(name: str) -> str:
    """Return what the user wrote to give the rows of a split."""
    return "validation" if name == VALIDATION else f"validation[{name!r}]"


def session_of(data: Any) -> SparkSession | None:
    """Return the session that a DataFrame belongs to; None for other data."""
    return data.sparkSession if hasattr(data, "sparkSession") else None


def _are_columns(data: Any, validation: Mapping[Any, Any]) -> bool:
    """Whether a dict is one source, of arrays by column, as ``data`` has them, and not one of splits."""
    if isinstance(data, np.ndarray | tuple):
        names: Sequence[Any] = TUPLE_NAMES
    else:
        names = list(data) if isinstance(data, Mapping) else list(getattr(data, "columns", ()))
    return bool(validation) and all(
        name in names and hasattr(type(values), "__array__") and not hasattr(type(values), "columns")
        for name, values in validation.items()
    )


def _problems(name: Any, one: Any) -> list[str]:
    if not isinstance(name, str) or not name:
        return [f"validation[{name!r}]: a split has a name, such as 'test'"]
    if name in (TRAIN, INPUT_QUEUE):
        return [f"validation[{name!r}]: these are the rows of data; give the split another name"]
    if _is_number(one):
        return [] if 0 < one < 1 else [f"validation={one!r}: a fraction is more than 0 and less than 1"]
    if is_dstream(one) or is_stream(one):
        return ["validation: a stream has no end, and these rows are read as a whole; give a DataFrame of some rows"]
    if not is_rows(one) and not are_files(one):
        shown = repr(one) if isinstance(one, bool | numbers.Number | str) else type(one).__name__
        return [f"validation={shown}: {_NEEDED}"]
    return []


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _parted(data: Any, fractions: list[float]) -> list[Any]:
    """Return parts of the rows of ``data``, chosen at random, in these proportions."""
    if is_stream(data) or is_dstream(data):
        raise ConfigError(["validation: a fraction of a stream is not known in advance; give rows of their own"])
    if hasattr(data, "randomSplit"):
        return list(data.randomSplit(fractions, seed=_SEED))
    if is_in_memory(data):
        return _parts_of_arrays(data, fractions)
    why = "validation: nodes read files by ranges, so no fraction of their rows can be held out"
    advice = "give other files, as in validation='/data/validation/*.parquet', or feed spark.read's DataFrame of these"
    raise ConfigError([f"{why}; {advice}"])


def _parts_of_arrays(data: Any, fractions: list[float]) -> list[Any]:
    columns = list(data.values()) if isinstance(data, Mapping) else list(data) if isinstance(data, tuple) else [data]
    counts = {len(column) for column in columns}
    if len(counts) != 1:
        raise ConfigError([f"data: its columns have different lengths, {', '.join(map(str, sorted(counts)))}"])
    (count,) = counts
    ends = np.cumsum([math.floor(fraction * count + 0.5) for fraction in fractions[1:]])
    if not ends[0] or ends[-1] >= count:
        raise ConfigError([f"validation: of {count} rows, such parts leave none to train on or to validate with"])
    order = np.random.default_rng(_SEED).permutation(count)
    held_out, train = np.split(order[: ends[-1]], ends[:-1]), order[ends[-1] :]
    # In the order of the rows, as they came.
    return [_taken(data, np.sort(rows)) for rows in (train, *held_out)]


def _taken(data: Any, rows: np.ndarray) -> Any:
    if isinstance(data, Mapping):
        return {name: _taken(column, rows) for name, column in data.items()}
    if isinstance(data, tuple):
        return tuple(_taken(column, rows) for column in data)
    return data.iloc[rows] if hasattr(data, "iloc") else np.asarray(data)[rows]
