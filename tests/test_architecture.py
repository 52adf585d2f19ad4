"""The rules that hold for the whole package: what may be imported where, and what `import tfos_lab` costs."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "tfos_lab"
MODULES = sorted(PACKAGE.rglob("*.py"))
NOTEBOOK_SIDE = {"IPython", "ipywidgets", "anywidget", "ipykernel", "comm", "traitlets"}
# Used where they are installed, and done without elsewhere.
OPTIONAL = {"sklearn", "tf_keras"}
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


IMPORTS = [found for module in MODULES for found in imports_of(module)]


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


def test_ipython_appears_only_in_the_notebook_room():
    outside = [found for found in IMPORTS if not found.file.startswith("tfos_lab/jupyter/")]
    assert [found for found in outside if found.package in NOTEBOOK_SIDE] == []


def test_heavy_packages_are_imported_only_inside_functions():
    assert [found for found in IMPORTS if found.package in HEAVY and found.at_top] == []


def test_every_package_that_is_imported_is_a_declared_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = [*project["dependencies"], *project["optional-dependencies"]["lab"]]
    declared = {normal_name(re.match(r"[\w.-]+", text)[0]) for text in requirements}
    homes = importlib.metadata.packages_distributions()
    known = {*sys.stdlib_module_names, *OPTIONAL, "tfos_lab"}
    foreign = [found for found in IMPORTS if found.package not in known]
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
