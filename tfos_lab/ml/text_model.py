"""`TFTextFileModel`: what `TFTextFileEstimator` has trained, compared in a DataFrame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tfos_lab.compat.spark_ml import Model
from tfos_lab.errors import ConfigError
from tfos_lab.ml.text_params import TextColumns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PREDICTION = "prediction"


@dataclass(frozen=True)
class TrainedModel:
    """One model, and how its training went.

    Attributes
    ----------
    params : dict
        Its dict of `fitParam`.
    metrics : dict of str to float
        What the function returned, and what it reported last.
    model : str
        The path where it was saved; "" if the function saved none, or did not say where.
    state : str
        ``"done"``, or how the training ended otherwise.
    seconds : float
        How long it took.
    error : str
        Why it failed, in a line.
    run_dir : str
        The folder with logs and output.
    """

    params: dict[str, Any]
    metrics: dict[str, float] = field(default_factory=dict)
    model: str = ""
    state: str = "done"
    seconds: float = 0.0
    error: str = ""
    run_dir: str = ""


class TFTextFileModel(Model, TextColumns):
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
        return [self._single(index) for index, one in enumerate(self.trained) if not one.error]

    def _single(self, index: int) -> TFTextFileModel:
        single = TFTextFileModel([self.trained[index]], self.results.limit(0))
        return self._copyValues(single)

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
        output = self.getOutputCol() if self.isDefined("outputCol") else _PREDICTION
        taken = output == self.getInputCol() or output in dataset.columns
        return predict(dataset, path, self.getInputCol(), output=_PREDICTION if taken else output)
