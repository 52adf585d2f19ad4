"""Finds a model's files from an executor, on any file system, and notices when they have been written anew."""

from __future__ import annotations

import contextlib
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pyarrow import fs

from tfos_lab.core.paths import split_scheme
from tfos_lab.core.runtime_files import spool_root
from tfos_lab.data.file_systems import open_path, readable_errors
from tfos_lab.errors import ConfigError
from tfos_lab.scoring.description import KERAS_SUFFIXES, ModelSource

# TensorFlow opens these itself, with its own keys.
_OF_TENSORFLOW = ("gs",)
_SAVED_MODEL = ("saved_model.pb", "saved_model.pbtxt")

# Path, size and time of each file.
Stamp = tuple[tuple[str, int, int], ...]


def stamp_of(source: ModelSource) -> Stamp:
    """Return what differs when a model has been written anew: the sizes and times of its files.

    Raises
    ------
    ConfigError
        If there is no such file or folder.
    """
    if source.data or split_scheme(source.path)[0] in _OF_TENSORFLOW:
        return ()
    with readable_errors(source.path):
        system, plain = open_path(source.path)
        (info,) = system.get_file_info([plain])
        if info.type == fs.FileType.NotFound:
            raise ConfigError([_missing(source)])
        is_file = info.type == fs.FileType.File
        files = [info] if is_file else system.get_file_info(fs.FileSelector(plain, recursive=True))
    return tuple(sorted((file.path, file.size or 0, file.mtime_ns or 0) for file in files))


def _missing(source: ModelSource) -> str:
    other = ", or pass the Keras model itself" if source.option == "model" else ""
    return (
        f"{source.option}='{source.path}': there is no such file or folder on {socket.gethostname()}; put it where all "
        f"executors find it{other}"
    )


@contextlib.contextmanager
def local_path(source: ModelSource) -> Iterator[str]:
    """Yield the path of a model's file or folder on this machine; what lies elsewhere is copied for this block."""
    if split_scheme(source.path)[0] in _OF_TENSORFLOW:
        yield source.path
        return
    with readable_errors(source.path):
        system, plain = open_path(source.path)
    if isinstance(system, fs.LocalFileSystem):
        yield _inside(source, Path(plain))
        return
    with tempfile.TemporaryDirectory(dir=spool_root()) as folder:
        # Keras tells files by their suffixes.
        copy = Path(folder) / Path(plain).name
        with readable_errors(source.path, "copy"):
            fs.copy_files(plain, str(copy), source_filesystem=system, destination_filesystem=fs.LocalFileSystem())
        yield _inside(source, copy)


def _inside(source: ModelSource, path: Path) -> str:
    """Return the path of a SavedModel or a Keras file; for a folder that is no SavedModel, of the one file in it."""
    if not path.is_dir() or any((path / name).is_file() for name in _SAVED_MODEL):
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
