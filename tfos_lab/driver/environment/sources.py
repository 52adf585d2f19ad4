"""Editable packages: folders outside the environment that it imports from, and what of them an archive takes.

An editable install leaves a ``.pth`` file with a folder, or a finder that maps names to paths. Neither means anything
on another machine, so the archive gets the packages themselves, and not these files.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_PROJECT_FILES = ("pyproject.toml", "setup.py", "setup.cfg")
_NEVER = {"__pycache__", "node_modules", ".git", ".venv", ".ipynb_checkpoints"}
_FINDER = re.compile(r"import (__editable__\w+finder)\b")
_MAPPING = re.compile(r"^MAPPING\b[^=]*= *(\{.*\})", re.MULTILINE)


@dataclass
class Sources:
    """What is imported from outside an environment.

    Attributes
    ----------
    trees : dict of str to Path
        Folder or module of each importable name, such as ``{"mine": Path("/home/me/mine/src/mine")}``.
    links : set of Path
        The files of the environment that lead there, which make no sense elsewhere.
    """

    trees: dict[str, Path] = field(default_factory=dict)
    links: set[Path] = field(default_factory=set)

    def files(self) -> Iterator[tuple[str, Path]]:
        """Yield each file, with its path within site-packages."""
        for name, tree in sorted(self.trees.items()):
            if tree.is_file():
                yield tree.name, tree
                continue
            for path in sorted(tree.rglob("*")):
                relative = path.relative_to(tree)
                if path.is_file() and not _NEVER & set(relative.parts):
                    yield f"{name}/{relative}", path


def find_sources(site_packages: Path) -> Sources:
    """Return what the ``.pth`` files of an environment add to it from outside."""
    found = Sources()
    for pth in sorted(site_packages.glob("*.pth")):
        for line in pth.read_text(errors="replace").splitlines():
            if finder := _FINDER.match(line):
                _add_finder(found, pth, site_packages / f"{finder[1]}.py")
            elif line.strip() and not line.startswith(("#", "import ", "import\t")):
                _add_folder(found, pth, site_packages / line.strip())
    return found


def _add_finder(found: Sources, pth: Path, finder: Path) -> None:
    """Read the names and paths that setuptools has written into the finder of an editable install."""
    with contextlib.suppress(OSError, ValueError, SyntaxError):
        if mapping := _MAPPING.search(finder.read_text()):
            for name, place in ast.literal_eval(mapping[1]).items():
                folder = Path(place)
                found.trees[name.replace(".", "/")] = folder if folder.is_dir() else folder.with_suffix(".py")
            found.links |= {pth, finder}


def _add_folder(found: Sources, pth: Path, folder: Path) -> None:
    if not folder.is_dir() or folder.resolve().is_relative_to(pth.parent.resolve()):
        return
    found.links.add(pth)
    # The root of a project holds more than its packages: tests, documents, other environments.
    is_project = any((folder / name).exists() for name in _PROJECT_FILES)
    for path in folder.iterdir():
        is_module = path.suffix in (".py", ".so") and path.name not in ("setup.py", "conftest.py")
        is_package = path.is_dir() and (not is_project or (path / "__init__.py").exists())
        if (is_module or is_package) and path.name not in _NEVER:
            found.trees.setdefault(path.name, path)
