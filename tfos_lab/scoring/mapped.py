"""Scores by explicit names, as TensorFlowOnSpark's TFModel does: which column is which input, which output is a column.

The result has the outputs alone, as the types that Python's own values have in Spark: double, bigint, boolean and
binary, or arrays of them. `predict` is the function for new programs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    taken, wanted = _paired(described, inputs, outputs)
    problems = [problem for spec in specs for problem in _input_problems(spec, taken[spec.name])]
    problems += [problem for tensor, _ in wanted for problem in _output_problems(tensor)]
    if problems:
        raise ConfigError(problems)
    find, work, fields = make_finder(), _WORK, asdict(source)
    fed = {column: tensor.name for column, tensor in taken.items()}
    returned = [(tensor.name, column, _LEAVES[tensor.dtype]) for tensor, column in wanted]

    def task(batches: Any) -> Any:
        yield from find(work, "score_batches")(batches, fields, fed, returned, batch_size)

    return map_batches(rows, task, _schema(wanted))


def _paired(
    described: Description, inputs: Mapping[str, str], outputs: Mapping[str, str]
) -> tuple[dict[str, Tensor], list[tuple[Tensor, str]]]:
    """Return each column's input, and each output with its column; a ConfigError names what the model does not have."""
    # A model that does not declare its inputs takes any names.
    declared = described.inputs or [Tensor(name, "", None) for name in inputs.values()]
    takes, has = _by_name(declared), _by_name(described.outputs)
    problems = _unknown("input_mapping: the model has no input", inputs.values(), takes, declared)
    problems += _unknown("output_mapping: the model has no output", outputs, has, described.outputs)
    taken = {column: takes[name] for column, name in inputs.items() if name in takes}
    given = [tensor.name for tensor in taken.values()]
    for name in (tensor.name for tensor in declared):
        if name not in given:
            problems.append(f"input_mapping: the model's input '{name}' has no column")
        elif given.count(name) > 1:
            problems.append(f"input_mapping: two columns are for the input '{name}'")
    if problems:
        raise ConfigError(problems)
    return taken, [(has[name], column) for name, column in sorted(outputs.items())]


def _by_name(tensors: Iterable[Tensor]) -> dict[str, Tensor]:
    aliases = {alias: tensor for tensor in tensors for alias in tensor.aliases}
    return aliases | {tensor.name: tensor for tensor in tensors}


def _unknown(problem: str, names: Iterable[str], known: Mapping[str, Tensor], tensors: Iterable[Tensor]) -> list[str]:
    shown = ", ".join(tensor.name for tensor in tensors) or "none that it declares"
    return [f"{problem} '{name}'; it has {shown}" for name in dict.fromkeys(names) if name not in known]


def _input_problems(spec: ColumnSpec, tensor: Tensor) -> list[str]:
    name = f"the model's input '{tensor.name}'"
    if tensor.dtype and (spec.dtype == "object") != (tensor.dtype == "string"):
        return [f"input_mapping: column '{spec.name}' is {spec.tf_dtype}, but {name} is {tensor.dtype}"]
    if not spec.shape and tensor.size not in (1, None):
        shape = f"rows of shape {tensor.shape}"
        return [f"input_mapping: column '{spec.name}' has one value per row, but {name} takes {shape}"]
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
