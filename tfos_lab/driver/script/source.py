"""Reads a user's script before anything starts: checks its syntax, and finds what travels along with it."""

from __future__ import annotations

import ast
import os
import symtable
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfos_lab.errors import ConfigError
from tfos_lab.texts import nearest

# Each node gets all of it within its start message.
LIMIT_BYTES = 64 << 20


@dataclass(frozen=True)
class ScriptSource:
    """A script, with it and the files of its folder that nodes need, by their paths within that folder."""

    path: Path
    files: dict[str, bytes]


def read_script(
    path: str | os.PathLike[str], *, function: str | None = None, files: Sequence[str] = ()
) -> ScriptSource:
    """Read a script and the modules of its folder that it imports, and those imported by them.

    It has to have ``function``, if one is named; ``files`` are patterns of further files, within the script's folder.
    Raises ConfigError if there is no such file or function, a file cannot be parsed, or all of them are too large.
    """
    script = _existing(path)
    data = script.read_bytes()
    tree = _parsed(script, data)
    if function is not None:
        _require_function(script, tree, function)
    found = {script.name: data}
    for other in (*_imported(script.parent, tree, {script}), *_named(script.parent, files)):
        found[other.relative_to(script.parent).as_posix()] = other.read_bytes()
        _require_small(script, found)
    return ScriptSource(script, found)


def _existing(path: str | os.PathLike[str]) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise ConfigError([f"path is a {type(path).__name__}: the path of a Python file is needed"])
    script = Path(path).expanduser().absolute()
    if script.is_file():
        return script
    if script.exists():
        raise ConfigError([f"{script} is no file: give the path of a Python file"])
    beside = [other.name for other in script.parent.glob("*.py")] if script.parent.is_dir() else []
    near = nearest(script.name, beside)
    advice = f"did you mean {near}?" if near else "give the path of a Python file"
    raise ConfigError([f"there is no script {script}; {advice}"])


def _parsed(path: Path, data: bytes) -> ast.Module:
    try:
        return ast.parse(data, str(path))
    except SyntaxError as error:
        line = (error.text or "").strip()
        shown = f": {line}" if line else ""
        raise ConfigError(
            [f"{path}, line {error.lineno}{shown}: {error.msg}; correct it, nothing was started"]
        ) from None
    except ValueError as error:
        raise ConfigError([f"{path} is no Python file: {error}"]) from None


def _require_function(path: Path, tree: ast.Module, function: str) -> None:
    if not isinstance(function, str):
        raise ConfigError([f"function={function!r:.60}: the name of a function in {path} is needed"])
    names = symtable.symtable(ast.unparse(tree), str(path), "exec").get_symbols()
    bound = {symbol.get_name() for symbol in names if symbol.is_assigned() or symbol.is_imported()}
    imports_all = any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in ast.walk(tree))
    if function in bound or imports_all:
        return
    functions = [symbol.get_name() for symbol in names if symbol.is_namespace()]
    near = nearest(function, functions)
    there = f"it has {', '.join(functions)}" if functions else "it has none; leave function out to run the whole file"
    advice = f"did you mean {near!r}?" if near else there
    raise ConfigError([f"{path} has no function {function!r}; {advice}"])


# ---- what travels along ---------------------------------------------------------------------------------------------


def _imported(home: Path, tree: ast.Module, seen: set[Path]) -> Iterator[Path]:
    """Yield the files in the script's folder that a module imports, and those that they import."""
    for name in sorted(_names_imported_by(tree)):
        for path in _files_of(home, name):
            if path in seen:
                continue
            seen.add(path)
            yield path
            if path.suffix == ".py":
                yield from _imported(home, _parsed(path, path.read_bytes()), seen)


def _names_imported_by(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names.add(node.module.partition(".")[0])
    return names


def _files_of(home: Path, name: str) -> list[Path]:
    """Return the file or the whole package of a module in the script's folder; nothing for one from elsewhere."""
    folder = home / name
    if folder.is_dir() and any(folder.glob("*.py")):
        return _files_below(folder)
    return [path] if (path := home / f"{name}.py").is_file() else []


def _files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not _is_private(path.relative_to(folder)))


def _is_private(path: Path) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in path.parts)


def _named(home: Path, patterns: Iterable[str]) -> Iterator[Path]:
    if isinstance(patterns, str):
        patterns = [patterns]
    for pattern in patterns:
        inside = not Path(pattern).is_absolute() and ".." not in Path(pattern).parts
        found = sorted(home.glob(pattern)) if inside and pattern else []
        if not found:
            where = f"nothing in {home} matches" if inside else f"only what is in {home} travels with the script"
            raise ConfigError([f"files={pattern!r}: {where}; name files or patterns such as 'config/*.json'"])
        for path in found:
            yield from _files_below(path) if path.is_dir() else [path]


def _require_small(script: Path, files: dict[str, bytes]) -> None:
    total = sum(map(len, files.values()))
    if total <= LIMIT_BYTES:
        return
    largest = max(files, key=lambda name: len(files[name]))
    what = f"{script.name} and the files that travel with it take more than {LIMIT_BYTES / 1e6:,.0f} MB"
    advice = "give rows with data=..., and keep other large files where the nodes can read them"
    raise ConfigError([f"{what}, most of it {largest}: {advice}"])
