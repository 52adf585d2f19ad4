"""Saves a trained model on a node, and loads it in the notebook.

TensorFlow and Keras are imported only where a model is loaded or a SavedModel is written.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfos_lab.core.paths import OWN_MARK
from tfos_lab.errors import ConfigError

MODEL_FILE = "model.keras"
MODEL_FOLDER = "model"

# Log lines of absl and TensorFlow, except fatal ones.
_LOG_LINE = re.compile(rb"[IWE]\d{4} |WARNING: All log messages before absl::|\d{4}-\d\d-\d\d \S+: [IWE] ")
_PARTIAL = f"{OWN_MARK}partial-"
#: Where this process has saved models. A cell that ends with such a path shows nothing: the model has been moved.
SAVED: set[str] = set()


def package_of(model: Any) -> str | None:
    """Return the Keras package of a live model, if any, without importing anything."""
    for package in ("keras", "tf_keras"):
        kind = getattr(sys.modules.get(package), "Model", None)
        if kind is not None and isinstance(model, kind):
            return package
    return None


def package_that_wrote(path: str | Path) -> str:
    """Return the package that wrote a ``.keras`` file: ``keras``, or ``tf_keras``, which is Keras 2."""
    with contextlib.suppress(OSError, zipfile.BadZipFile, KeyError, ValueError, AttributeError):
        with zipfile.ZipFile(path) as archive:
            version = json.loads(archive.read("metadata.json"))["keras_version"]
        return "tf_keras" if version.startswith("2.") else "keras"
    return "keras"


def save_model(model: Any, folder: str) -> str:
    """Save a model atomically in a folder, and return its path; see `NodeContext.save_model`."""
    path = str(_save(model, folder))
    SAVED.add(path)
    return path


def _save(model: Any, folder: str) -> Path:
    if package_of(model) is not None:
        partial, path = Path(folder) / f"{_PARTIAL}{MODEL_FILE}", Path(folder) / MODEL_FILE
        model.save(str(partial))
        return partial.replace(path)
    import tensorflow as tf

    if not isinstance(model, tf.Module):
        problem = f"ctx.save_model({type(model).__name__}): a Keras model or a tf.Module is needed"
        raise ConfigError([f"{problem}; write anything else below ctx.output_dir, which comes to the notebook as well"])
    partial, path = Path(folder) / f"{_PARTIAL}{MODEL_FOLDER}", Path(folder) / MODEL_FOLDER
    shutil.rmtree(partial, ignore_errors=True)
    tf.saved_model.save(model, str(partial))
    shutil.rmtree(path, ignore_errors=True)
    return partial.rename(path)


def find_model(folder: Path) -> Path | None:
    """Return the path of the model in a folder, the newer one of two; None if there is none."""
    found = [path for path in (folder / MODEL_FILE, folder / MODEL_FOLDER) if path.exists()]
    return max(found, key=lambda path: path.stat().st_mtime) if found else None


def load_model(path: Path, *, custom_objects: Mapping[str, Any] | None, compile: bool, safe_mode: bool) -> Any:  # noqa: A002 - Keras' own name
    """Load a model that `save_model` has saved; ImportError if the package that wrote it is not installed."""
    with _sparing_gpu_memory(), _without_logs():
        if path.is_dir():
            import tensorflow as tf

            return tf.saved_model.load(str(path))
        return load_keras(path, custom_objects=custom_objects, compile=compile, safe_mode=safe_mode)


def load_keras(
    path: str | Path, package: str | None = None, *, custom_objects: Mapping[str, Any] | None, **options: Any
) -> Any:
    """Load a file that Keras has written, with the package that wrote it unless another is given."""
    if (package or package_that_wrote(path)) == "tf_keras":
        from tf_keras.models import load_model as load
    else:
        from keras.models import load_model as load
    return load(str(path), custom_objects=dict(custom_objects or {}) or None, **options)


def with_registered_names(custom_objects: Mapping[str, Any]) -> dict[str, Any]:
    """Return classes and functions under the names, too, by which Keras has registered them in this process.

    Files have these names, such as ``Custom>Twice``, and other processes do not know them.
    """
    named = dict(custom_objects)
    for package in ("keras", "tf_keras"):
        saving: Any = getattr(sys.modules.get(package), "saving", None)
        if saving is not None:
            names = {
                saving.get_registered_name(one): one for one in custom_objects.values() if hasattr(one, "__name__")
            }
            named |= {name: one for name, one in names.items() if ">" in name}
    return named


def content_of(model: Any) -> bytes:
    """Return a Keras model as the content of a ``.keras`` file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / MODEL_FILE
        model.save(str(path))
        return path.read_bytes()


@contextlib.contextmanager
def _sparing_gpu_memory() -> Iterator[None]:
    """Have TensorFlow leave GPU memory to others, unless the user decides otherwise; nodes do not inherit this."""
    wanted = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    ours = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)


@contextlib.contextmanager
def _without_logs() -> Iterator[None]:
    """Suppress what TensorFlow's C++ logs when it is loaded; other output to stderr is written afterwards."""
    stderr = None
    with contextlib.suppress(OSError):  # no stderr, nothing to suppress
        stderr = os.dup(2)
    if stderr is None:
        yield
        return
    with os.fdopen(stderr, "wb"), tempfile.TemporaryFile() as captured:
        os.dup2(captured.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            captured.seek(0)
            rest = b"".join(line for line in captured if not _LOG_LINE.match(line))
            if rest:
                os.write(2, rest)
