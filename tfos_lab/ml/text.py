"""`TFTextFileEstimator`: a function that trains on sentence matrices, as a stage of Spark ML.

Its interface is that of the estimator of the same name in Spark Deep Learning. The work is done by
`tfos_lab.ml.driver.text_training`; nodes import this module with the programs that use it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from tfos_lab.compat.spark_ml import Estimator
from tfos_lab.errors import ConfigError
from tfos_lab.ml.text_model import TFTextFileModel
from tfos_lab.ml.text_params import NORMAL, TextColumns, TextTraining
from tfos_lab.ml.text_request import TextRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NEEDED = {
    "inputCol": "name the column of features",
    "fitParam": "give it a dict for each model, as in [{'epochs': 5, 'batch_size': 32}]",
    "mapFnParam": "give it the function that trains, def map_fun(args={}, ctx=None, _read_data=None)",
}


class TFTextFileEstimator(Estimator[TFTextFileModel], TextColumns, TextTraining):
    """Trains with a function of yours on the rows of a DataFrame: several models side by side, or one on a cluster.

    ``map_fun(args={}, ctx=None, _read_data=None)`` is called by these names. ``args`` is a dict, whose keys are
    attributes as well:

    ============================  =================================================================================
    ``feature``, ``label``        names of the columns; ``label`` is None without `labelCol`
    ``vocab_size``                of the first row's column of this name; None if there is none
    ``embedding_size``            the same; without such a column, the size of the first row's word vectors
    ``params``                    the estimator's parameters; ``params["fitParam"]`` is this model's dict in the mode
                                  "Normal", and a list with that dict in "TFoS"
    ``epochs``, ``model``, …      the keys of this model's dict
    ============================  =================================================================================

    A row is a pyspark ``Row`` of all columns of the DataFrame, feature and label first. What the function returns tells
    of the model: a dict of numbers, or a Keras history, are its metrics; ``"model"`` in the dict is its path.

    Parameters
    ----------
    inputCol : str
        The column of features, such as sentence matrices: arrays of word vectors, all of one shape.
    outputCol : str, optional
        The column for the predictions of a model; ``prediction`` by default, and where it is a column already.
    labelCol : str, optional
        The column of labels.
    kafkaParam : dict, optional
        Not used, which a warning says: rows come from Spark itself.
    fitParam : list of dict
        Parameters of the models. In the mode "TFoS" ``model`` is needed, and these have a meaning: ``epochs`` (how
        often the rows are fed; 1 by default), ``cluster_size`` (1), ``num_ps`` (0), ``master_node`` (None: all nodes
        that train are workers), ``tensorboard`` (False) and ``num_gpus``.
    runningMode : {"Normal", "TFoS"}
        "Normal" trains one model for each dict, as many at once as there are slots, each on one node and on all rows:
        ``ctx`` is None, and ``_read_data(max_records=64)`` iterates over all rows in lists of that length, from the
        first row whenever it is called. ``_read_data.report(loss=...)`` and ``_read_data.callbacks()`` show metrics
        live. Without ``model`` in its dict, ``args["model"]`` is a place in the run's folder.

        "TFoS" trains one model on a cluster that shares the rows: ``ctx`` is a `TFNodeContext`, whose rows
        ``TFNode.DataFeed(ctx.mgr, True)`` or ``ctx.dataset(...)`` reads. Several dicts follow one another.
    mapFnParam : callable
        The function.
    local : str
        Where nodes run, as in `tfos_lab.run`: ``"inline"`` in this very process, for breakpoints.

    Raises
    ------
    ConfigError
        For a value that makes no sense.

    Examples
    --------
    >>> estimator = TFTextFileEstimator(  # doctest: +SKIP
    ...     inputCol="sentence_matrix",
    ...     labelCol="label",
    ...     fitParam=[{"epochs": 5, "batch_size": 64}, {"epochs": 5, "batch_size": 1}],
    ...     runningMode="Normal",
    ...     mapFnParam=map_fun,
    ... )
    >>> estimator.fit(df).results.orderBy("metrics.loss").show()  # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        inputCol: str | None = None,  # noqa: N803 - named as in Spark Deep Learning, like all that follow
        outputCol: str | None = None,  # noqa: N803
        labelCol: str | None = None,  # noqa: N803
        kafkaParam: dict[str, Any] | None = None,  # noqa: N803
        fitParam: Sequence[Mapping[str, Any]] | None = None,  # noqa: N803
        runningMode: str | None = None,  # noqa: N803
        mapFnParam: Callable[..., Any] | None = None,  # noqa: N803
        local: str | None = None,
    ) -> None:
        super().__init__()
        self._setDefault(runningMode=NORMAL, local="auto")
        self.setParams(
            inputCol=inputCol,
            outputCol=outputCol,
            labelCol=labelCol,
            kafkaParam=kafkaParam,
            fitParam=fitParam,
            runningMode=runningMode,
            mapFnParam=mapFnParam,
            local=local,
        )

    def setParams(self, **params: Any) -> Self:  # noqa: N802 - as in Spark ML
        """Set parameters by their names, and return this stage; None leaves one as it is."""
        unknown = [name for name in params if not self.hasParam(name)]
        if unknown:
            known = ", ".join(param.name for param in self.params)
            raise ConfigError([f"{name}: there is no such parameter; there are {known}" for name in unknown])
        return self._set(**{name: value for name, value in params.items() if value is not None})

    def fit(self, dataset: DataFrame, params: Any = None) -> Any:
        """Train, and return a `TFTextFileModel`.

        Parameters
        ----------
        dataset : pyspark.sql.DataFrame
            The rows. Each model of the mode "Normal" has Spark compute them: ``cache()`` what takes long.
        params : dict or list of dict, optional
            Dicts of names are used instead of `fitParam`. Spark ML's own, whose keys are parameters, override these:
            a dict for one model, a list for a list of models.

        Raises
        ------
        ConfigError
            Before anything is started: for what is not set, and for columns that are missing or do not fit.
        FeedError
            If rows cannot be fed, as those whose matrices are of several shapes.
        ParallelFailed
            In the mode "Normal", if no model could be trained. If one could, the others are rows of its `results`.
        NodeFailed
            In the mode "TFoS", if a node failed.
        """
        several = params if isinstance(params, list | tuple) else [params] if params else []
        if several and all(isinstance(one, Mapping) and all(isinstance(key, str) for key in one) for one in several):
            return self.copy().setParams(fitParam=several).fit(dataset)
        return super().fit(dataset, params)

    def _fit(self, dataset: DataFrame) -> TFTextFileModel:
        unset = [f"{name} is not set: {advice}" for name, advice in _NEEDED.items() if not self.isDefined(name)]
        if unset:
            raise ConfigError(unset)
        if self.isSet("kafkaParam"):
            text = "kafkaParam is not used: rows come from Spark itself, so leave it out"
            warnings.warn(text, stacklevel=4)
        from tfos_lab.ml.driver.text_results import results_frame
        from tfos_lab.ml.driver.text_training import train

        trained = train(self._request(), dataset)
        return self._copyValues(TFTextFileModel(trained, results_frame(dataset.sparkSession, trained)))

    def _request(self) -> TextRequest:
        values = {param.name: value for param, value in self.extractParamMap().items()}
        return TextRequest(
            feature=values["inputCol"],
            label=values.get("labelCol"),
            map_fun=values.pop("mapFnParam"),
            fit_params=values.pop("fitParam"),
            alone=values["runningMode"] == NORMAL,
            local=values["local"],
            settings=values,
        )
