"""`TFModel`: scores DataFrames with a trained model as a stage of a Spark ML pipeline.

Programs of users import this module on executors, too: what scores is in `tfos_lab.ml.driver`, on the driver only.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.ml.base import Model
from pyspark.ml.util import MLReadable, MLReader, MLWritable, MLWriter

from tfos_lab.ml.declared import COLUMNS, SCORING
from tfos_lab.ml.params import Stage, declares

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame


@declares(*COLUMNS, *SCORING)
class TFModel(Stage, Model, MLWritable, MLReadable["TFModel"]):
    """Scores a DataFrame in parallel with a Keras model or a SavedModel; `TFEstimator.fit` makes one.

    `transform` returns all columns, and one for each output that is wanted. Outputs of floating-point numbers become
    doubles, or arrays of doubles where a row has several; nothing is scored before the result is used. The model is
    loaded once for each of Spark's Python workers.

    Parameters
    ----------
    {params}

    Attributes
    ----------
    history : dict of str to list of float, or None
        What each epoch's metrics were: Keras' history for a model that was trained by ``TFEstimator(model=...)``, or
        the dict or ``History`` that ``train_fn`` has returned on the chief.
    metrics : pandas.DataFrame or None
        What the nodes have reported while they trained; see ``cluster.metrics``. It is not saved with the model.
    results : mapping of str to object, or None
        What the nodes have returned. They are not saved with the model.
    run_dir : Path or None
        The folder of the run in which the model was trained, on the machine that trained it.

    Notes
    -----
    Without ``inputMapping``, ``inputCols`` and ``featuresCol``, the columns that have the names of the model's inputs
    are scored, or else the column ``features``. A model with several outputs gets a column for each, of its name,
    unless ``outputMapping`` or ``outputCols`` say otherwise.

    `save` copies the model's files: the folder has all that is needed, on any file system.

    Examples
    --------
    >>> model = TFModel(modelPath="/models/digits.keras", featuresCol="pixels")  # doctest: +SKIP
    >>> model.transform(test_df).select("prediction")  # doctest: +SKIP
    >>> model.write().overwrite().save("hdfs:///models/digits")  # doctest: +SKIP
    """

    history: dict[str, list[float]] | None = None
    metrics: pd.DataFrame | None = None
    results: Mapping[str, Any] | None = None
    run_dir: Path | None = None
    # Whether the model was trained by this process, so that the code in it is the user's own.
    is_trusted = False

    def __init__(self, **params: Any) -> None:
        super().__init__(**params)

    def model(self, *, compile: bool = True, safe_mode: bool = True) -> Any:  # noqa: A002 - Keras' own name
        """Load the model into this process; this imports TensorFlow.

        Parameters
        ----------
        compile : bool
            Also restore optimizer, loss and metrics.
        safe_mode : bool
            Refuse models that hold Python code, as ``Lambda`` layers do; those that this process trained are loaded.

        Returns
        -------
        keras.Model, tf_keras.Model or a SavedModel as ``tf.saved_model.load`` returns it

        Raises
        ------
        ConfigError
            If ``modelPath`` is not set, or there is no model.
        NoModel
            If this process lacks TensorFlow.
        """
        from tfos_lab.ml.driver.model_source import load

        return load(self, compile=compile, safe_mode=safe_mode and not self.is_trusted)

    def _transform(self, dataset: DataFrame) -> DataFrame:
        from tfos_lab.ml.driver.scoring import transform

        return transform(self, dataset)

    def write(self) -> MLWriter:
        """Return what saves this model: ``model.write().overwrite().save(path)``."""
        from tfos_lab.ml.driver.saving import ModelWriter

        return ModelWriter(self)

    @classmethod
    def read(cls) -> MLReader[TFModel]:
        """Return what loads a model. With ``customObjects``, loading runs the code that was saved with them."""
        from tfos_lab.ml.driver.saving import ModelReader

        return ModelReader(cls)
