"""The user's own modules that a function needs: found on the driver, and sent to the nodes as source.

A ``helpers.py`` beside the notebook and a package that is installed as editable exist on the driver's machine only, and
change from run to run. Each payload therefore carries them as they are on disk when it is packed. Installed packages,
Python's own and Spark's do not travel. Nothing is imported to find out.
"""

from __future__ import annotations

import ast
import contextlib
import dis
import os
import site
import sysconfig
import types
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from tfos_lab.core.python_source import parse
from tfos_lab.errors import PayloadError

_INSTALLED = ("site-packages", "dist-packages")
# Sent in other ways, or never to be replaced.
_NOT_OWN = ("tfos_lab", "pyspark", "py4j", "__main__")


class OwnModule(NamedTuple):
    """One module: its full name, its file, its source (None for a namespace package), and a package's folders."""

    name: str
    path: str
    source: bytes | None
    folders: tuple[str, ...] | None = None


def imported_names(code: types.CodeType) -> set[str]:
    """Return what a code object and the code inside it import; of ``from a import b`` both ``a`` and ``a.b``."""
    names: set[str] = set()
    before: object = None
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            name = str(instruction.argval)
            names |= {name, *(f"{name}.{part}" for part in (before if isinstance(before, tuple) else ()))}
        before = instruction.argval
    return names.union(*(imported_names(const) for const in code.co_consts if isinstance(const, types.CodeType)))


def collect(names: Iterable[str]) -> list[OwnModule]:
    """Return those of the named modules that are the user's own, and what they import, sorted by name.

    Parameters
    ----------
    names : iterable of str
        Full names of modules; of a package, all Python files are taken.

    Raises
    ------
    PayloadError
        If a module is not valid Python as it is on disk now.
    """
    found: dict[str, OwnModule] = {}
    waiting, seen = sorted(set(names)), set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for module in _own_modules_of(name, found):
            found[module.name] = module
            if module.source is not None:
                waiting += _imports_of(module.path, module.source, module.name, module.folders is not None)
    return [found[name] for name in sorted(found)]


def _own_modules_of(name: str, found: dict[str, OwnModule]) -> Iterator[OwnModule]:
    """Yield the modules that importing ``name`` may need, without those that have been found."""
    top, *rest = name.split(".")
    if top in found and found[top].source is not None:
        return  # it was taken whole
    spec = _spec_of(top)
    path, parents = top, list[OwnModule]()
    while spec is not None and spec.origin is None and spec.submodule_search_locations and rest:
        folders = tuple(spec.submodule_search_locations)
        parents.append(OwnModule(path, "", None, folders))
        path = f"{path}.{rest.pop(0)}"
        spec = _spec_within(folders, path)
    if spec is None or path in found or not spec.origin or not _is_own(spec.origin):
        return
    yield from parents
    yield from _files_of(path, spec)


def _spec_of(top: str) -> ModuleSpec | None:
    if top in _NOT_OWN:
        return None
    with contextlib.suppress(ImportError, ValueError, AttributeError):  # whatever the finders of others raise
        return find_spec(top)
    return None


def _spec_within(folders: Iterable[str], name: str) -> ModuleSpec | None:
    """Return the spec of a module in a namespace package; Python's own finder would have to import the package."""
    source = (SourceFileLoader, SOURCE_SUFFIXES)
    found = [spec for folder in folders if (spec := FileFinder(folder, source).find_spec(name)) is not None]
    return next((spec for spec in found if spec.origin), found[0] if found else None)


def _files_of(name: str, spec: ModuleSpec) -> Iterator[OwnModule]:
    """Yield a module; with all modules below it, if it is a package."""
    file = Path(str(spec.origin))
    if spec.submodule_search_locations is None:
        yield from _read(name, file, None)
        return
    folders = [Path(folder) for folder in spec.submodule_search_locations]
    yield from _read(name, file, folders[0])
    for folder in folders:
        yield from _files_below(name, folder)


def _files_below(package: str, folder: Path) -> Iterator[OwnModule]:
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        name = f"{package}.{path.stem}"
        if path.name == "__init__.py" or not path.stem.isidentifier():
            continue
        if path.suffix == ".py" and path.is_file():
            yield from _read(name, path, None)
        elif path.is_dir() and path.name not in ("__pycache__", *_INSTALLED):
            below = list(_files_below(name, path))
            start = path / "__init__.py"
            if start.is_file():
                yield from _read(name, start, path)
            elif below:
                yield OwnModule(name, "", None, (str(path),))
            yield from below


def _read(name: str, file: Path, folder: Path | None) -> Iterator[OwnModule]:
    with contextlib.suppress(OSError):  # removed since it was imported: the node says that it lacks it
        yield OwnModule(name, str(file), file.read_bytes(), (str(folder),) if folder else None)


# ---- whose is it ----------------------------------------------------------------------------------------------------


def _is_own(origin: str) -> bool:
    """Whether a module's file is source that no installer has put there."""
    path = Path(origin)
    if path.suffix != ".py" or not path.is_file() or any(part in _INSTALLED for part in path.parts):
        return False
    full = path.resolve()
    return not any(full.is_relative_to(folder) for folder in _foreign_folders(os.environ.get("SPARK_HOME", "")))


@cache
def _foreign_folders(spark_home: str) -> list[Path]:
    """Return where files belong to Python, to installed packages, to Spark or to tfos_lab."""
    python = [sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders = [*python, *site.getsitepackages(), site.getusersitepackages(), spark_home]
    own = Path(__file__).resolve().parent.parent
    return [own, *(Path(folder).resolve() for folder in folders if folder)]


# ---- what a module imports ------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _imports_of(path: str, source: bytes, name: str, is_package: bool) -> frozenset[str]:  # noqa: FBT001
    """Return the full names of what a module imports, wherever in it."""
    try:
        tree = parse(source, path)
    except (SyntaxError, ValueError) as error:
        if "." in name:
            return frozenset()  # a file of a package that may never be imported
        raise PayloadError(
            name=name,
            type_name="module",
            reason=f"line {getattr(error, 'lineno', None) or 1} of {path} is not valid Python now: {error}",
            advice="Correct it, and run the cell again",
        ) from None
    package = name if is_package else name.rpartition(".")[0]
    return frozenset(found for node in ast.walk(tree) for found in _names_of(node, package))


def _names_of(node: ast.AST, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        if base:
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
