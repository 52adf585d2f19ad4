"""Puts off the import of parts of Keras that few programs use, and calls functions when a library is imported."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

# Where scikit-learn and matplotlib are installed, these import them, which takes a quarter of the time in which
# TensorFlow is imported. pandas, which Keras imports too, is not put off: `fit` looks for DataFrames in all programs.
_LAZY = {
    *("keras.wrappers", "keras._tf_keras.keras.wrappers"),
    *("keras.visualization", "keras._tf_keras.keras.visualization", "keras.src.visualization"),
}


@contextlib.contextmanager
def lazy_parts_of_keras() -> Iterator[None]:
    """Import TensorFlow and Keras herein: ``keras.wrappers`` and ``keras.visualization`` are executed when first used.

    Until then they have their names and files and lack what is in them; the first look at that executes them.
    """
    finder = _LazyFinder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def after_import(name: str, function: Callable[[], object]) -> None:
    """Call a function when a module has been imported: at once, if it has been; once, however often it is asked for."""
    finder = _FollowedFinder(name, function)
    if name in sys.modules:
        function()
    elif finder not in sys.meta_path:
        sys.meta_path.insert(0, finder)


@dataclass(frozen=True)
class _FollowedFinder:
    name: str
    function: Callable[[], object]

    def find_spec(self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def follow(module: ModuleType) -> None:
                execute(module)
                self.function()

            spec.loader.exec_module = follow  # type: ignore[method-assign]
        return spec


class _LazyFinder:
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in _LAZY else None
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = functools.partial(_put_off, spec.loader.exec_module)  # type: ignore[method-assign]
        return spec


def _put_off(load: Callable[[ModuleType], None], module: ModuleType) -> None:
    """Leave a module empty but for a ``__getattr__`` that loads it.

    The standard library's `LazyLoader` is not for threads before Python 3.12.3, and executes modules also for those
    who go through all modules and look at their files, as `inspect` does.
    """
    lock, members = threading.RLock(), vars(module)
    executing = False

    def execute() -> None:
        nonlocal executing
        with lock:
            if executing or members.get("__getattr__") is not look_up:
                return
            executing = True
            try:
                load(module)
            finally:
                executing = False
            for name, function in functions.items():
                if members.get(name) is function:
                    del members[name]

    def look_up(name: str) -> Any:
        with lock:
            if executing:  # the module asks for a name that it does not have yet
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            execute()
        return getattr(module, name)

    def list_names() -> list[str]:
        execute()
        return sorted(members)

    functions = {"__getattr__": look_up, "__dir__": list_names}
    members.update(functions)
