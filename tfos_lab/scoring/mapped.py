"""Scores by explicit names, as TensorFlowOnSpark's TFModel does: which column is which input, which output is a column.

The result has the outputs alone, as the types that Python's own values have in Spark: double, bigint, boolean and
binary, or arrays of them. `predict` is the function for new programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tfos_lab.core.code_archive import make_finder
from tfos_lab.data.prepare import map_batches, prepare
from tfos_lab.data.schema import ColumnSpec, column_specs
from tfos_lab.data.spark_python import use_right_python
from tfos_lab.errors import ConfigError
from tfos_lab.scoring.description import Description, ModelSource, Tensor
from tfos_lab.scoring.predict import describe_remotely

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

_WORK = "tfos_lab.scoring.mapped_task"
_FLOATS = ("float16", "bfloat16", "float32", "float64")
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
# TensorFlow's name of a dtype → the Spark type of a column of it.
_LEAVES = {
    **dict.fromkeys(_FLOATS, "double"),
    **dict.fromkeys(_INTEGERS, "bigint"),
    "bool": "boolean",
    "string": "binary",
}


def score_mapped(
    df: DataFrame, source: ModelSource, inputs: Mapping[str, str], outputs: Mapping[str, str], batch_size: int
) -> DataFrame:
    """Score the rows of a DataFrame in parallel; partitions and the order of rows stay.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        Classic or Spark Connect.
    source : ModelSource
        The model, where all executors find it. It is loaded once for each of their Python workers.
    inputs : mapping of str to str
        Column to the model's input.
    outputs : mapping of str to str
        The model's output to column. The columns are ordered by the names of the outputs.
    batch_size : int
        Number of rows to score at once; the last batch of a partition may be shorter.

    Returns
    -------
    pyspark.sql.DataFrame
        The outputs, computed lazily. An output of shape ``(batch,)`` is a value, any other an array.

    Raises
    ------
    ConfigError
        If columns, inputs or outputs are missing or do not fit, or the model is missing; before any row is scored.
    """
    use_right_python(df.sparkSession)
    rows = prepare(df, sorted(inputs))
    described = describe_remotely(df, source, {})
    specs = column_specs(rows.schema.jsonValue())
    wanted = _outputs(described, inputs, outputs)
    problems = [problem for spec in specs for problem in _input_problems(spec, described, inputs[spec.name])]
    problems += [problem for tensor, _ in wanted for problem in _output_problems(tensor)]
    if problems:
        raise ConfigError(problems)
    find, work, fields, fed = make_finder(), _WORK, asdict(source), dict(inputs)
    returned = [(tensor.name, column, _LEAVES[tensor.dtype]) for tensor, column in wanted]

    def task(batches: Any) -> Any:
        yield from find(work, "score_batches")(batches, fields, fed, returned, batch_size)

    return map_batches(rows, task, _schema(wanted))


def _outputs(described: Description, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> list[tuple[Tensor, str]]:
    """Return the outputs wanted and their columns; a ConfigError for names of inputs and outputs that do not exist."""
    by_name = {tensor.alias: tensor for tensor in described.outputs} | {t.name: t for t in described.outputs}
    known = ", ".join(tensor.name for tensor in described.outputs) or "none that it declares"
    problems = _unknown_inputs([tensor.name for tensor in described.inputs], list(inputs.values()))
    problems += [
        f"output_mapping: the model has no output '{name}'; it has {known}" for name in outputs if name not in by_name
    ]
    if problems:
        raise ConfigError(problems)
    return [(by_name[name], column) for name, column in sorted(outputs.items())]


def _unknown_inputs(takes: Sequence[str], given: Sequence[str]) -> list[str]:
    twice = sorted({name for name in given if given.count(name) > 1})
    problems = [f"input_mapping: two columns are for the input '{name}'" for name in twice]
    # A model that does not declare its inputs takes any names.
    unknown = [name for name in dict.fromkeys(given) if takes and name not in takes]
    problems += [f"input_mapping: the model has no input '{name}'; it has {', '.join(takes)}" for name in unknown]
    return problems + [
        f"input_mapping: the model's input '{name}' has no column" for name in takes if name not in given
    ]


def _input_problems(spec: ColumnSpec, described: Description, name: str) -> list[str]:
    tensor = next((tensor for tensor in described.inputs if tensor.name == name), None)
    if tensor is None:
        return []
    text = f"the model's input '{name}'"
    if (spec.dtype == "object") != (tensor.dtype == "string"):
        return [f"input_mapping: column '{spec.name}' is {spec.tf_dtype}, but {text} is {tensor.dtype}"]
    if not spec.shape and tensor.size not in (1, None):
        shape = f"rows of shape {tensor.shape}"
        return [f"input_mapping: column '{spec.name}' has one value per row, but {text} takes {shape}"]
    return []


def _output_problems(tensor: Tensor) -> list[str]:
    if tensor.dtype not in _LEAVES:
        return [f"output_mapping: output '{tensor.name}' is {tensor.dtype}, which no column holds"]
    if tensor.shape is None:
        advice = "give it a shape in the model, as by tf.ensure_shape"
        return [f"output_mapping: output '{tensor.name}' has an unknown number of dimensions: {advice}"]
    return []


def _schema(outputs: Sequence[tuple[Tensor, str]]) -> StructType:
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(column, _spark_type(tensor)) for tensor, column in outputs])


def _spark_type(tensor: Tensor) -> DataType:
    from pyspark.sql import types as t

    kinds: dict[str, type[DataType]] = {
        "double": t.DoubleType,
        "bigint": t.LongType,
        "boolean": t.BooleanType,
        "binary": t.BinaryType,
    }
    spark_type = kinds[_LEAVES[tensor.dtype]]()
    for _ in tensor.shape or ():
        spark_type = t.ArrayType(spark_type)
    return spark_type
