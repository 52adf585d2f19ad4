"""Where a `TFModel`'s files are: finds those that a training left, copies them, loads them, has executors load them."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyarrow import fs

from tfos_lab.core.paths import is_local, split_scheme
from tfos_lab.data.file_systems import exists, open_path, readable_errors
from tfos_lab.data.frames import default_fs, model_path
from tfos_lab.data.model_files import package_that_wrote
from tfos_lab.driver.results import load_run_model
from tfos_lab.errors import ConfigError, NoModel
from tfos_lab.launchers.spark.session import active_session
from tfos_lab.scoring.description import KERAS_SUFFIXES, ModelSource
from tfos_lab.scoring.model import SAVED_MODEL, Stamp, model_in, stamp_of
from tfos_lab.scoring.predict import with_content

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tfos_lab.driver.cluster import Cluster
    from tfos_lab.ml.model import TFModel


def stamp(folder: str) -> Stamp:
    """Return a stamp that changes when a folder is written to; empty if the folder is not there."""
    return stamp_of(ModelSource(path=folder)) if exists(folder) else ()


def kept_model(cluster: Cluster, spark: SparkSession, export_dir: str | None, folders: Mapping[str, Stamp]) -> str:
    """Return the path of the model that a training has left, after putting it where it is to be.

    A model that the function has saved is copied to ``export_dir``. Of ``folders``, where the function may have put one
    itself, the `stamp` is from before the training. Raises `NoModel` if there is none.
    """
    try:
        saved = cluster.model_path
    except NoModel as error:
        for folder, before in folders.items():
            # A model that was there before is not what this training has made.
            if holds_model(folder) and (not before or stamp(folder) != before):
                return folder
        where = f", nor exported one to exportDir='{export_dir}' that this machine finds" if export_dir else ""
        advice = "have it call ctx.save_model(model), or export to args.exportDir"
        why = error.reason.partition(":")[0]
        reason = f"the training has ended, and train_fn has saved no model{where}: {advice} ({why})"
        raise NoModel(reason=reason) from None
    if export_dir:
        target = f"{export_dir.rstrip('/')}/{saved.name}"
        copy_files(str(saved), target)
        return target
    # Where Spark takes plain paths for another file system's, this machine's need their scheme.
    return str(saved) if is_local(default_fs(spark)) else f"file://{saved}"


def holds_model(path: str) -> bool:
    """Whether a path is a Keras file, or a folder with a SavedModel or one Keras file."""
    with readable_errors(path):
        system, plain = open_path(path)
        (info,) = system.get_file_info([plain])
        if info.type == fs.FileType.File:
            return plain.endswith(KERAS_SUFFIXES)
        if info.type == fs.FileType.NotFound:
            return False
        names = [found.base_name for found in system.get_file_info(fs.FileSelector(plain))]
    return bool(set(names) & set(SAVED_MODEL)) or sum(name.endswith(KERAS_SUFFIXES) for name in names) == 1


# ---- files ----------------------------------------------------------------------------------------------------------


def copy_files(source: str, target: str) -> None:
    """Copy a file or folder; what is there already is replaced."""
    remove(target)
    with readable_errors(target, "write"):
        here, plain = open_path(source)
        there, place = open_path(target)
        there.create_dir(place.rpartition("/")[0], recursive=True)
        fs.copy_files(plain, place, source_filesystem=here, destination_filesystem=there)


def remove(path: str) -> None:
    """Remove a file or folder, if it is there."""
    with readable_errors(path, "remove"):
        system, plain = open_path(path)
        (info,) = system.get_file_info([plain])
        if info.type == fs.FileType.Directory:
            system.delete_dir(plain)
        elif info.type == fs.FileType.File:
            system.delete_file(plain)


@contextlib.contextmanager
def on_this_machine(path: str, *, outside: str | None = None) -> Iterator[Path]:
    """Yield a local path of a model: its own, or that of a copy for this block.

    A model in the folder ``outside``, which is going to be replaced, is copied, too.
    """
    plain = Path(split_scheme(path)[2])
    is_safe = outside is None or not is_local(outside) or not plain.is_relative_to(split_scheme(outside)[2])
    if is_local(path) and is_safe:
        yield plain
        return
    folder = Path(tempfile.mkdtemp(prefix="tfos-model-"))
    try:
        copy_files(path, str(folder / plain.name))
        yield folder / plain.name
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ---- models ---------------------------------------------------------------------------------------------------------


def full_path(model: TFModel, spark: SparkSession | None) -> str:
    """Return the path of a model's files in full; a ConfigError if it is not set."""
    if not model.isDefined("modelPath"):
        advice = "call setModelPath(path), or use the model that TFEstimator.fit returns"
        raise ConfigError([f"modelPath is not set, so there is no model to score with: {advice}"])
    return model_path(model.getModelPath(), spark)


def source_of(model: TFModel, spark: SparkSession) -> ModelSource:
    """Return where executors find a model."""
    path = full_path(model, spark)
    plain = split_scheme(path)[2]
    here = is_local(path) and Path(plain).is_file()
    return with_content(
        ModelSource(
            path=path,
            package=package_that_wrote(plain) if here else "keras",
            signature=model.getSignatureDefKey() or "",
            tags=model.getTagSet() or "",
            is_trusted=model.is_trusted and here,
            option="modelPath",
        )
    )


def load(model: TFModel, *, compile: bool, safe_mode: bool) -> Any:  # noqa: A002 - Keras' own name
    """Load a model into this process; see `TFModel.model`."""
    path = full_path(model, active_session())
    if not holds_model(path):
        raise ConfigError([f"modelPath='{path}': there is no model that this machine finds"])
    with on_this_machine(path) as here:
        file = Path(model_in(ModelSource(path=path, option="modelPath"), here))
        return load_run_model(file, custom_objects=model.getCustomObjects(), compile=compile, safe_mode=safe_mode)
