"""A trained model as a file: how a node saves it for the notebook, and how the notebook loads it.

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
from typing import IO, Any

from tfos_lab.core.paths import OWN_MARK
from tfos_lab.errors import ConfigError

MODEL_FILE = "model.keras"
MODEL_FOLDER = "model"

# Lines of absl's and TensorFlow's own logs, but for fatal ones.
_CHATTER = re.compile(rb"[IWE]\d{4} |WARNING: All log messages before absl::|\d{4}-\d\d-\d\d \S+: [IWE] ")
_PARTIAL = f"{OWN_MARK}partial-"


def package_of(model: Any) -> str | None:
    """Return which Keras a live model is of, if any; nothing is imported to find out."""
    for package in ("keras", "tf_keras"):
        kind = getattr(sys.modules.get(package), "Model", None)
        if kind is not None and isinstance(model, kind):
            return package
    return None


def package_that_wrote(path: str | Path) -> str:
    """Return which Keras has written a ``.keras`` file: ``keras``, or ``tf_keras``, which is Keras 2."""
    with contextlib.suppress(OSError, zipfile.BadZipFile, KeyError, ValueError, AttributeError):
        with zipfile.ZipFile(path) as archive:
            version = json.loads(archive.read("metadata.json"))["keras_version"]
        return "tf_keras" if version.startswith("2.") else "keras"
    return "keras"


def save_model(model: Any, folder: str) -> str:
    """Save a model into a folder, whole or not at all, and return its path; see `NodeContext.save_model`."""
    if package_of(model) is not None:
        partial, path = Path(folder) / f"{_PARTIAL}{MODEL_FILE}", Path(folder) / MODEL_FILE
        model.save(str(partial))
        partial.replace(path)
        return str(path)
    import tensorflow as tf

    if not isinstance(model, tf.Module):
        what = f"ctx.save_model({type(model).__name__}): a Keras model or a tf.Module is needed"
        raise ConfigError([f"{what}; write anything else below ctx.output_dir, which comes to the notebook as well"])
    partial, path = Path(folder) / f"{_PARTIAL}{MODEL_FOLDER}", Path(folder) / MODEL_FOLDER
    shutil.rmtree(partial, ignore_errors=True)
    tf.saved_model.save(model, str(partial))
    shutil.rmtree(path, ignore_errors=True)
    partial.rename(path)
    return str(path)


def find_model(folder: Path) -> Path | None:
    """Return what `save_model` has left in a folder; of two, the newer one."""
    found = [path for path in (folder / MODEL_FILE, folder / MODEL_FOLDER) if path.exists()]
    return max(found, key=lambda path: path.stat().st_mtime) if found else None


def load_model(path: Path, *, custom_objects: Mapping[str, Any] | None, compile: bool, safe_mode: bool) -> Any:  # noqa: A002 - Keras' own name
    """Load what `save_model` has saved; raises ImportError where the package that wrote it is not installed."""
    with _modest_environment(), _without_chatter():
        if path.is_dir():
            import tensorflow as tf

            return tf.saved_model.load(str(path))
        if package_that_wrote(path) == "tf_keras":
            from tf_keras.models import load_model as load
        else:
            from keras.models import load_model as load
        return load(
            str(path),
            custom_objects=dict(custom_objects) if custom_objects else None,
            compile=compile,
            safe_mode=safe_mode,
        )


@contextlib.contextmanager
def _modest_environment() -> Iterator[None]:
    """Have TensorFlow leave GPU memory to others, as far as it is not told otherwise; nodes do not inherit it."""
    wanted = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    ours = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)


@contextlib.contextmanager
def _without_chatter() -> Iterator[None]:
    """Keep back what TensorFlow's C++ says of itself when it is loaded; whatever else is written comes afterwards."""
    with tempfile.TemporaryFile() as heard, contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # no stderr, nothing to keep back
            stderr = os.dup(2)
            os.dup2(heard.fileno(), 2)
            stack.callback(_give_back, stderr, heard)
        yield


def _give_back(stderr: int, heard: IO[bytes]) -> None:
    os.dup2(stderr, 2)
    os.close(stderr)
    heard.seek(0)
    rest = b"".join(line for line in heard if not _CHATTER.match(line))
    if rest:
        os.write(2, rest)
