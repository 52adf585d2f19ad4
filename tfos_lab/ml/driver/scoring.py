"""What `TFModel.transform` does on the driver: chooses inputs, outputs and columns, and adds the outputs lazily."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tfos_lab.data.frames import require_frame
from tfos_lab.data.prepare import taken_names
from tfos_lab.data.spark_python import use_right_python
from tfos_lab.errors import ConfigError
from tfos_lab.ml.driver.columns import input_param, inputs_of, require_columns
from tfos_lab.ml.driver.model_source import source_of
from tfos_lab.scoring.columns import Input, Output, choose_inputs, choose_outputs, pair_inputs, pick
from tfos_lab.scoring.description import Tensor, names_of
from tfos_lab.scoring.predict import add_outputs, describe_remotely

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tfos_lab.ml.model import TFModel


def transform(model: TFModel, df: DataFrame) -> DataFrame:
    """Return a DataFrame with the model's outputs as new columns; see `TFModel`.

    A ConfigError, before any row is scored, if columns, inputs or outputs are missing or do not fit, or the model is
    missing.
    """
    require_frame(df, "transform")
    use_right_python(df.sparkSession)
    source, custom = source_of(model, df.sparkSession), model.getCustomObjects()
    described = describe_remotely(df, source, custom)
    inputs = _inputs(model, df, described.inputs)
    outputs = _outputs(model, described.outputs)
    classes = model.getProbabilityCol() if model.isSet("probabilityCol") else None
    added = [out.column for out in outputs] if classes is None else [CLASS_SCORES, model.getPredictionCol(), classes]
    taken = taken_names(df, added)
    if taken:
        advice = "choose another name with predictionCol, outputCols or outputMapping, or drop it"
        raise ConfigError([f"column '{name}' is there already: {advice}" for name in taken])
    scored = add_outputs(df, source, custom, inputs, outputs, batch_size=model.getBatchSize())
    return scored if classes is None else add_classes(scored, outputs[0], classes, model.getPredictionCol())


# ---- inputs ---------------------------------------------------------------------------------------------------------


def _inputs(model: TFModel, df: DataFrame, tensors: Sequence[Tensor]) -> list[Input]:
    param = input_param(model)
    names = [tensor.name for tensor in tensors]
    if param is None and names and set(names) <= set(df.columns):
        return choose_inputs(df, {name: name for name in names}, tensors)
    if param is None and model.getFeaturesCol() not in df.columns:
        there = f"the model takes {', '.join(names) or 'one or more'}, the data has {', '.join(df.columns)}"
        raise ConfigError(
            [f"which columns are the model's inputs? Set featuresCol, inputCols or inputMapping; {there}"]
        )
    param = param or "featuresCol"
    wanted = inputs_of(model, param)
    require_columns(df, [(param, column) for column in wanted])
    features: list[str] | dict[str, str] = list(wanted)
    if param == "inputMapping":
        paired, problems = pair_inputs("inputMapping", model.getInputMapping(), tensors)
        if problems:
            raise ConfigError(problems)
        features = {tensor.name: column for column, tensor in paired.items()}
    try:
        return choose_inputs(df, features, tensors)
    except ConfigError as error:
        raise ConfigError([problem.replace("features:", f"{param}:", 1) for problem in error.problems]) from None


# ---- outputs --------------------------------------------------------------------------------------------------------


def _outputs(model: TFModel, tensors: Sequence[Tensor]) -> list[Output]:
    if not tensors:
        path, advice = model.getModelPath(), "export it as a SavedModel, which does (model.export(folder))"
        raise ConfigError([f"modelPath='{path}': the model does not say what its outputs are: {advice}"])
    if model.isSet("probabilityCol"):
        return [_column(_only(tensors, "probabilityCol", model.getProbabilityCol()), CLASS_SCORES)]
    if model.isSet("outputMapping"):
        return _mapped(model.getOutputMapping(), tensors)
    if model.isSet("outputCols"):
        columns = model.getOutputCols()
        if len(columns) != len(tensors):
            has = f"the model has {len(tensors)}: {names_of(tensors)}"
            raise ConfigError([f"outputCols={columns}: names for {len(columns)} outputs, but {has}"])
        return [_column(tensor, column) for tensor, column in zip(tensors, columns, strict=True)]
    if len(tensors) == 1 or model.isSet("predictionCol"):
        return [_column(_only(tensors, "predictionCol", model.getPredictionCol()), model.getPredictionCol())]
    return [_column(tensor, tensor.name) for tensor in tensors]


def _only(tensors: Sequence[Tensor], param: str, column: str) -> Tensor:
    if len(tensors) == 1:
        return tensors[0]
    advice = f"say which one with outputMapping={{'{tensors[0].name}': '{column}'}}"
    raise ConfigError([f"{param}='{column}': the model has {len(tensors)} outputs, {names_of(tensors)}; {advice}"])


def _mapped(mapping: Mapping[str, str], tensors: Sequence[Tensor]) -> list[Output]:
    known, problems = pick("outputMapping", "output", mapping, tensors)
    columns = list(mapping.values())
    twice = sorted({column for column in columns if columns.count(column) > 1})
    problems += [f"outputMapping: two outputs are for the column '{column}'" for column in twice]
    if problems:
        raise ConfigError(problems)
    return [_column(known[name], column) for name, column in mapping.items()]


def _column(tensor: Tensor, column: str) -> Output:
    """Return an output as a column; floating-point numbers are doubles, as Spark ML's evaluators take them."""
    (output,) = choose_outputs([tensor], column, None)
    return replace(output, leaf="double") if output.leaf == "float" else output


# The column with a classifier's output until it is a vector.
CLASS_SCORES = "tfos_lab_class_scores"


def add_classes(scored: DataFrame, output: Output, probability: str, prediction: str) -> DataFrame:
    """Return the columns of a DataFrame with probabilities and classes instead of a classifier's output.

    The column `CLASS_SCORES` has a probability for each class, or one value, that of the second of two classes. The new
    columns are a vector of spark.ml, and a double, the number of the most probable class.
    """
    from pyspark.ml.functions import array_to_vector
    from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

    if output.leaf != "double":
        raise ConfigError([f"probabilityCol='{probability}': the output '{output.name}' is {output.leaf}, no numbers"])
    scores = F.col(CLASS_SCORES)
    if not output.depth:
        scores = F.array(F.lit(1.0) - scores, scores)
    best = (F.array_position(scores, F.array_max(scores)) - 1).cast("double")
    return scored.select("*", array_to_vector(scores).alias(probability), best.alias(prediction)).drop(CLASS_SCORES)
