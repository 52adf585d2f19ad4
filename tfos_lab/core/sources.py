"""Source text that travels with a function: of notebook cells, and of the user's own modules.

The code of a cell has a made-up file name, and only the kernel's `linecache` has its text. Tracebacks show that text,
and AutoGraph needs it to convert a function. People see a label such as ``Cell In[5]`` instead of the made-up name.

A ``helpers.py`` beside the notebook and a package that is installed as editable exist on the driver's machine only, and
change from run to run. Nodes import them from what was sent, as they were on disk when it was packed, whatever they
have themselves; they keep their file names, so that tracebacks show the lines that ran. Installed packages, Python's
own and Spark's do not travel.
"""

from __future__ import annotations

import contextlib
import dis
import importlib.abc
import importlib.util
import linecache
import re
import sys
import sysconfig
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from importlib.machinery import ModuleSpec
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from tfos_lab.core.runtime_files import package_root
from tfos_lab.errors import PayloadError

_PLAIN_IPYTHON = re.compile(r"<ipython-input-(\d+)-[0-9a-f]+>")
_INSTALLED = ("site-packages", "dist-packages")
_INSTALLED_PACKAGE = re.compile(rf"[\\/](?:{'|'.join(_INSTALLED)})[\\/]([^\\/]+)")
_OWN = f"{package_root()}/tfos_lab/"
_STDLIB = sysconfig.get_path("stdlib")
# Sent in other ways, or never to be replaced.
_NOT_OWN = ("tfos_lab", "pyspark", "py4j", "__main__")


class Source(NamedTuple):
    """One cell: its file name in code objects, its label (or ""), and its text."""

    filename: str
    label: str
    text: str


class OwnModule(NamedTuple):
    """One of the user's modules: its full name, its file, and what is in it."""

    name: str
    path: str
    source: bytes


def package_of(filename: str) -> str:
    """Return the package that a file of code is of: ``"Python"``, ``"tfos_lab"``, an installed one, "" for the user's.

    Examples
    --------
    >>> package_of("/opt/lib/python3.12/site-packages/keras/src/models/model.py"), package_of("/home/ada/train.py")
    ('keras', '')
    """
    if filename.startswith(_OWN):
        return "tfos_lab"
    if installed := _INSTALLED_PACKAGE.search(filename):
        return installed[1].removesuffix(".py")
    return "Python" if filename.startswith((_STDLIB, "<frozen ")) else ""


# ---- notebook cells -------------------------------------------------------------------------------------------------

_labels: dict[str, str] = {}
_labellers: list[Callable[[str], str | None]] = []


def add_labeller(labeller: Callable[[str], str | None]) -> None:
    """Add a function that returns the label of a file name, or None if it knows none."""
    if labeller not in _labellers:
        _labellers.append(labeller)


def label(filename: str) -> str | None:
    """Return the label of a file, such as ``"Cell In[5]"``, or None if it has none."""
    known = next(filter(None, (labeller(filename) for labeller in _labellers)), None) or _labels.get(filename)
    match = _PLAIN_IPYTHON.fullmatch(filename)
    return known or (f"Cell In[{match[1]}]" if match else None)


def labels() -> dict[str, str]:
    """Return the labels of all registered files, by file name."""
    return dict(_labels)


def as_python(above: str) -> str:
    """Return the lines above a cell's body with their magics as comments.

    AutoGraph reads the whole text of a cell as Python to convert a lambda, and so do IPython's tracebacks.
    """
    return re.sub(r"^(?=%)", "# ", above, flags=re.MULTILINE)


def as_typed(text: str) -> str:
    """Return the text of a cell whose magics are comments as the user has typed it."""
    head = re.match(r"(?:.*\n)*?# %%tfos", text)
    return re.sub(r"^# (?=%)", "", head[0], flags=re.MULTILINE) + text[head.end() :] if head else text


def collect_cells(filenames: Iterable[str]) -> list[Source]:
    """Return the sources of those files whose text this process has, sorted by file name."""
    texts = {filename: "".join(linecache.getlines(filename)) for filename in sorted(set(filenames))}
    return [Source(filename, label(filename) or "", text) for filename, text in texts.items() if text]


def register_cells(sources: Iterable[Source]) -> None:
    """Add the sources to `linecache`, where tracebacks, `inspect` and AutoGraph find them."""
    for source in sources:
        if source.label:
            _labels[source.filename] = source.label
        if not Path(source.filename).exists():  # else this host has the real file
            _show_lines(source.filename, source.text)


def _show_lines(path: str, text: str) -> None:
    # Without a modification time, linecache never looks at the disk, where the file may have changed meanwhile.
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)


# ---- the user's own modules, on the driver --------------------------------------------------------------------------


def codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a code object, and the code inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_in(constant)


def imported_names(code: types.CodeType, package: str = "") -> set[str]:
    """Return what a code object and the code inside it import; of ``from a import b`` both ``a`` and ``a.b``.

    ``package`` is that of the code, for relative imports.
    """
    names: set[str] = set()
    level: object = 0
    parts: object = None
    for instruction in (one for inner in codes_in(code) for one in dis.get_instructions(inner)):
        if instruction.opname == "EXTENDED_ARG":  # of the instruction that follows
            continue
        if instruction.opname == "IMPORT_NAME":
            name = str(instruction.argval)
            if isinstance(level, int) and level > 0:
                above = package.split(".")
                name = ".".join([*above[: len(above) - level + 1], *([name] if name else [])])
            names |= {name, *(f"{name}.{part}" for part in (parts if isinstance(parts, tuple) else ()))}
        level, parts = parts, instruction.argval
    return names


def collect_modules(names: Iterable[str]) -> list[OwnModule]:
    """Return those of the named modules that are the user's own, and what they import, sorted by name.

    Of a package, all Python files are taken. Raises PayloadError if a module is not valid Python as it is on disk now.
    """
    found: dict[str, OwnModule] = {}
    waiting, seen = sorted(set(names)), set[str]()
    while waiting:
        name = waiting.pop()
        # A package is taken whole.
        if name in seen or any(above in found for above in accumulate(name.split("."), "{}.{}".format)):
            continue
        seen.add(name)
        for module in _own_modules_of(name):
            found[module.name] = module
            waiting += _imports_of(module)
    return [found[name] for name in sorted(found)]


def _own_modules_of(name: str) -> Iterator[OwnModule]:
    """Yield the modules that importing ``name`` may need; nothing is run to find out."""
    spec, parts, depth = None, name.split("."), 0
    # Above the first module there may be namespace packages, which have no code.
    while depth < len(parts) and parts[0] not in _NOT_OWN and (spec is None or spec.origin is None):
        depth += 1
        try:
            spec = importlib.util.find_spec(".".join(parts[:depth]))
        except (ImportError, ValueError, AttributeError):  # whatever the finders of others raise
            return
        if spec is None:
            return
    if spec is None or not spec.origin or not _is_own(Path(spec.origin)):
        return
    top = ".".join(parts[:depth])
    yield from _read(top, Path(spec.origin))
    for folder in map(Path, spec.submodule_search_locations or ()):
        for path in sorted(folder.rglob("*.py")):
            below = list(path.relative_to(folder).with_suffix("").parts)
            if all(part.isidentifier() and part != "__pycache__" for part in below) and below != ["__init__"]:
                yield from _read(".".join([top, *(below[:-1] if below[-1] == "__init__" else below)]), path)


def _read(name: str, file: Path) -> Iterator[OwnModule]:
    with contextlib.suppress(OSError):  # removed since it was imported: the node says that it lacks it
        yield OwnModule(name, str(file), file.read_bytes())


def _is_own(path: Path) -> bool:
    """Whether a module's file is source that no installer has put there, and none of tfos_lab by another name."""
    if path.suffix != ".py" or not path.is_file() or any(part in _INSTALLED for part in path.parts):
        return False
    folders = [package_root() / "tfos_lab"]
    folders += [Path(sysconfig.get_path(kind)) for kind in ("stdlib", "platstdlib", "purelib", "platlib")]
    return not any(path.resolve().is_relative_to(folder.resolve()) for folder in folders)


@lru_cache(maxsize=4096)
def _imports_of(module: OwnModule) -> frozenset[str]:
    """Return the full names of what a module imports, wherever in it."""
    try:
        code = compile(module.source, module.path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        if "." in module.name:
            return frozenset()  # a file of a package that may never be imported
        raise PayloadError(
            name=module.name,
            type_name="module",
            reason=f"line {getattr(error, 'lineno', None) or 1} of {module.path} is not valid Python now: {error}",
            advice="Correct it, and run the cell again",
        ) from None
    is_package = Path(module.path).stem == "__init__"
    return frozenset(imported_names(code, module.name if is_package else module.name.rpartition(".")[0]))


# ---- the user's own modules, on a node ------------------------------------------------------------------------------


def register_modules(modules: Iterable[OwnModule]) -> None:
    """Make the modules importable in this process; if one has changed since, all are imported anew when asked for."""
    sent = {module.name: module for module in modules}
    if any(_sent.get(name, module) != module for name, module in sent.items()):
        for name in _namespaces:
            sys.modules.pop(name, None)
    _sent.update(sent)
    _namespaces.update(above for name in sent for above in accumulate(name.split("."), "{}.{}".format))
    for module in sent.values():
        with contextlib.suppress(SyntaxError, UnicodeDecodeError):  # importing it says what is wrong
            _show_lines(module.path, importlib.util.decode_source(module.source))
    if sent and _importer not in sys.meta_path:
        sys.meta_path.insert(0, _importer)


_sent: dict[str, OwnModule] = {}
# Those that were sent, and the packages that they are in, some of which are no modules themselves.
_namespaces: set[str] = set()


class _Importer(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):  # type: ignore[misc]  # as Python's own
    """Finds what was sent before anything on this host's own path, and loads it."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> ModuleSpec | None:
        if fullname in _sent:
            return importlib.util.spec_from_file_location(fullname, _sent[fullname].path, loader=self)
        if fullname not in _namespaces:
            return None
        # This host may have other modules of it.
        others = (finder.find_spec(fullname, path, target) for finder in sys.meta_path if finder is not self)
        return next(filter(None, others), None) or ModuleSpec(fullname, None, is_package=True)

    def get_filename(self, fullname: str) -> str:
        return _sent[fullname].path

    def get_data(self, path: str) -> bytes:
        return next((module.source for module in _sent.values() if module.path == path), b"")


_importer = _Importer()
