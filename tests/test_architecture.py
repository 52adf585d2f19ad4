"""The rules that hold for the whole package: what may be imported where, what things are called, how long code is."""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import math
import re
import statistics
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "tfos_lab"
MODULES = sorted(PACKAGE.rglob("*.py"))
ARCHITECTURE = (ROOT / "docs/architecture.md").read_text()
NOTEBOOK_SIDE = {"IPython", "ipywidgets", "anywidget", "ipykernel", "comm", "traitlets"}
# Used where they are installed; nothing depends on them.
OPTIONAL = {"conda_pack", "sklearn", "tf_keras"}
HEAVY = {"tensorflow", "keras", "tf_keras", "pyspark"}


class Import(NamedTuple):
    """One import statement of the package."""

    file: str
    line: int
    package: str
    at_top: bool


def imports_of(path: Path) -> Iterator[Import]:
    """Find a module's imports of others' packages; those below ``if TYPE_CHECKING:`` never run, and do not count."""

    def visit(node: ast.AST, *, at_top: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                continue
            if isinstance(child, ast.Import):
                names = [alias.name for alias in child.names]
            elif isinstance(child, ast.ImportFrom):
                names = [child.module or "tfos_lab"]
            else:
                names = []
            for name in names:
                yield Import(file, child.lineno, name.partition(".")[0], at_top)
            in_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from visit(child, at_top=at_top and not in_function)

    file = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
    yield from visit(ast.parse(path.read_text()), at_top=True)


@functools.cache
def all_imports() -> list[Import]:
    return [found for module in MODULES for found in imports_of(module)]


def in_fresh_interpreter(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)


def test_importing_the_package_loads_nothing_heavy():
    loaded = in_fresh_interpreter("import sys, tfos_lab; print(*{name.partition('.')[0] for name in sys.modules})")
    assert not (HEAVY | NOTEBOOK_SIDE | {"matplotlib", "pandas", "pyarrow"}) & set(loaded.stdout.split())


def test_importing_the_package_is_silent():
    done = in_fresh_interpreter("import tfos_lab")
    assert (done.stdout, done.stderr) == ("", "")


def test_the_engine_and_the_node_load_without_tensorflow_and_ipython():
    code = "import sys, tfos_lab.engine.start, tfos_lab.node.agent, tfos_lab.node.child; print(*sys.modules)"
    loaded = {name.partition(".")[0] for name in in_fresh_interpreter(code).stdout.split()}
    assert not (HEAVY | NOTEBOOK_SIDE) & loaded


def test_the_scan_sees_imports_of_every_kind(tmp_path):
    sample = tmp_path / "sample.py"
    sample.write_text(
        "import a.b\nif TYPE_CHECKING:\n    import c\n"
        "try:\n    from d.e import f\nexcept ImportError: pass\n"
        "def g():\n    import h\n"
    )
    assert [(found.package, found.at_top) for found in imports_of(sample)] == [("a", True), ("d", True), ("h", False)]


def test_ipython_appears_only_in_the_notebook_package():
    outside = [found for found in all_imports() if not found.file.startswith("tfos_lab/jupyter/")]
    assert [found for found in outside if found.package in NOTEBOOK_SIDE] == []


def test_heavy_packages_are_imported_only_inside_functions():
    assert [found for found in all_imports() if found.package in HEAVY and found.at_top] == []


def test_every_package_that_is_imported_is_a_declared_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = [
        *project["dependencies"],
        *(text for texts in project["optional-dependencies"].values() for text in texts),
    ]
    declared = {normal_name(re.match(r"[\w.-]+", text)[0]) for text in requirements}
    homes = importlib.metadata.packages_distributions()
    known = {*sys.stdlib_module_names, *OPTIONAL, "tfos_lab"}
    foreign = [found for found in all_imports() if found.package not in known]
    undeclared = [
        found for found in foreign if not {normal_name(home) for home in homes.get(found.package, [])} & declared
    ]
    assert undeclared == []


def normal_name(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_module_says_what_it_is_for(module):
    tree = ast.parse(module.read_text())
    assert ast.get_docstring(tree) or not tree.body


# ---- packages -------------------------------------------------------------------------------------------------------


def test_every_module_is_in_a_package():
    assert [path.name for path in PACKAGE.glob("*.py")] == ["__init__.py"]


def test_packages_import_one_another_along_the_arrows_of_the_picture():
    allowed = reachable(dict_of(re.findall(r"^ +(\w+) --> (\w+)$", ARCHITECTURE, re.MULTILINE)))
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert set(allowed) | {"errors"} == packages
    against = {
        (package, imported)
        for package in packages
        for path in (PACKAGE / package).rglob("*.py")
        for imported in packages_imported_by(path) & packages
        if imported not in (package, *allowed.get(package, ()))
    }
    assert against == set()


def packages_imported_by(path: Path) -> set[str]:
    """Return the packages of tfos_lab that a module imports, those for its types included."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return {name.split(".")[1] for name in names if name.startswith("tfos_lab.")}


def dict_of(pairs: list[tuple[str, str]]) -> dict[str, set[str]]:
    found = defaultdict(set)
    for key, value in pairs:
        found[key].add(value)
    return dict(found)


def reachable(arrows: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return what is reached from each beginning of an arrow."""

    def beyond(start: str) -> set[str]:
        return {start}.union(*(beyond(end) for end in arrows.get(start, ())))

    return {start: beyond(start) - {start} for start in arrows}


# ---- documents ------------------------------------------------------------------------------------------------------


def test_what_the_architecture_names_is_there():
    named = named_paths(ARCHITECTURE)
    assert [name for name in named if not (ROOT / name).exists() and not (PACKAGE / name).exists()] == []


def named_paths(text: str) -> list[str]:
    """Return the paths of files and folders in a document, as they stand between backticks."""
    return [name for name in re.findall(r"`([\w./-]+)`", text) if re.search(r"[a-z_]/$|/\w+\.(?:py|ts|css)$", name)]


def test_paths_are_found_in_a_document():
    text = (
        "`node/agent.py`, `extensions/dashboard/src/logs.ts`, `core/`, `run.json`, `ctx.dataset`, `a / b`, `TF_CONFIG`"
    )
    assert named_paths(text) == ["node/agent.py", "extensions/dashboard/src/logs.ts", "core/"]


# ---- names ----------------------------------------------------------------------------------------------------------

# Words that have given way to others; the glossary in docs/architecture.md has those that are used.
RETIRED = (
    *("seats", "nursery", "flavour", "flavours", "guardian", "guardians", "roster", "rosters", "ledger", "ledgers"),
    *(
        "beacon",
        "beacons",
        "goodbye",
        "station",
        "stations",
        "seat",
        "nurseries",
        "presence",
        "journal",
        "mend",
        "mends",
    ),
    *("mended", "mending", "teach", "teaches", "pace", "paces", "lane", "lanes", "door", "doors", "rooms", "keeper"),
    *("keepers", "obey", "obeys"),
)
SOURCES = [
    path
    for pattern in ("tfos_lab/**/*", "tests/**/*", "extensions/*/src/**/*", "extensions/*/style/**/*", "docs/*", "*.md")
    for path in ROOT.glob(pattern)
    if path.suffix in {".py", ".js", ".ts", ".css", ".md"} and path.name != "CHANGELOG.md" and path != Path(__file__)
    if "node_modules" not in path.parts
]


@pytest.mark.parametrize("word", RETIRED)
def test_a_retired_word_is_used_no_more(word):
    lines = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in SOURCES
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if word in line.lower() and word in words_in(line)
    ]
    assert lines == []


@functools.cache
def text_of(path: Path) -> str:
    return path.read_text()


def words_in(line: str) -> set[str]:
    """Return the words of a line, those within identifiers included, in lower case."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", line)}


def test_words_are_found_within_identifiers():
    assert words_in("_own_seat(NurseryKind) -> TF_CONFIG") == {"own", "seat", "nursery", "kind", "tf", "config"}


# ---- functions ------------------------------------------------------------------------------------------------------

LONGEST_MEDIAN_LINES = 7
LONGEST_P99_LINES = 35


def test_functions_are_short():
    lengths = sorted(length for path in MODULES for length in function_lengths(path))
    assert statistics.median(lengths) <= LONGEST_MEDIAN_LINES
    assert lengths[math.floor(0.99 * len(lengths))] <= LONGEST_P99_LINES


def function_lengths(path: Path) -> Iterator[int]:
    """Yield the lines of each function's body; a docstring is documentation, not length."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            yield (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
