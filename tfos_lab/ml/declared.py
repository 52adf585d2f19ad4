"""The params of `TFEstimator` and `TFModel`, as declarations.

Those that concern the cluster are the options of `tfos_lab.run`, under Spark ML's spelling of their names: their
documentation, defaults and checks come from `tfos_lab.core.config`.
"""

from __future__ import annotations

import re

from tfos_lab.core.config import ClusterOptions, FeedOptions
from tfos_lab.core.options import Option, options_for
from tfos_lab.ml import param_values as v
from tfos_lab.ml.params import Declaration

# The options of clusters that are params, by the name of the param.
CLUSTER_OPTIONS: dict[str, Option] = {
    v.camel_case(one.name): one for owner in (ClusterOptions, FeedOptions) for one in options_for(owner, "fit")
}


def _of_cluster(name: str, one: Option) -> Declaration:
    doc = re.sub(r"[`*]+", "", f"{one.meaning[0].upper()}{one.meaning[1:]}")
    return Declaration(name=name, doc=doc, convert=v.of_option(one), default=one.default, optional=one.optional)


# ---- columns: of both stages ----------------------------------------------------------------------------------------

COLUMNS = (
    Declaration(
        name="inputCols",
        doc=(
            "Columns that are the model's inputs: by their names where these are the inputs' names, else in the order "
            "of the inputs; several columns of numbers are together the values of a model's only input"
        ),
        convert=v.texts,
    ),
    Declaration(
        name="featuresCol",
        doc="The column that is the model's only input, where neither inputCols nor inputMapping is set",
        convert=v.text,
        default="features",
    ),
    Declaration(
        name="inputMapping",
        doc="Which column is which input of the model, {column: input}; counts instead of inputCols",
        convert=v.pairs,
    ),
    Declaration(
        name="predictionCol",
        doc="Name of the new column for a model's only output; with probabilityCol, for the most probable class",
        convert=v.text,
        default="prediction",
    ),
    Declaration(
        name="outputCols",
        doc="Names of the new columns for the model's outputs, in the order of the outputs; counts for predictionCol",
        convert=v.texts,
    ),
    Declaration(
        name="outputMapping",
        doc="Which outputs of the model become columns, {output: column}; counts instead of outputCols",
        convert=v.pairs,
    ),
    Declaration(
        name="probabilityCol",
        doc=(
            "For a classifier with one output: name of a new column with the probabilities of all classes, a vector of "
            "spark.ml; a model with one value per row gives the probability of the second of two classes"
        ),
        convert=v.text,
    ),
    Declaration(
        name="signatureDefKey",
        doc="Which signature of a SavedModel to call; by default serving_default, or the only one",
        convert=v.text,
        optional=True,
    ),
    Declaration(
        name="tagSet",
        doc="Tags of a SavedModel's graph, separated by commas; by default its only graph",
        convert=v.text,
        optional=True,
    ),
    Declaration(
        name="customObjects",
        doc="Classes and functions that a Keras model was made with and Keras does not know, by name",
        convert=v.custom_objects,
        default={},
    ),
)

# ---- training -------------------------------------------------------------------------------------------------------

TRAINING = (
    Declaration(
        name="labelCol",
        doc=(
            "The column that is to be predicted; for a model of several outputs a list of columns, in the order of the "
            "outputs, or a dict of outputs to columns"
        ),
        convert=v.label,
        default="label",
    ),
    Declaration(name="weightCol", doc="The column with the rows' weights; by default all count 1", convert=v.text),
    Declaration(
        name="args",
        doc="What train_fn, or a function that makes the model, finds in its args beside the params; a dict",
        convert=v.arguments,
        default={},
    ),
    Declaration(name="batchSize", doc="Rows of a step on each node", convert=v.whole(1), default=32),
    Declaration(
        name="shuffle",
        doc="Whether model= is trained with each node's rows in another order in each epoch",
        convert=v.flag,
        default=False,
    ),
    Declaration(name="seed", doc="Makes the order of shuffle repeatable", convert=v.whole(0), optional=True),
    Declaration(
        name="exportDir",
        doc=(
            "Folder for the trained model, on any file system: train_fn exports it there itself, or it is copied there "
            "from ctx.save_model; without it, the model stays in the folder of the run, on the driver's machine"
        ),
        convert=v.path,
    ),
    Declaration(
        name="modelDir",
        doc="Folder for train_fn's checkpoints; if nothing else was saved, the model is looked for there",
        convert=v.path,
    ),
    Declaration(
        name="show",
        doc="Whether fit shows the training: live in a notebook, as text elsewhere; fits on other threads are silent",
        convert=v.flag,
        default=True,
    ),
    *(_of_cluster(name, one) for name, one in CLUSTER_OPTIONS.items()),
)

# ---- scoring --------------------------------------------------------------------------------------------------------

SCORING = (
    Declaration(
        name="modelPath",
        doc="The model: a .keras file or the folder of a SavedModel, where all executors find it",
        convert=v.path,
    ),
    Declaration(name="batchSize", doc="Rows to score at once", convert=v.whole(1), default=1024),
)
