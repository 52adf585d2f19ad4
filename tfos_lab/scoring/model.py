"""Runs on the executors: loads a model once for each Python worker, describes it, and computes predictions.

`tfos_lab.scoring.predict` has Spark call it. Only this module of `scoring` imports TensorFlow.
"""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tfos_lab.core.crossing import crossing
from tfos_lab.core.lazy_imports import lazy_parts_of_keras
from tfos_lab.core.runtime_files import spool_root
from tfos_lab.data.model_files import package_that_wrote
from tfos_lab.errors import ConfigError
from tfos_lab.scoring.description import KERAS_SUFFIXES, ModelSource, describe, named_outputs
from tfos_lab.scoring.keras_names import read_names
from tfos_lab.scoring.model_files import Stamp, local_path, stamp_of

Array = np.ndarray[Any, Any]
Outputs = dict[str, Array]

# The user's name for the model's path → that for its signature.
_SIGNATURE_OPTIONS = {"model": "signature", "modelPath": "signatureDefKey"}
# The model that was loaded last, by its source and files: the worker that describes a model also scores with it.
_loaded: dict[tuple[ModelSource, Stamp], Any] = {}


def describe_task(
    batches: Iterator[pa.RecordBatch], source: Mapping[str, Any], custom_objects: Mapping[str, Any]
) -> Iterator[pa.RecordBatch]:
    """Load a model, and yield one row with its description, or with the reason why it cannot be loaded."""
    for _ in batches:
        pass  # Spark ends the worker of a task that leaves rows unread, and the model would be gone
    described, problem = "", ""
    try:
        described = describe(load_once(ModelSource(**source), custom_objects)).to_json()
    except Exception as error:  # noqa: BLE001 - the driver raises it; raised here, Spark would try again
        problem = str(error) if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
    yield pa.RecordBatch.from_pydict({"described": [described], "problem": [problem]})


def make_scorer(
    source: Mapping[str, Any],
    custom_objects: Mapping[str, Any],
    inputs: Sequence[str],
    outputs: Sequence[tuple[str, str, bool]],
) -> Callable[..., Any]:
    """Load a model, and return the function that Spark calls with an array for each input.

    Parameters
    ----------
    source, custom_objects : mapping
        Fields of a `ModelSource`; classes and functions that the model needs.
    inputs : sequence of str
        The model's names for the arrays.
    outputs : sequence of (str, str, bool)
        For each output wanted: its name, its NumPy dtype, and whether a row of it is an array.
    """
    model = load_once(ModelSource(**source), custom_objects)

    @crossing()
    def score(arrays: Sequence[Array]) -> Any:
        found = call(model, dict(zip(inputs, arrays, strict=True)))
        shaped = {output[0]: _shaped(found, *output, rows=len(arrays[0])) for output in outputs}
        return shaped if len(outputs) > 1 else shaped[outputs[0][0]]

    return score


def load_once(source: ModelSource, custom_objects: Mapping[str, Any]) -> Any:
    """Return a live Keras model, or the signature of a SavedModel: the one loaded last, if its files are the same."""
    key = source, stamp_of(source)
    if key not in _loaded:
        _prepare_tensorflow()
        _loaded.clear()
        _loaded[key] = _load(source, custom_objects)
    return _loaded[key]


def _load(source: ModelSource, custom_objects: Mapping[str, Any]) -> Any:
    if source.data:
        return _load_sent(source, custom_objects)
    with local_path(source) as path:
        is_keras = path.endswith(KERAS_SUFFIXES)
        return _load_file(path, source, custom_objects) if is_keras else _load_saved(path, source)


def _prepare_tensorflow() -> None:
    """Configure TensorFlow to use only the cores and GPUs of this task."""
    from pyspark import TaskContext

    task = TaskContext.get()
    gpus = task.resources().get("gpu") if task else None
    if gpus is not None:
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", ",".join(gpus.addresses))
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    tf = _import_tensorflow()
    if task is not None:
        try:
            tf.config.threading.set_intra_op_parallelism_threads(task.cpus())
        except RuntimeError:  # this worker has initialized TensorFlow before
            return


def _import_tensorflow() -> Any:
    collects = gc.isenabled()
    gc.disable()  # as `tfos_lab.node.preload` does
    try:
        with lazy_parts_of_keras():
            import tensorflow as tf
    finally:
        if collects:
            gc.enable()
    return tf


def _load_sent(source: ModelSource, custom_objects: Mapping[str, Any]) -> Any:
    with tempfile.TemporaryDirectory(dir=spool_root()) as folder:
        path = Path(folder) / "model.keras"
        path.write_bytes(source.data)
        return _load_file(str(path), source, custom_objects)


def _load_file(path: str, source: ModelSource, custom_objects: Mapping[str, Any]) -> Any:
    package = source.package if source.is_trusted else package_that_wrote(path)
    if package == "tf_keras":
        from tf_keras.models import load_model
    else:
        from keras.models import load_model

    options = {"custom_objects": dict(custom_objects) or None, "compile": False}
    if source.is_trusted:
        options["safe_mode"] = False
    return load_model(path, **options)


def _load_saved(path: str, source: ModelSource) -> Any:
    import tensorflow as tf

    try:
        model = tf.saved_model.load(path, tags=source.tags.split(",") if source.tags else None)
    except ValueError as error:
        if "tags" not in str(error):
            raise
        raise ConfigError([f"tag_set='{source.tags}': {' '.join(str(error).split())}"]) from error
    signature = model.signatures[_signature_name(list(model.signatures), source)]
    # The signature alone does not keep the model's variables in memory.
    signature.model = model
    signature.other_names = read_names(path)
    return signature


def _signature_name(names: Sequence[str], source: ModelSource) -> str:
    wanted = source.signature or (names[0] if len(names) == 1 else "serving_default")
    if wanted in names:
        return wanted
    option = _SIGNATURE_OPTIONS.get(source.option, "signature_def_key")
    raise ConfigError([f"{option}='{wanted}': {source.path} has {', '.join(names) or 'none'}"])


def call(model: Any, arrays: dict[str, Array]) -> Outputs:
    """Compute a model's outputs, by their names, from arrays by the names of its inputs."""
    if hasattr(model, "structured_outputs"):
        import tensorflow as tf

        specs = model.structured_input_signature[1]
        tensors = {name: tf.constant(_fitted(arrays[name], spec), spec.dtype) for name, spec in specs.items()}
        return {name: value.numpy() for name, value in model(**tensors).items()}
    given: Any = arrays if len(arrays) > 1 else next(iter(arrays.values()))
    found = model.predict_on_batch(given)
    return {name: np.asarray(value) for name, value in named_outputs(model, found).items()}


def _fitted(array: Array, spec: Any) -> Any:
    """Give a column of single values the shape that the signature expects, such as ``(rows, 1)``."""
    wanted = tuple(spec.shape)[1:]
    if array.ndim == 1 and wanted and prod(size or 1 for size in wanted) == 1:
        array = array.reshape(-1, *(1 for _ in wanted))
    return array if array.dtype == object else array.astype(spec.dtype.as_numpy_dtype)


def _shaped(found: Outputs, name: str, dtype: str, is_array: bool, *, rows: int) -> Array:  # noqa: FBT001
    """Give an output the shape and dtype of its column: one value or one array for each row."""
    if name not in found and len(found) == 1:
        name = next(iter(found))
    if name not in found:
        raise ConfigError([f"returns: the model has no output '{name}'; it has {', '.join(found)}"])
    values = found[name]
    if len(values) != rows:
        raise ConfigError([f"the model's output '{name}' has {len(values)} rows for {rows} rows of input"])
    flat = values.reshape(rows, -1)
    if not is_array and flat.shape[1] != 1:
        raise ConfigError([f"the model's output '{name}' has {flat.shape[1]} values for each row: use an array type"])
    if dtype == "str":
        texts = [value.decode() if isinstance(value, bytes) else str(value) for value in flat.reshape(-1).tolist()]
        flat = np.array(texts, object).reshape(flat.shape)
    else:
        flat = flat.astype(dtype)
    return flat if is_array else flat[:, 0]
