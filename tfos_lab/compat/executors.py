"""Takes the alias to Spark's Python workers: a small archive among the files of every SparkContext of this process.

There, functions that the user wrote, and modules that came with ``--py-files``, may import ``tensorflowonspark``.
"""

from __future__ import annotations

import functools
import os
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfos_lab.core.code_archive import make_finder
from tfos_lab.core.runtime_files import scratch_root
from tfos_lab.data.spark_python import choose_python
from tfos_lab.node.folder_lock import lock

if TYPE_CHECKING:
    from pyspark import SparkContext

# Spark puts the archive in front of what is installed, so both packages come from it. The first import of `tfos_lab`
# puts the one that the driver has in its place; see `core.code_archive`.
_OURS = '''\
"""tfos_lab as the driver has it."""

import pickle
import pkgutil

pickle.loads(pkgutil.get_data(__name__, "find.pickle"))("tfos_lab.compat.alias", "make_alias")
'''
_THEIRS = '''\
"""tfos_lab.compat by its other name."""

from tfos_lab.compat.alias import make_alias

make_alias()
import tensorflowonspark
'''
# What Keras reads while it is imported: Spark's Python workers, and the nodes below them, are to read the same.
_KERAS_VARIABLES = ("TF_USE_LEGACY_KERAS", "KERAS_BACKEND")


def reach_executors() -> None:
    """Take the alias to the executors of the SparkContext that there is, and of all that are made from now on."""
    from pyspark import SparkContext

    make = SparkContext.__init__

    @functools.wraps(make)
    def make_and_equip(self: SparkContext, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        _equip(self)

    SparkContext.__init__ = make_and_equip  # type: ignore[method-assign]
    present = SparkContext._active_spark_context  # noqa: SLF001 - the public ways to ask would make one
    if present is not None:
        _equip(present)


def _equip(context: SparkContext) -> None:
    for name in _KERAS_VARIABLES:
        if name in os.environ:
            context.environment.setdefault(name, os.environ[name])
    choose_python(context)
    before = list(sys.path)
    context.addPyFile(str(_archive()))
    # pyspark lets the driver import from there too; it has the package itself.
    sys.path[:] = before


@functools.cache
def _archive() -> Path:
    """Return the archive; Spark sends it from where it lies, to each executor that asks for it."""
    from pyspark import cloudpickle

    path = Path(_folder().name) / "tfos_lab_compat.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tfos_lab/__init__.py", _OURS)
        archive.writestr("tfos_lab/find.pickle", cloudpickle.dumps(make_finder()))  # type: ignore[no-untyped-call]
        archive.writestr("tensorflowonspark/__init__.py", _THEIRS)
    return path


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Return a folder that is removed when this process ends."""
    folder = tempfile.TemporaryDirectory(dir=scratch_root())
    lock(Path(folder.name))  # until this process ends: others remove what is old and not in use
    return folder
