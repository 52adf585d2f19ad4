"""Makes ``tensorflowonspark`` another name of this package: here, in Spark's Python workers, and on the nodes.

One import finder, in front of all others, does it. A module has two names then, but is imported once:
``tensorflowonspark.TFNode is tfos_lab.compat.TFNode``. Drivers call `install`; Spark's Python workers and the nodes
have the alias before they unpickle what the user wrote. With it, TensorFlow learns remote addresses: that of
TensorFlowOnSpark's time knew HDFS, on the driver and in Spark's tasks, too.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import os
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tfos_lab.core.code_archive import make_finder
from tfos_lab.core.payload import prepare_nodes
from tfos_lab.core.runtime_files import lock_folder, scratch_root
from tfos_lab.data.spark_python import choose_python
from tfos_lab.node.remote_files import register_file_systems

if TYPE_CHECKING:
    from pyspark import SparkContext

logger = logging.getLogger(__name__)

_THEIRS, _OURS = "tensorflowonspark", "tfos_lab.compat"
# What Spark's Python workers import: an archive among the files of every SparkContext of this process. Spark puts it in
# front of what is installed, so both packages come from it. The first import of `tfos_lab` puts the one that the driver
# has in its place; see `core.code_archive`.
_TFOS_LAB = '''\
"""tfos_lab as the driver has it."""

import pickle
import pkgutil

pickle.loads(pkgutil.get_data(__name__, "find.pickle"))("tfos_lab.compat.alias", "make_alias")
'''
_TENSORFLOWONSPARK = '''\
"""tfos_lab.compat by its other name."""

from tfos_lab.compat.alias import make_alias

make_alias()
import tensorflowonspark
'''
# What Keras reads while it is imported: Spark's Python workers, and the nodes below them, are to read the same.
_KERAS_VARIABLES = ("TF_USE_LEGACY_KERAS", "KERAS_BACKEND")


class _AliasFinder(MetaPathFinder, Loader):
    """Finds modules of `_THEIRS` by importing ours."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        package, _, rest = fullname.partition(".")
        if package != _THEIRS or importlib.util.find_spec(_our_name(fullname)) is None:
            return None
        return ModuleSpec(fullname, self, is_package=not rest)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(_our_name(spec.name))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # Importing it under this name has given it another spec; it has run already, under its own.
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def make_alias() -> None:
    """Let ``import tensorflowonspark`` mean this package, in this process; may be called again."""
    # By name: the class may come from another copy of this module, such as one from a code archive.
    if any(type(finder).__name__ == _AliasFinder.__name__ for finder in sys.meta_path):
        return
    for name in [name for name in sys.modules if name.partition(".")[0] == _THEIRS]:
        del sys.modules[name]
    sys.meta_path.insert(0, _AliasFinder())
    register_file_systems()


def _our_name(name: str) -> str:
    return _OURS + name.removeprefix(_THEIRS)


# ---- drivers and executors -------------------------------------------------------------------------------------------


@functools.cache
def install() -> None:
    """Make ``import tensorflowonspark`` mean `tfos_lab.compat`.

    It does so in this process, in Spark's Python workers, and on the nodes of clusters that are started from now on.
    Call it before the first import of ``tensorflowonspark``; whether there is a SparkContext yet makes no difference.
    A TensorFlowOnSpark that is installed is not used, which is logged as a warning. Further calls do nothing.

    Examples
    --------
    >>> import tfos_lab.compat
    >>> tfos_lab.compat.install()
    >>> from tensorflowonspark import TFNode
    >>> TFNode.__name__
    'tfos_lab.compat.TFNode'
    """
    real = PathFinder.find_spec(_THEIRS)
    if real is not None:
        logger.warning("%s is installed (%s), but means tfos_lab.compat now", _THEIRS, real.origin)
    make_alias()
    prepare_nodes(make_alias)
    _reach_executors()


def _reach_executors() -> None:
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
        archive.writestr("tfos_lab/__init__.py", _TFOS_LAB)
        archive.writestr("tfos_lab/find.pickle", cloudpickle.dumps(make_finder()))  # type: ignore[no-untyped-call]
        archive.writestr("tensorflowonspark/__init__.py", _TENSORFLOWONSPARK)
    return path


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Return a folder that is removed when this process ends."""
    folder = tempfile.TemporaryDirectory(dir=scratch_root())
    lock_folder(Path(folder.name))  # until this process ends: others remove what is old and not in use
    return folder
