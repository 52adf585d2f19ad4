"""The user's own modules on a node: importable from the source that was sent, whatever is on this host's disk.

They keep the file names that they have on the driver's machine, so that tracebacks name the files that the user knows,
with the lines that ran.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import linecache
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from tfos_lab.payload.own_modules import OwnModule


def register(modules: Iterable[OwnModule]) -> None:
    """Make the modules importable in this process; if one has changed since, all are imported anew when asked for."""
    sent = {module.name: module for module in modules}
    if not sent:
        return
    if any(_sent.get(name, module) != module for name, module in sent.items()):
        for name in _sent:
            sys.modules.pop(name, None)
    _sent.update(sent)
    for module in sent.values():
        _show_lines(module)
    for finder, place in ((_finder, 0), (_namespaces, len(sys.meta_path))):
        if finder not in sys.meta_path:
            sys.meta_path.insert(place, finder)


_sent: dict[str, OwnModule] = {}


def _show_lines(module: OwnModule) -> None:
    if module.source is None:
        return
    try:
        lines = importlib.util.decode_source(module.source).splitlines(keepends=True)
    except (SyntaxError, UnicodeDecodeError):
        return  # importing it says what is wrong
    # Without a modification time, linecache never looks at the disk, where the file may have changed meanwhile.
    linecache.cache[module.path] = (len(module.source), None, lines, module.path)


class _Loader(importlib.abc.ExecutionLoader):
    """Loads one module from its source."""

    def __init__(self, module: OwnModule) -> None:
        self._module = module

    def get_filename(self, fullname: str) -> str:  # noqa: ARG002 - Python's signature
        return self._module.path

    def get_source(self, fullname: str) -> str:  # noqa: ARG002 - Python's signature
        return importlib.util.decode_source(self._module.source or b"")

    def is_package(self, fullname: str) -> bool:  # noqa: ARG002 - Python's signature
        return self._module.folders is not None


class _Finder(importlib.abc.MetaPathFinder):
    """Finds what was sent, before anything on this host's own path."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - Python's signature
        target: ModuleType | None = None,  # noqa: ARG002 - Python's signature
    ) -> ModuleSpec | None:
        module = _sent.get(fullname)
        if module is None or module.source is None:
            return None
        return importlib.util.spec_from_file_location(
            fullname,
            module.path,
            loader=_Loader(module),
            submodule_search_locations=None if module.folders is None else list(module.folders),
        )


class _Namespaces(importlib.abc.MetaPathFinder):
    """Finds namespace packages that this host does not have; it comes last, so that its own ones are found first."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - Python's signature
        target: ModuleType | None = None,  # noqa: ARG002 - Python's signature
    ) -> ModuleSpec | None:
        module = _sent.get(fullname)
        if module is None or module.folders is None:
            return None
        spec = ModuleSpec(fullname, None, is_package=True)
        spec.submodule_search_locations = list(module.folders)
        return spec


_finder, _namespaces = _Finder(), _Namespaces()
