"""`TFTextFileEstimator`: a function that trains on sentence matrices, as a stage of Spark ML.

Its interface is that of the estimator of the same name in Spark Deep Learning. The work is done by
`tfos_lab.ml.driver.text`; nodes import this module with the programs that use it.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.ml.base import Estimator, Model

from tfos_lab.core.options import is_int
from tfos_lab.errors import ConfigError, ParamError
from tfos_lab.ml import param_values as v
from tfos_lab.ml.params import Declaration, Stage, declares
from tfos_lab.ml.text_nodes import NORMAL, READ_DATA, SIGNATURE, TFOS, name_of, takes_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tfos_lab.ml.driver.text import TrainedModel

_NEEDED = {
    "inputCol": "name the column of features",
    "fitParam": "give it a dict for each model, as in [{'epochs': 5, 'batch_size': 32}]",
    "mapFnParam": f"give it the function that trains, {SIGNATURE}",
}
_COUNTS = ("epochs", "batch_size", "cluster_size")
_PREDICTION = "prediction"


# ---- params ---------------------------------------------------------------------------------------------------------


def _fit_params(name: str, value: Any) -> list[dict[str, Any]]:
    """Take the dicts of a list, copied."""
    wrong = [(name, value)]
    if isinstance(value, list | tuple):
        wrong = [(f"{name}[{index}]", one) for index, one in enumerate(value) if not isinstance(one, Mapping)]
    if wrong:
        needed = "a list of dicts is needed, one for each model, as in [{'epochs': 5}]"
        raise ParamError([f"{where} is a {type(one).__name__}: {needed}" for where, one in wrong])
    if not value:
        raise ParamError([f"{name} is empty: give it a dict for each model, as in [{{'epochs': 5, 'batch_size': 32}}]"])
    if problems := [problem for index, one in enumerate(value) for problem in _problems(f"{name}[{index}]", one)]:
        raise ParamError(problems)
    return [dict(one) for one in value]


def _problems(where: str, fit_param: Mapping[Any, Any]) -> list[str]:
    names = [f"{where} has the key {name!r}: names are needed" for name in fit_param if not isinstance(name, str)]
    counts = [
        f"{where}['{name}'] is {fit_param[name]!r}: a whole number from 1 on is needed"
        for name in _COUNTS
        if name in fit_param and not (is_int(fit_param[name]) and fit_param[name] >= 1)
    ]
    model = fit_param.get("model", "-")
    folder = [] if isinstance(model, str) and model else [f"{where}['model'] is {model!r}: a path is needed"]
    return [*names, *counts, *folder]


def _mode(name: str, value: Any) -> str:
    """Take a running mode."""
    if value not in (NORMAL, TFOS):
        what = f"'{NORMAL}' (a model for each fitParam) and '{TFOS}' (one cluster) are known"
        raise ParamError([f"{name}={value!r}: {what}"])
    return str(value)


def _map_fun(name: str, value: Any) -> Callable[..., Any]:
    """Take a function that has ``args`` and ``ctx`` by these names."""
    if not callable(value):
        raise ParamError([f"{name} is a {type(value).__name__}: a function is needed, {SIGNATURE}"])
    try:
        inspect.signature(value).bind(args={}, ctx=None, **({READ_DATA: None} if takes_rows(value) else {}))
    except (TypeError, ValueError) as error:
        raise ParamError([f"{name}={name_of(value)} cannot be called ({error}): it has to be {SIGNATURE}"]) from None
    return value  # type: ignore[no-any-return]


_COLUMNS = (
    Declaration(name="inputCol", doc="The column of features", convert=v.text),
    Declaration(name="outputCol", doc="The column that a model's predictions go to", convert=v.text),
    Declaration(name="labelCol", doc="The column of labels", convert=v.text),
)
_TRAINING = (
    Declaration(name="fitParam", doc="A dict of parameters for each model", convert=_fit_params),
    Declaration(
        name="runningMode",
        doc="Normal: models side by side; TFoS: a cluster for one",
        convert=_mode,
        default=NORMAL,
    ),
    Declaration(name="mapFnParam", doc="The function that trains a model", convert=_map_fun),
    Declaration(name="kafkaParam", doc="Not needed: rows come from Spark", convert=v.arguments),
    Declaration(name="local", doc="Where nodes run, as in tfos_lab.run", convert=v.text, default="auto"),
)


# ---- stages ---------------------------------------------------------------------------------------------------------


@declares(*_COLUMNS)
class TFTextFileModel(Stage, Model):
    """The models of one `TFTextFileEstimator.fit`.

    It also has the methods of its `results`: ``model.collect()``, ``model.show()``, ``model.toPandas()``.

    Parameters
    ----------
    trained : list of TrainedModel
        The models, in the order of `fitParam`.
    results : pyspark.sql.DataFrame
        A row for each: ``params`` (struct of the dict's keys), ``metrics`` (map of string to double), ``model``
        (string, its path), ``state``, ``seconds``, ``error`` and ``run_dir``.

    Attributes
    ----------
    trained, results
        As given.
    models : list of TFTextFileModel
        Each model by itself, without those that failed.
    """

    def __init__(self, trained: list[TrainedModel], results: DataFrame) -> None:
        super().__init__()
        self.trained = trained
        self.results = results

    def __getattr__(self, name: str) -> Any:
        results = self.__dict__.get("results")
        if results is None or name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(results, name)

    @property
    def models(self) -> list[TFTextFileModel]:
        """Each model by itself, without those that failed."""
        nothing = self.results.limit(0)
        return [self._copyValues(TFTextFileModel([one], nothing)) for one in self.trained if not one.error]

    @property
    def metrics(self) -> Mapping[str, float]:
        """The metrics of the only model; a ConfigError if there are several."""
        return self._only("metrics").metrics

    @property
    def path(self) -> str:
        """Where the only model was saved; a ConfigError if there are several."""
        return self._only("path").model

    def _only(self, asked: str) -> TrainedModel:
        if len(self.trained) == 1:
            return self.trained[0]
        raise ConfigError(
            [f"model.{asked}: these are {len(self.trained)} models: choose one, as in model.models[0].{asked}"]
        )

    def _transform(self, dataset: DataFrame) -> DataFrame:
        from tfos_lab.scoring.predict import predict

        path = self._only("transform(df)").model
        if not path:
            advice = "have the function save it to args['model'], or return {'model': path}"
            raise ConfigError([f"model.transform(df): nothing says where this model was saved: {advice}"])
        feature, output = self.value_of("inputCol"), self.value_of("outputCol") or _PREDICTION
        taken = output == feature or output in dataset.columns
        return predict(dataset, path, feature, output=_PREDICTION if taken else output)


@declares(*_COLUMNS, *_TRAINING)
class TFTextFileEstimator(Stage, Estimator[TFTextFileModel]):
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
    ParamError
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
        from tfos_lab.ml.driver.text import results_frame, train

        trained = train(self, dataset)
        return self._copyValues(TFTextFileModel(trained, results_frame(dataset.sparkSession, trained)))
