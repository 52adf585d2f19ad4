"""Saves and loads the stages of `tfos_lab.ml`, as Spark ML saves its own: a folder with ``metadata`` in it.

A model's folder also has its files, ``model.keras`` or ``model``; an estimator's has ``code``, which is what it trains,
packed as for a node. Metadata are written last, so that a folder that has them is whole.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.ml.util import MLReader, MLWriter

from tfos_lab.core.payload import pack, unpack
from tfos_lab.data.file_systems import exists, open_path, readable_errors
from tfos_lab.data.frames import path_in_full
from tfos_lab.data.spark_versions import ml_context
from tfos_lab.errors import ConfigError
from tfos_lab.ml.driver.fitting import as_sent
from tfos_lab.ml.driver.model_source import copy_files, full_path, holds_model, on_this_machine, remove

if TYPE_CHECKING:
    from tfos_lab.ml.estimator import TFEstimator
    from tfos_lab.ml.model import TFModel
    from tfos_lab.ml.params import Stage

# Values of these params are Python objects; the others are JSON.
_OBJECTS = ("args", "customObjects")
_CODE, _METADATA = "code", "metadata"


class _Writer(MLWriter):
    """Saves a stage: its metadata, its objects, and what `_write_files` adds."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self._stage = stage

    def save(self, path: str) -> None:
        """Save the stage to a folder that is not there yet, or is to be replaced (``overwrite()``).

        Raises
        ------
        ConfigError
            If the folder is there, or cannot be written; nothing is left of it then.
        PayloadError
            If something that belongs to the stage cannot be pickled.
        """
        target = path_in_full(path, self.sparkSession)
        if exists(target) and not self.shouldOverwrite:
            advice = "choose another folder, or replace it with write().overwrite().save(path)"
            raise ConfigError([f"path='{target}' is there already: {advice}"])
        self._save(target)

    def _save(self, target: str) -> None:
        from pyspark.ml.util import DefaultParamsWriter

        named = self._objects()
        objects = pack(dict, named) if named else b""
        remove(target)
        try:
            extra = self._write_files(target)
            if objects:
                _write(f"{target}/{_CODE}", objects)
            stage, spark = self._stage, ml_context(self.sparkSession)
            values = {param.name: value for param, value in stage._paramMap.items()}  # noqa: SLF001 - as Spark's writer
            kept = {name: value for name, value in values.items() if name not in (*_OBJECTS, "modelPath")}
            DefaultParamsWriter.saveMetadata(stage, target, spark, {**extra, "hasCode": bool(objects)}, kept)
        except BaseException:
            remove(target)
            raise

    def _objects(self) -> dict[str, Any]:
        """Return the stage's Python objects by name, those that there are."""
        named = {name: self._stage.value_of(name) for name in _OBJECTS if name in self._stage.declared}
        return {name: value for name, value in named.items() if value}

    def _write_files(self, _target: str) -> dict[str, Any]:
        """Write files beside metadata and objects; returns what to record of them in the metadata."""
        return {}


class EstimatorWriter(_Writer):
    """Saves a `TFEstimator`, with the function or model that it trains."""

    _stage: TFEstimator

    def _objects(self) -> dict[str, Any]:
        estimator = self._stage
        own = {"train_fn": estimator.train_fn, "model": as_sent(estimator.model)}
        return {**super()._objects(), **{name: value for name, value in own.items() if value is not None}}


class ModelWriter(_Writer):
    """Saves a `TFModel`, with a copy of the model's files."""

    _stage: TFModel

    def _save(self, target: str) -> None:
        path = full_path(self._stage, self.sparkSession)
        if not holds_model(path):
            raise ConfigError([f"modelPath='{path}': there is no model that this machine finds, so none can be saved"])
        with on_this_machine(path, outside=target) as files:
            self._files = files
            super()._save(target)

    def _write_files(self, target: str) -> dict[str, Any]:
        name = f"model{self._files.suffix if self._files.is_file() else ''}"
        copy_files(str(self._files), f"{target}/{name}")
        model = self._stage
        run_dir = None if model.run_dir is None else str(model.run_dir)
        return {"modelFile": name, "history": _as_json(model.history), "runDir": run_dir}


def _as_json(history: Any) -> Any:
    try:
        return json.loads(json.dumps(history))
    except (TypeError, ValueError):
        return None


def _write(path: str, data: bytes) -> None:
    with readable_errors(path, "write"):
        system, plain = open_path(path)
        system.create_dir(plain.rpartition("/")[0], recursive=True)
        with system.open_output_stream(plain) as stream:
            stream.write(data)


# ---- loading --------------------------------------------------------------------------------------------------------


def _load_stage(stage: Any, path: str, reader: MLReader[Any]) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Give a new stage the params that were saved; returns the folder, the metadata, and the objects."""
    from pyspark.ml.util import DefaultParamsReader

    spark, kind = reader.sparkSession, type(stage).__name__
    target = path_in_full(path, spark)
    if not exists(f"{target}/{_METADATA}"):
        is_model = kind == "TFModel" and holds_model(target)
        advice = f"; a model itself is scored by TFModel(modelPath='{path}')" if is_model else ""
        raise ConfigError(
            [f"path='{target}': there is no saved {kind}, as there is no folder {_METADATA} in it{advice}"]
        )
    metadata = DefaultParamsReader.loadMetadata(target, ml_context(spark))
    saved = metadata["class"].rpartition(".")[2]
    if saved != kind:
        raise ConfigError([f"path='{target}': a {saved} was saved there; load it with {saved}.load(path)"])
    stage._resetUid(metadata["uid"])  # noqa: SLF001 - as Spark's own reader does
    stage.setParams(**metadata["paramMap"])
    objects: dict[str, Any] = {}
    if metadata.get("hasCode"):
        with readable_errors(f"{target}/{_CODE}"):
            system, plain = open_path(f"{target}/{_CODE}")
            with system.open_input_stream(plain) as stream:
                code = stream.readall()
        objects = unpack(code)[1]
    stage.setParams(**{name: value for name, value in objects.items() if name in _OBJECTS})
    return target, metadata, objects


class EstimatorReader(MLReader[Any]):
    """Loads a `TFEstimator`; this runs the code that was saved with it."""

    def __init__(self, kind: type[TFEstimator]) -> None:
        super().__init__()
        self._kind = kind

    def load(self, path: str) -> Any:
        """Load an estimator that was saved to a folder."""
        estimator = self._kind()
        _, _, objects = _load_stage(estimator, path, self)
        estimator.train_fn, estimator.model = objects.get("train_fn"), objects.get("model")
        return estimator


class ModelReader(MLReader[Any]):
    """Loads a `TFModel`; with custom objects, this runs the code that was saved with them."""

    def __init__(self, kind: type[TFModel]) -> None:
        super().__init__()
        self._kind = kind

    def load(self, path: str) -> Any:
        """Load a model that was saved to a folder; the model's files stay there."""
        model = self._kind()
        target, metadata, _ = _load_stage(model, path, self)
        model.setModelPath(f"{target}/{metadata['modelFile']}")
        model.history = metadata.get("history")
        model.run_dir = Path(metadata["runDir"]) if metadata.get("runDir") else None
        return model
