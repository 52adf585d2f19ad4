"""`TFEstimator`: trains on a cluster as a stage of a Spark ML pipeline.

Programs of users import this module on executors, too: what trains is in `tfos_lab.ml.driver`, on the driver only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.ml.base import Estimator
from pyspark.ml.util import MLReadable, MLReader, MLWritable, MLWriter

from tfos_lab.errors import ConfigError
from tfos_lab.ml.declared import COLUMNS, TRAINING
from tfos_lab.ml.model import TFModel
from tfos_lab.ml.params import Stage, declares

if TYPE_CHECKING:
    import keras
    from pyspark.ml.param import Param
    from pyspark.sql import DataFrame

    from tfos_lab.ml.keras_training import ModelFile


@declares(*COLUMNS, *TRAINING)
class TFEstimator(Stage, Estimator["TFModel"], MLWritable, MLReadable["TFEstimator"]):
    """Trains on a cluster that is fed with a DataFrame's rows; `fit` returns a `TFModel`.

    There are two ways to say what is trained. With ``train_fn(args, ctx)``, a function of your own runs on each node,
    as with `tfos_lab.run`: it reads ``ctx.dataset(args.batchSize, ...)`` and calls ``ctx.save_model(model)``, or
    exports to ``args.exportDir``. With ``model``, a compiled Keras model is trained by ``fit``: any number of workers
    end with the weights that one process would have.

    In a notebook, `fit` shows the training live, as a cell does. ■ stops the cluster. Where Spark fits several models
    at once, as in a `CrossValidator`, each is a cluster of its own, and nothing is shown.

    Parameters
    ----------
    train_fn : callable
        ``train_fn(args, ctx)``, run on each node. ``args`` has the arguments and all params, as attributes and items,
        each under its own name and in Python's spelling: ``args.batchSize`` and ``args.batch_size``.
    args : dict or argparse.Namespace
        Arguments of your own, which ``train_fn`` finds in its ``args``. They are a param too, so that a grid may have
        several.
    model : keras.Model or callable
        A compiled model; or a function that makes one on the nodes, of no parameters, or of one, the ``args``.
    {params}

    Notes
    -----
    What is fed are the columns of ``inputMapping``, ``inputCols`` or ``featuresCol``, the label and the weights. A
    ``train_fn`` for which none of the three is set gets all columns.

    `save` writes the function with cloudpickle. Loading an estimator runs the code that is in its files: load what you
    or people you trust have saved.

    Works with Spark Connect as well. Spark reports what its own stages cannot do there, such as
    saving a `CrossValidator`.

    Examples
    --------
    >>> estimator = TFEstimator(model=compiled, featuresCol="x", epochs=3, clusterSize=2)  # doctest: +SKIP
    >>> model = Pipeline(stages=[assembler, estimator]).fit(train_df)  # doctest: +SKIP
    >>> model.transform(test_df).select("prediction")  # doctest: +SKIP
    """

    train_fn: Callable[..., Any] | None
    model: keras.Model | ModelFile | Callable[..., Any] | None
    # Whether this is one of several fits, whose models must not take one another's place.
    is_one_of_several = False

    def __init__(
        self,
        train_fn: Callable[..., Any] | None = None,
        args: Any = None,
        *,
        model: keras.Model | Callable[..., Any] | None = None,
        **params: Any,
    ) -> None:
        if train_fn is not None and not callable(train_fn):
            raise ConfigError([f"train_fn={train_fn!r:.60}: a function that takes (args, ctx) is needed"])
        if train_fn is not None and model is not None:
            raise ConfigError(["train_fn and model: give one of them, as train_fn makes its model itself"])
        self.train_fn = train_fn
        self.model = model
        super().__init__(**{"args": args, **params} if args is not None else params)

    def fitMultiple(
        self, dataset: DataFrame, paramMaps: Sequence[Mapping[Param[Any], Any]]
    ) -> Iterator[tuple[int, TFModel]]:
        """Fit a model for each map of params; the iterator may be used from several threads at once.

        Parameters
        ----------
        dataset : pyspark.sql.DataFrame
            The rows.
        paramMaps : sequence of dict
            Values of params. A model that goes to ``exportDir`` gets a folder of its own in it.

        Returns
        -------
        iterator of (int, TFModel)
            The number of a map, and the model that was trained with it.
        """
        several = self.copy()
        several.is_one_of_several = True
        return super(TFEstimator, several).fitMultiple(dataset, [dict(each) for each in paramMaps])

    def _fit(self, dataset: DataFrame) -> TFModel:
        from tfos_lab.ml.driver.fitting import fit

        return fit(self, dataset, TFModel())

    def write(self) -> MLWriter:
        """Return what saves this estimator: ``estimator.write().overwrite().save(path)``."""
        from tfos_lab.ml.driver.saving import EstimatorWriter

        return EstimatorWriter(self)

    @classmethod
    def read(cls) -> MLReader[TFEstimator]:
        """Return what loads an estimator. Loading runs the code that was saved with it."""
        from tfos_lab.ml.driver.saving import EstimatorReader

        return EstimatorReader(cls)
