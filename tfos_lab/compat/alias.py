"""Makes ``tensorflowonspark`` another name of this package in this process: one import finder, in front of all others.

A module has two names then, but is imported once: ``tensorflowonspark.TFNode is tfos_lab.compat.TFNode``. Drivers do it
through `install`; Spark's Python workers and the nodes do it before they unpickle what the user wrote. With it,
TensorFlow learns remote addresses: that of TensorFlowOnSpark's time knew HDFS, on the driver and in Spark's tasks, too.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from tfos_lab.core.lazy_imports import after_import
from tfos_lab.node.remote_files import register_file_systems

THEIRS = "tensorflowonspark"
_OURS = "tfos_lab.compat"


class _AliasFinder(MetaPathFinder, Loader):
    """Finds modules of `THEIRS` by importing ours."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        package, _, rest = fullname.partition(".")
        if package != THEIRS or importlib.util.find_spec(_our_name(fullname)) is None:
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
    # By name: the class of another copy of this module, from a code archive say, does the same.
    if any(type(finder).__name__ == _AliasFinder.__name__ for finder in sys.meta_path):
        return
    for name in [name for name in sys.modules if name.partition(".")[0] == THEIRS]:
        del sys.modules[name]
    sys.meta_path.insert(0, _AliasFinder())
    after_import("tensorflow", register_file_systems)


def _our_name(name: str) -> str:
    return _OURS + name.removeprefix(THEIRS)
