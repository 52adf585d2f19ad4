"""The DataFrame of a text estimator: checks its columns and its first row, and makes the rows that are fed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfos_lab.core.code_archive import make_task
from tfos_lab.data.frames import is_connect
from tfos_lab.data.schema import select_columns
from tfos_lab.errors import ConfigError
from tfos_lab.ml.text_rows import problem_of, shape_of

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, Row, SparkSession

_SIZES = ("vocab_size", "embedding_size")


@dataclass(frozen=True)
class TextData:
    """Rows to train on, as columns and as objects, and what the function is told of them."""

    frame: DataFrame
    rows: RDD[Any]
    facts: Mapping[str, Any]

    @property
    def session(self) -> SparkSession:
        """The DataFrame's own."""
        return self.frame.sparkSession


def read_text(dataset: DataFrame, feature: str, label: str | None) -> TextData:
    """Check a DataFrame, and return its rows.

    Raises
    ------
    ConfigError
        For columns that are missing, for no rows, and for a first row that is no good.
    """
    if not hasattr(dataset, "mapInArrow"):
        raise ConfigError([f"fit: a Spark DataFrame is needed, not a {type(dataset).__name__}"])
    if is_connect(dataset.sparkSession):
        raise ConfigError(
            ["TFTextFileEstimator.fit needs a classic SparkSession: with Spark Connect, use tfos_lab.run or parallel"]
        )
    if dataset.isStreaming:
        raise ConfigError(["TFTextFileEstimator.fit needs all rows, and a stream has no end: give it a batch of them"])
    wanted = [feature] if label is None else [feature, label]
    select_columns(dataset.columns, wanted)
    frame = _select(dataset, [*wanted, *(name for name in dataset.columns if name not in wanted)])
    first = frame.first()
    if first is None:
        raise ConfigError(["fit: the DataFrame has no rows, and there is nothing to train on"])
    shape = _checked_shape(first, feature)
    check: Any = make_task("tfos_lab.ml.text_rows", "checked", feature, shape)
    rows = frame.rdd.mapPartitions(check)
    return TextData(frame, rows, {"feature": feature, "label": label, **_sizes(first, shape)})


def _select(dataset: DataFrame, names: list[str]) -> DataFrame:
    quoted = [f"`{name.replace('`', '``')}`" for name in names]
    return dataset.select(*quoted)


def _checked_shape(first: Row, feature: str) -> tuple[int, ...]:
    if problem := problem_of(first[feature], (), feature):
        raise ConfigError([problem])
    return shape_of(first[feature])


def _sizes(first: Row, shape: tuple[int, ...]) -> dict[str, Any]:
    """Return what the first row says of the sizes of vocabulary and word vectors."""
    found = {name: first[name] if name in first.__fields__ else None for name in _SIZES}
    if found["embedding_size"] is None and len(shape) > 1:
        found["embedding_size"] = shape[-1]
    return found
