"""Parallel scoring: `predict` adds a model's predictions to a DataFrame, for a model that fits on one node.

It wraps Spark's `predict_batch_udf`, and does what that leaves to its user: it sends the model to the executors, loads
it once for each of their Python workers, takes array lengths and types of predictions from the model, and names the
column that does not fit. The notebook's kernel does not import TensorFlow for this.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfos_lab.core.code_archive import make_finder, make_task
from tfos_lab.core.options import whole
from tfos_lab.core.paths import is_local, split_scheme
from tfos_lab.data.frames import model_path, require_frame
from tfos_lab.data.model_files import content_of, package_of, with_registered_names
from tfos_lab.data.prepare import map_batches, prepare, taken_names
from tfos_lab.data.schema import column_specs
from tfos_lab.data.spark_python import raises_own_errors, use_right_python
from tfos_lab.errors import ConfigError
from tfos_lab.scoring.columns import (
    PYTHON_TYPES,
    SPARK_TYPES,
    Input,
    Output,
    choose_inputs,
    choose_outputs,
    pair_inputs,
    pick,
    schema_of,
    spec_problems,
)
from tfos_lab.scoring.description import Description, ModelSource, Tensor, describe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WORK = "tfos_lab.scoring.model"
# The size of a file up to which it is sent.
_SENT_BYTES = 64 << 20


def predict(
    df: DataFrame,
    model: Any,
    features: str | Iterable[str] | Mapping[str, str] | None = None,
    *,
    output: str = "prediction",
    returns: str | Mapping[str, str] | None = None,
    batch_size: int = 1024,
    signature: str = "serving_default",
    custom_objects: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Score the rows of a DataFrame in parallel, with a model that fits on one node.

    Executors need TensorFlow, pandas and pyarrow. The model is loaded once for each of their Python workers.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        Classic or Spark Connect.
    model : keras.Model or str or Path
        A Keras model; a ``.keras`` file; or the folder of a SavedModel, which all executors must find. A path without a
        scheme that is not on this machine is on Spark's default file system.
    features : str, iterable of str, or mapping of str to str, optional
        The column to score: numbers, arrays of one length, or spark.ml vectors. Or several columns: a mapping of input
        to column for a model with several inputs; for a model with one input, columns that together are its values. By
        default the columns with the names of the model's inputs, or the only column of ``df``.
    output : str
        Name of the new column. A model with several outputs adds a column for each, named like the output.
    returns : str or mapping of str to str, optional
        Type of the prediction, such as ``"float"`` or ``"array<float>"``; or output to type, for some of several
        outputs. By default the model decides: one value per row becomes a scalar, several become an array.
    batch_size : int
        Number of rows to score at once.
    signature : str
        Which signature of a SavedModel to call.
    custom_objects : mapping of str to object, optional
        Classes and functions that a Keras model uses.

    Returns
    -------
    pyspark.sql.DataFrame
        All columns of ``df`` and the predictions; computed lazily.

    Raises
    ------
    ConfigError
        If columns are missing or do not fit the model, or the model is missing; before any row is scored.

    Examples
    --------
    >>> scored = predict(test_df, model, "image", output="digit")  # doctest: +SKIP
    """
    require_frame(df, "predict")
    with contextlib.suppress(TypeError):  # what cannot be iterated is reported below
        features = features if isinstance(features, str | Mapping | None) else list(features)
    problems = list(_problems(features, output, returns, batch_size, custom_objects))
    if problems:
        raise ConfigError(problems)
    use_right_python(df.sparkSession)
    source, custom, described = _source(model, df.sparkSession, signature, with_registered_names(custom_objects or {}))
    if described is None:
        described = describe_remotely(df, source, custom)
    inputs = choose_inputs(df, features, described.inputs)
    outputs = choose_outputs(described.outputs, output, returns)
    taken = taken_names(df, [out.column for out in outputs])
    if taken:
        raise ConfigError(
            [f"column '{name}' is there already: choose another name with output=, or drop it" for name in taken]
        )
    return add_outputs(df, source, custom, inputs, outputs, batch_size=batch_size)


def _problems(
    features: object, output: object, returns: object, batch_size: object, custom_objects: object
) -> Iterator[str]:
    """Return what is wrong with what `predict` was given, whatever the model."""
    names = list(features.values()) if isinstance(features, Mapping) else features
    if names is not None and not (isinstance(names, str | list) and all(isinstance(name, str) for name in names)):
        yield f"features={features!r:.60}: names of columns are needed, or a dict of inputs to names of columns"
    if not isinstance(output, str) or not output:
        several = "; those of a model with several outputs have the outputs' names" if isinstance(output, Sized) else ""
        yield f"output={output!r:.60}: a name for the new column is needed{several if output else ''}"
    types = returns.values() if isinstance(returns, Mapping) else [returns]
    if returns is not None and not all(isinstance(each, str) for each in types):
        yield f"returns={returns!r:.60}: a type of Spark's is needed, such as 'float', or a dict of outputs to types"
    yield from whole(1, needs="a whole number of rows, at least 1, is needed")("batch_size", batch_size)
    if custom_objects is not None and not isinstance(custom_objects, Mapping):
        yield f"custom_objects={custom_objects!r:.60}: a dict of names to classes and functions is needed"


def add_outputs(
    df: DataFrame,
    source: ModelSource,
    custom: Mapping[str, Any],
    inputs: Sequence[Input],
    outputs: Sequence[Output],
    *,
    batch_size: int,
) -> DataFrame:
    """Add a column for each of the outputs; see `predict`, which chooses inputs and outputs."""
    from pyspark.ml.functions import predict_batch_udf

    find, work, fields = make_finder(), _WORK, asdict(source)
    given, wanted = [(one.title, one.name) for one in inputs], [out.wanted for out in outputs]
    # Spark counts the parameters of the function that it gets.
    parameters = [inspect.Parameter(f"x{i}", inspect.Parameter.POSITIONAL_ONLY) for i in range(len(inputs))]

    def make_predict() -> Callable[..., Any]:
        score = find(work, "make_scorer")(fields, custom, given, wanted)

        def predict_batch(*arrays: Any) -> Any:
            found = score(arrays)
            return found if len(found) > 1 else next(iter(found.values()))

        predict_batch.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return predict_batch

    # Lists, and None for single values: Spark's check of a single input accepts nothing else.
    shapes = [None if one.size is None else [one.size] for one in inputs]
    schema = schema_of(outputs)
    udf = predict_batch_udf(
        make_predict,
        return_type=schema[0].dataType if len(outputs) == 1 else schema,
        batch_size=batch_size,
        input_tensor_shapes=shapes if any(shapes) else None,
    )
    scored = udf(*(one.column for one in inputs))
    if len(outputs) == 1:
        return df.select("*", scored.alias(outputs[0].column))
    combined = "tfos_lab_predictions"
    whole = df.select("*", scored.alias(combined))
    return whole.select("*", *(whole[combined][out.column].alias(out.column) for out in outputs)).drop(combined)


def _source(
    model: Any, spark: SparkSession, signature: str, custom: dict[str, Any]
) -> tuple[ModelSource, dict[str, Any], Description | None]:
    """Return where executors find the model, and its custom objects; for a Keras model also its description."""
    package = package_of(model)
    if package is not None:
        if type(model).__module__.partition(".")[0] != package:
            custom = {type(model).__name__: type(model), **custom}
        return ModelSource(data=content_of(model), package=package, is_trusted=True), custom, describe(model)
    if not isinstance(model, str | Path):
        raise ConfigError([f"model={type(model).__name__}: pass a Keras model, a .keras file or a SavedModel's folder"])
    return with_content(ModelSource(path=model_path(str(model), spark), signature=signature)), custom, None


def with_content(source: ModelSource) -> ModelSource:
    """Return a source with the content of its ``.keras`` file, if that is on this machine and small enough to be sent.

    Executors read any other file themselves.
    """
    here = Path(split_scheme(source.path)[2])
    if not (is_local(source.path) and source.path.endswith(".keras") and here.is_file()):
        return source
    return replace(source, data=here.read_bytes()) if here.stat().st_size <= _SENT_BYTES else source


def describe_remotely(df: DataFrame, source: ModelSource, custom: Mapping[str, Any]) -> Description:
    """Let one executor load the model and describe it; raises ConfigError with the reason if it cannot."""
    task = make_task(_WORK, "describe_task", asdict(source), custom)
    one = df.sparkSession.range(0, 1, 1, 1)
    with raises_own_errors(df.sparkSession):
        (row,) = one.mapInArrow(task, "described string, problem string").collect()
    if row["problem"]:
        raise ConfigError([row["problem"]])
    return Description.from_json(row["described"])


# ---- TensorFlowOnSpark's way ----------------------------------------------------------------------------------------


def score_mapped(
    df: DataFrame, source: ModelSource, inputs: Mapping[str, str], outputs: Mapping[str, str], batch_size: int
) -> DataFrame:
    """Score by explicit names, as TensorFlowOnSpark's TFModel does; partitions and the order of rows stay.

    ``inputs`` is column to the model's input, ``outputs`` the model's output to column. The result has the outputs
    alone, ordered by their names and computed lazily, as the types that Python's own values have in Spark: double,
    bigint, boolean and binary; an output of shape ``(batch,)`` is a value, any other an array. A ConfigError, before
    any row is scored, if columns, inputs or outputs are missing or do not fit, or the model is missing.
    """
    use_right_python(df.sparkSession)
    rows = prepare(df, sorted(inputs))
    described = describe_remotely(df, source, {})
    taken, problems = pair_inputs("input_mapping", inputs, described.inputs)
    missing = [one.name for one in described.inputs if one not in taken.values()]
    problems += [f"input_mapping: the model's input '{name}' has no column" for name in missing]
    has, unknown = pick("output_mapping", "output", outputs, described.outputs)
    if problems or unknown:
        raise ConfigError([*problems, *unknown])
    specs = column_specs(rows.schema.jsonValue())
    problems = [f"input_mapping: {problem}" for spec in specs for problem in spec_problems(spec, taken[spec.name])]
    problems += [problem for name in sorted(outputs) for problem in _output_problems(has[name])]
    if problems:
        raise ConfigError(problems)
    returned = [_as_python(has[name], column) for name, column in sorted(outputs.items())]
    given = [(column, tensor.name) for column, tensor in taken.items()]
    wanted = [out.wanted for out in returned]
    task = make_task(_WORK, "score_batches", asdict(source), given, wanted, batch_size)
    return map_batches(rows, task, schema_of(returned))


def _output_problems(tensor: Tensor) -> list[str]:
    if tensor.dtype not in SPARK_TYPES:
        return [f"output_mapping: output '{tensor.name}' is {tensor.dtype}, which no column holds"]
    if tensor.shape is None:
        advice = "give it a shape in the model, as by tf.ensure_shape"
        return [f"output_mapping: output '{tensor.name}' has an unknown number of dimensions: {advice}"]
    return []


def _as_python(tensor: Tensor, column: str) -> Output:
    return Output(tensor.name, column, PYTHON_TYPES[SPARK_TYPES[tensor.dtype]], len(tensor.shape or ()))
