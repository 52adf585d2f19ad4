"""Chooses the columns that a stage reads, by its params; errors name the param and what there is instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tfos_lab.data.prepare import prepare
from tfos_lab.data.schema import columns_of_label
from tfos_lab.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tfos_lab.ml.estimator import TFEstimator
    from tfos_lab.ml.params import Stage

# The params that name the inputs, in order of precedence.
_INPUTS = ("inputMapping", "inputCols", "featuresCol")


def input_param(stage: Stage) -> str | None:
    """Return the param that names the inputs, or None if none of them is set."""
    return next((name for name in _INPUTS if stage.isSet(name)), None)


def inputs_of(stage: Stage, param: str) -> dict[str, str | None]:
    """Return column → the model's input, or None where names and order decide."""
    value = stage.getOrDefault(param)
    if isinstance(value, Mapping):
        return dict(value)
    return dict.fromkeys([value] if isinstance(value, str) else value)


def fed_columns(estimator: TFEstimator, df: DataFrame) -> list[str] | None:
    """Return the columns to feed; None for all, which a function gets whose inputs are not named.

    Raises ConfigError for columns that are not there, or cannot become tensors.
    """
    asked: list[tuple[str, str]] = []
    labels = columns_of_label(estimator.getLabelCol())
    param = input_param(estimator)
    if param is None and estimator.model is not None:
        param = "featuresCol"
    if param is not None:
        asked += [(param, column) for column in inputs_of(estimator, param)]
        if estimator.model is not None or estimator.isSet("labelCol") or _has(df, labels[0]):
            asked += [("labelCol", column) for column in labels]
    elif estimator.isSet("labelCol"):
        require_columns(df, [("labelCol", column) for column in labels])
    if estimator.isSet("weightCol"):
        asked.append(("weightCol", estimator.getWeightCol()))
    require_columns(df, asked)
    columns = list(dict.fromkeys(column for _, column in asked)) if param is not None else None
    prepare(df, columns)  # its errors come before anything is started
    return columns


def require_columns(df: DataFrame, asked: Iterable[tuple[str, str]]) -> None:
    """Raise a ConfigError for columns that are not there; each comes with the param that asks for it."""
    problems = [
        f"{param}: there is no column '{column}'; the data has {', '.join(df.columns) or 'none'}"
        for param, column in asked
        if not _has(df, column)
    ]
    if problems:
        raise ConfigError(problems)


def _has(df: DataFrame, column: str) -> bool:
    """Whether there is such a column, or one whose field a name with dots is."""
    return column in df.columns or column.partition(".")[0] in df.columns
