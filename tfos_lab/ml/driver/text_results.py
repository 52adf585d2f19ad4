"""What a text estimator has trained, as a DataFrame with a row for each model."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tfos_lab.driver.state.events import MetricsReported

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

    from tfos_lab.ml.text_model import TrainedModel

_MOST_LONG = 1 << 63


def last_metrics(reports: Iterable[MetricsReported], node: str) -> dict[str, float]:
    """Return what a node reported last of each metric."""
    return {name: value for report in reports if report.node == node for name, value in report.metrics.items()}


def results_frame(session: SparkSession, trained: Sequence[TrainedModel]) -> DataFrame:
    """Return a DataFrame with a row for each model; see `TFTextFileModel`."""
    from pyspark.sql import types as t

    params = _params_type([one.params for one in trained])
    text = t.StringType()
    schema = t.StructType(
        [
            t.StructField("params", params),
            t.StructField("metrics", t.MapType(text, t.DoubleType())),
            t.StructField("model", text),
            t.StructField("state", text),
            t.StructField("seconds", t.DoubleType()),
            t.StructField("error", text),
            t.StructField("run_dir", text),
        ]
    )
    rows = [{**asdict(one), "params": _values(one.params, params)} for one in trained]
    return session.createDataFrame(rows, schema)


def _params_type(params: Sequence[dict[str, Any]]) -> StructType:
    """Return a type with a field for each key of any of the dicts."""
    from pyspark.sql import types as t

    names = dict.fromkeys(name for one in params for name in one)
    return t.StructType([t.StructField(name, _type_of([one[name] for one in params if name in one])) for name in names])


def _type_of(values: list[Any]) -> DataType:
    from pyspark.sql import types as t

    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return t.BooleanType()
    if kinds == {int} and all(-_MOST_LONG <= value < _MOST_LONG for value in values):
        return t.LongType()
    return t.DoubleType() if kinds <= {int, float} else t.StringType()


def _values(params: dict[str, Any], schema: StructType) -> dict[str, Any]:
    """Return the values of a dict as the type has them: anything that is no number or text in short."""
    return {field.name: _value(params[field.name], field.dataType) for field in schema if field.name in params}


def _value(value: Any, kind: DataType) -> Any:
    if kind.typeName() == "string":
        return value if isinstance(value, str) else reprlib.repr(value)
    return float(value) if kind.typeName() == "double" else value
