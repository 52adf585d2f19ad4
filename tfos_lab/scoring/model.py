"""Runs on the executors: finds a model's files, loads it once for each Python worker, describes it, scores with it.

`tfos_lab.scoring.predict` has Spark call it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import fs

from tfos_lab.core.crossing import crossing
from tfos_lab.core.lazy_imports import lazy_parts_of_keras
from tfos_lab.core.paths import split_scheme
from tfos_lab.core.runtime_files import spool_root
from tfos_lab.data.batches import to_arrow, to_numpy
from tfos_lab.data.file_systems import open_path, readable_errors
from tfos_lab.data.model_files import MODEL_FILE, load_keras
from tfos_lab.data.rows import Array
from tfos_lab.errors import ConfigError
from tfos_lab.scoring.description import KERAS_SUFFIXES, ModelSource, Tensor, describe, named_outputs, read_names

Outputs = dict[str, Array]
# An input as a scorer gets it: what errors call its column, and the model's name for it.
Given = tuple[str, str]
# An output that is wanted: the model's name, the column, NumPy's name of the values' type ("object" for bytes), and how
# many arrays are around a row's values.
Wanted = tuple[str, str, str, int]
# Path, size and time of each file.
Stamp = tuple[tuple[str, int, int], ...]

# What marks the folder of a SavedModel.
SAVED_MODEL = ("saved_model.pb", "saved_model.pbtxt")
# TensorFlow opens these itself, with its own keys.
_OF_TENSORFLOW = ("gs",)

# The user's name for the model's path → that for its signature.
_SIGNATURE_OPTIONS = {"model": "signature", "modelPath": "signatureDefKey"}
# And that for its classes and functions.
_OBJECTS_OPTIONS = {"model": "custom_objects", "modelPath": "customObjects"}
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


def score_batches(
    batches: Iterable[pa.RecordBatch],
    source: Mapping[str, Any],
    inputs: Sequence[Given],
    outputs: Sequence[Wanted],
    batch_size: int,
) -> Iterator[pa.RecordBatch]:
    """Yield a batch of outputs for each ``batch_size`` rows of a partition; raises for rows that do not fit."""
    score = None
    for batch in _of_size(batches, batch_size):
        if score is None:  # here, so that a partition without rows loads nothing
            score = make_scorer(source, {}, inputs, outputs)
        columns = to_numpy(batch)
        yield to_arrow(score([columns[column] for column, _ in inputs]))


def _of_size(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Cut batches of any size into batches of ``rows`` rows; the last may have fewer."""
    held: list[pa.RecordBatch] = []
    missing = rows
    for batch in batches:
        start = 0
        while batch.num_rows - start >= missing:
            yield _joined([*held, batch.slice(start, missing)])
            start += missing
            held, missing = [], rows
        if start < batch.num_rows:
            held.append(batch.slice(start))
            missing -= batch.num_rows - start
    if held:
        yield _joined(held)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


# ---- scoring --------------------------------------------------------------------------------------------------------


def make_scorer(
    source: Mapping[str, Any],
    custom_objects: Mapping[str, Any],
    inputs: Sequence[Given],
    outputs: Sequence[Wanted],
) -> Callable[[Sequence[Array]], Outputs]:
    """Load a model, and return the function that computes columns from an array for each input.

    ``source`` has the fields of a `ModelSource`. The function gets ``inputs``, in this order, and returns ``outputs``.
    """
    model = load_once(ModelSource(**source), custom_objects)
    takes = {tensor.name: tensor for tensor in describe(model).inputs}

    @crossing()
    def score(arrays: Sequence[Array]) -> Outputs:
        given = zip(inputs, arrays, strict=True)
        found = _call(model, {name: _fitted(array, takes.get(name), column) for (column, name), array in given})
        return {output[1]: _column(found, *output, rows=len(arrays[0])) for output in outputs}

    return score


def _call(model: Any, arrays: dict[str, Array]) -> Outputs:
    """Compute a model's outputs, by their names, from arrays by the names of its inputs."""
    if hasattr(model, "structured_outputs"):
        import tensorflow as tf

        specs = model.structured_input_signature[1]
        tensors = {name: tf.constant(arrays[name], spec.dtype) for name, spec in specs.items()}
        return {name: value.numpy() for name, value in model(**tensors).items()}
    given: Any = arrays if len(arrays) > 1 else next(iter(arrays.values()))
    found = model.predict_on_batch(given)
    return {name: np.asarray(value) for name, value in named_outputs(model, found).items()}


def _fitted(array: Array, tensor: Tensor | None, column: str) -> Array:
    """Give a column the dtype and the shape that the model's input has: Spark's arrays are often flat."""
    if tensor is None:
        return array
    if array.dtype != object:
        array = array.astype(tensor.dtype, copy=False)
    wanted, shape = tensor.shape, array.shape[1:]
    if wanted is None or (
        len(shape) == len(wanted) and all(length in (None, size) for size, length in zip(shape, wanted, strict=True))
    ):
        return array
    size = prod(length for length in wanted if length is not None)
    open_lengths = wanted.count(None)
    if prod(shape) == size or (open_lengths == 1 and size and prod(shape) % size == 0):
        return array.reshape(
            len(array), *(-1 if length is None and open_lengths == 1 else length or 1 for length in wanted)
        )
    raise ConfigError(
        [f"column '{column}' has rows of shape {shape}, but the model's input '{tensor.name}' takes {wanted}"]
    )


def _column(found: Outputs, name: str, column: str, dtype: str, depth: int, *, rows: int) -> Array:
    """Return an output as the values of a column: flat for one value or one array for each row, else as it is."""
    if name not in found and len(found) == 1:
        name = next(iter(found))
    if name not in found:
        raise ConfigError([f"returns: the model has no output '{name}'; it has {', '.join(found)}"])
    values = found[name]
    counted = len(values) if values.ndim else "no"
    if counted != rows:
        raise ConfigError([f"the model's output '{name}' has {counted} rows for {rows} rows of input"])
    if depth < 2:
        values = values.reshape(rows, -1)
    if not depth and values.shape[1] != 1:
        problem = f"the model's output '{name}' has {values.shape[1]} values for each row"
        raise ConfigError([f"{problem}: use an array type for the column '{column}'"])
    if dtype == "str":
        texts = [value.decode() if isinstance(value, bytes) else str(value) for value in values.reshape(-1).tolist()]
        values = np.array(texts, object).reshape(values.shape)
    else:
        values = values.astype(dtype)
    return values if depth else values[:, 0]


# ---- loading --------------------------------------------------------------------------------------------------------


def load_once(source: ModelSource, custom_objects: Mapping[str, Any]) -> Any:
    """Return a live Keras model, or the signature of a SavedModel: the one loaded last, if its files are the same."""
    key = source, stamp_of(source)
    if key not in _loaded:
        _prepare_tensorflow()
        _loaded.clear()
        _loaded[key] = _load(source, custom_objects)
    return _loaded[key]


def _load(source: ModelSource, custom_objects: Mapping[str, Any]) -> Any:
    try:
        if source.data:
            with tempfile.TemporaryDirectory(dir=spool_root()) as folder:
                file = Path(folder) / MODEL_FILE
                file.write_bytes(source.data)
                return _load_file(model_in(source, file), source, custom_objects)
        with local_path(source) as path:
            is_keras = path.endswith(KERAS_SUFFIXES)
            return _load_file(path, source, custom_objects) if is_keras else _load_saved(path, source)
    except ConfigError:
        raise
    except Exception as error:
        name = f"{source.option}='{source.path}'" if source.path else "the model"
        objects = _OBJECTS_OPTIONS.get(source.option) if "Could not locate" in str(error) else None
        advice = f"; give its classes and functions, as in {objects}={{'Name': Name}}" if objects else ""
        raise ConfigError([f"{name} cannot be loaded{advice}: {type(error).__name__}: {error}"]) from error


def _prepare_tensorflow() -> None:
    """Configure TensorFlow to use only the cores and GPUs of this task."""
    from pyspark import TaskContext

    task = TaskContext.get()
    gpus = task.resources().get("gpu") if task else None
    if gpus is not None:
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", ",".join(gpus.addresses))
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    collects = gc.isenabled()
    gc.disable()  # as fork servers do
    try:
        with lazy_parts_of_keras():
            import tensorflow as tf
    finally:
        if collects:
            gc.enable()
    if task is not None:
        with contextlib.suppress(RuntimeError):  # this worker has initialized TensorFlow before
            tf.config.threading.set_intra_op_parallelism_threads(task.cpus())


def _load_file(path: str, source: ModelSource, custom_objects: Mapping[str, Any]) -> Any:
    trust: dict[str, Any] = {"package": source.package, "safe_mode": False} if source.is_trusted else {}
    return load_keras(path, custom_objects=custom_objects, compile=False, **trust)


def _load_saved(path: str, source: ModelSource) -> Any:
    import tensorflow as tf

    try:
        model = tf.saved_model.load(path, tags=source.tags.split(",") if source.tags else None)
    except ValueError as error:
        if "tags" not in str(error):
            raise
        raise ConfigError([f"tag_set='{source.tags}': {' '.join(str(error).split())}"]) from error
    names = list(model.signatures)
    wanted = source.signature or (names[0] if len(names) == 1 else "serving_default")
    if wanted not in names:
        option = _SIGNATURE_OPTIONS.get(source.option, "signature_def_key")
        raise ConfigError([f"{option}='{wanted}': {source.path} has {', '.join(names) or 'none'}"])
    signature = model.signatures[wanted]
    # The signature alone does not keep the model's variables in memory.
    signature.model = model
    signature.other_names = read_names(path)
    return signature


# ---- files ----------------------------------------------------------------------------------------------------------


def stamp_of(source: ModelSource) -> Stamp:
    """Return what differs when a model has been written anew: the sizes and times of its files, which must be there."""
    if source.data or split_scheme(source.path)[0] in _OF_TENSORFLOW:
        return ()
    with readable_errors(source.path):
        system, plain = open_path(source.path)
        (info,) = system.get_file_info([plain])
        if info.type == fs.FileType.NotFound:
            other = ", or pass the Keras model itself" if source.option == "model" else ""
            problem = (
                f"{source.option}='{source.path}': there is no such file or folder on {socket.gethostname()}; put it "
                f"where all executors find it{other}"
            )
            raise ConfigError([problem])
        is_file = info.type == fs.FileType.File
        files = [info] if is_file else system.get_file_info(fs.FileSelector(plain, recursive=True))
    return tuple(sorted((file.path, file.size or 0, file.mtime_ns or 0) for file in files))


@contextlib.contextmanager
def local_path(source: ModelSource) -> Iterator[str]:
    """Yield the path of a model's file or folder on this machine; what lies elsewhere is copied for this block."""
    if split_scheme(source.path)[0] in _OF_TENSORFLOW:
        yield source.path
        return
    with readable_errors(source.path):
        system, plain = open_path(source.path)
    if isinstance(system, fs.LocalFileSystem):
        yield model_in(source, Path(plain))
        return
    with tempfile.TemporaryDirectory(dir=spool_root()) as folder:
        # Keras distinguishes files by their suffixes.
        copy = Path(folder) / Path(plain).name
        with readable_errors(source.path, "copy"):
            fs.copy_files(plain, str(copy), source_filesystem=system, destination_filesystem=fs.LocalFileSystem())
        yield model_in(source, copy)


def model_in(source: ModelSource, path: Path) -> str:
    """Return the path of a SavedModel or a Keras file; for a folder that is no SavedModel, of the one file in it."""
    if path.is_file() and path.suffix not in KERAS_SUFFIXES:
        advice = "pass a .keras file, or the folder of a SavedModel"
        raise ConfigError([f"{source.option}='{source.path}' is a file, but none of Keras' own: {advice}"])
    if path.suffix == ".keras" and path.is_file() and not zipfile.is_zipfile(path):
        problem = "is no file that Keras has written, which are zip archives; save the model anew, by model.save(path)"
        raise ConfigError([f"{source.option}='{source.path}' {problem}"])
    if not path.is_dir() or any((path / name).is_file() for name in SAVED_MODEL):
        return str(path)
    keras = [file for file in path.iterdir() if file.suffix in KERAS_SUFFIXES]
    if len(keras) == 1:
        return str(keras[0])
    names = ", ".join(sorted(file.name for file in path.iterdir())[:10]) or "nothing"
    problem = (
        f"{source.option}='{source.path}' holds no model: a SavedModel has a file saved_model.pb, and Keras writes one "
        f".keras file, but here is {names}; export the model, as by model.export(path)"
    )
    raise ConfigError([problem])
