"""The parameters of `TFTextFileEstimator`, with their checks: each refuses what it cannot be when it is set."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Self

from tfos_lab.compat.spark_ml import Param, Params, TypeConverters
from tfos_lab.core.options import is_int
from tfos_lab.errors import ConfigError
from tfos_lab.ml.text_nodes import READ_DATA, takes_rows

NORMAL, TFOS = "Normal", "TFoS"
_MODES = (NORMAL, TFOS)
_SIGNATURE = f"def map_fun(args={{}}, ctx=None, {READ_DATA}=None)"
_COUNTS = ("epochs", "batch_size", "cluster_size")


def to_fit_params(value: Any) -> list[dict[str, Any]]:
    """Return the dicts of a list, copied.

    Raises
    ------
    ConfigError
        With what is wrong in each.
    """
    if not isinstance(value, list | tuple) or not all(isinstance(one, Mapping) for one in value):
        kind = type(value).__name__
        raise ConfigError(
            [f"fitParam is a {kind}: a list of dicts is needed, one for each model, as in [{{'epochs': 5}}]"]
        )
    problems = [problem for index, one in enumerate(value) for problem in _problems(index, one)]
    if not value:
        problems = ["fitParam is empty: give it a dict for each model, as in [{'epochs': 5, 'batch_size': 32}]"]
    if problems:
        raise ConfigError(problems)
    return [dict(one) for one in value]


def _problems(index: int, fit_param: Mapping[Any, Any]) -> list[str]:
    where = f"fitParam[{index}]"
    names = [f"{where} has the key {name!r}: names are needed" for name in fit_param if not isinstance(name, str)]
    counts = [
        f"{where}['{name}'] is {fit_param[name]!r}: a whole number from 1 on is needed"
        for name in _COUNTS
        if name in fit_param and not (is_int(fit_param[name]) and fit_param[name] >= 1)
    ]
    model = fit_param.get("model", "-")
    folder = [] if isinstance(model, str) and model else [f"{where}['model'] is {model!r}: a path is needed"]
    return [*names, *counts, *folder]


def to_mode(value: Any) -> str:
    """Return a running mode; a ConfigError for an unknown one."""
    if value not in _MODES:
        what = f"'{NORMAL}' (a model for each fitParam) and '{TFOS}' (one cluster) are known"
        raise ConfigError([f"runningMode={value!r}: {what}"])
    return str(value)


def to_function(value: Any) -> Callable[..., Any]:
    """Return a function that takes ``args`` and ``ctx`` by these names; a ConfigError for anything else."""
    if not callable(value):
        raise ConfigError([f"mapFnParam is a {type(value).__name__}: a function is needed, {_SIGNATURE}"])
    try:
        inspect.signature(value).bind(args={}, ctx=None, **({READ_DATA: None} if takes_rows(value) else {}))
    except (TypeError, ValueError) as error:
        raise ConfigError(
            [f"mapFnParam={_name(value)} cannot be called ({error}): it has to be {_SIGNATURE}"]
        ) from None
    return value  # type: ignore[no-any-return]


def require_rows(map_fun: Callable[..., Any]) -> None:
    """Raise a ConfigError unless a function can be given all rows."""
    if not takes_rows(map_fun):
        raise ConfigError(
            [f"mapFnParam={_name(map_fun)} does not take {READ_DATA}, its rows in the mode '{NORMAL}': {_SIGNATURE}"]
        )


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def to_settings(value: Any) -> dict[str, Any]:
    """Return a dict as it is; a TypeError for anything else."""
    if isinstance(value, dict):
        return value
    raise TypeError(f"{value!r:.60} is a {type(value).__name__}, not a dict")


def _param(name: str, doc: str, converter: Callable[[Any], Any]) -> Param[Any]:
    return Param(Params._dummy(), name, doc, converter)  # noqa: SLF001 - Spark has no other way


class TextColumns(Params):
    """The columns of `TFTextFileEstimator` and of its models."""

    inputCol = _param("inputCol", "The column of features", TypeConverters.toString)  # noqa: N815
    outputCol = _param("outputCol", "The column that a model's predictions go to", TypeConverters.toString)  # noqa: N815
    labelCol = _param("labelCol", "The column of labels", TypeConverters.toString)  # noqa: N815

    def setInputCol(self, value: str) -> Self:  # noqa: N802 - named as in Spark ML, like all that follow
        """Set the column of features, and return this stage."""
        return self._set(inputCol=value)

    def getInputCol(self) -> str:  # noqa: N802
        """Return the column of features."""
        return str(self.getOrDefault(self.inputCol))

    def setOutputCol(self, value: str) -> Self:  # noqa: N802
        """Set the column of predictions, and return this stage."""
        return self._set(outputCol=value)

    def getOutputCol(self) -> str:  # noqa: N802
        """Return the column of predictions."""
        return str(self.getOrDefault(self.outputCol))

    def setLabelCol(self, value: str) -> Self:  # noqa: N802
        """Set the column of labels, and return this stage."""
        return self._set(labelCol=value)

    def getLabelCol(self) -> str:  # noqa: N802
        """Return the column of labels."""
        return str(self.getOrDefault(self.labelCol))


class TextTraining(Params):
    """What `TFTextFileEstimator` trains, and where."""

    fitParam = _param("fitParam", "A dict of parameters for each model", to_fit_params)  # noqa: N815
    runningMode = _param("runningMode", "Normal: models side by side; TFoS: a cluster for one", to_mode)  # noqa: N815
    mapFnParam = _param("mapFnParam", "The function that trains a model", to_function)  # noqa: N815
    kafkaParam = _param("kafkaParam", "Not needed: rows come from Spark", to_settings)  # noqa: N815
    local = _param("local", "Where nodes run, as in tfos_lab.run", TypeConverters.toString)

    def setFitParam(self, value: list[dict[str, Any]]) -> Self:  # noqa: N802
        """Set the models' parameters, and return this stage."""
        return self._set(fitParam=value)

    def getFitParam(self) -> list[dict[str, Any]]:  # noqa: N802
        """Return the models' parameters."""
        found: list[dict[str, Any]] = self.getOrDefault(self.fitParam)
        return found

    def setRunningMode(self, value: str) -> Self:  # noqa: N802
        """Set the running mode, and return this stage."""
        return self._set(runningMode=value)

    def getRunningMode(self) -> str:  # noqa: N802
        """Return the running mode."""
        return str(self.getOrDefault(self.runningMode))

    def setMapFnParam(self, value: Callable[..., Any]) -> Self:  # noqa: N802
        """Set the function, and return this stage."""
        return self._set(mapFnParam=value)

    def getMapFnParam(self) -> Callable[..., Any]:  # noqa: N802
        """Return the function."""
        found: Callable[..., Any] = self.getOrDefault(self.mapFnParam)
        return found

    def setKafkaParam(self, value: dict[str, Any]) -> Self:  # noqa: N802
        """Set Kafka's address, which is not used, and return this stage."""
        return self._set(kafkaParam=value)

    def getKafkaParam(self) -> dict[str, Any]:  # noqa: N802
        """Return Kafka's address, which is not used."""
        found: dict[str, Any] = self.getOrDefault(self.kafkaParam)
        return found

    def setLocal(self, value: str) -> Self:  # noqa: N802
        """Set where nodes run, and return this stage."""
        return self._set(local=value)

    def getLocal(self) -> str:  # noqa: N802
        """Return where nodes run."""
        return str(self.getOrDefault(self.local))
