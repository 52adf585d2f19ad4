"""Rules of the whole package: what an import brings, what has to be installed, and what the architecture names."""

from __future__ import annotations

import ast
import importlib.metadata
import itertools
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "tfos_lab"
ARCHITECTURE = (ROOT / "docs/architecture.md").read_text()
HEAVY = {"tensorflow", "keras", "tf_keras", "pyspark", "matplotlib", "pandas", "pyarrow", "numpy"}
NOTEBOOK_SIDE = {"IPython", "ipywidgets", "anywidget", "ipykernel", "comm", "traitlets"}
# Used where they are installed; nothing depends on them.
OPTIONAL = {"conda_pack", "sklearn", "tf_keras"}


def loaded_by(code: str) -> list[str]:
    """Run Python, which has to be silent; return the names of all modules that are loaded in the end."""
    command = [sys.executable, "-c", f"{code}; import sys; print('modules:', *sys.modules)"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert (done.stdout[:8], done.stderr) == ("modules:", "")
    return done.stdout.split()[1:]


def packages(modules: list[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def test_importing_the_package_is_silent_and_loads_next_to_nothing():
    before = loaded_by("pass")
    loaded = loaded_by("import tfos_lab")
    assert not (HEAVY | NOTEBOOK_SIDE) & packages(loaded)
    assert len(set(loaded) - set(before)) < 50
    assert len([name for name in loaded if name.startswith("tfos_lab")]) == 3


def test_programs_and_nodes_start_without_tensorflow_spark_or_ipython():
    without = {"tensorflow", "keras", "tf_keras", "pyspark", *NOTEBOOK_SIDE}
    assert not without & packages(loaded_by("import tfos_lab; tfos_lab.run, tfos_lab.Cluster, tfos_lab.ClusterConfig"))
    assert not without & packages(loaded_by("import tfos_lab.node.agent, tfos_lab.node.child"))


def test_spark_s_processes_that_plan_reads_and_writes_of_records_load_no_pandas():
    modules = ("source", "reading", "writing")
    assert "pandas" not in loaded_by(f"import {', '.join(f'tfos_lab.data.tfrecords.{name}' for name in modules)}")


def imported_packages(path: Path) -> Iterator[str]:
    """Yield what a module imports, anywhere in it but below ``if TYPE_CHECKING:``, which never runs."""
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]
        waiting += ast.iter_child_nodes(node)


def test_every_package_that_is_imported_is_a_declared_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    declared = {canonicalize_name(Requirement(text).name) for text in texts}
    homes = importlib.metadata.packages_distributions()
    known = {*sys.stdlib_module_names, *OPTIONAL, "tfos_lab"}
    assert [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in PACKAGE.rglob("*.py")
        for name in {*imported_packages(path)} - known
        if not {canonicalize_name(home) for home in homes.get(name, [])} & declared
    ] == []


def test_the_architecture_names_what_is_there_and_its_layers_in_their_order():
    named = [
        name for name in re.findall(r"`([\w./-]+)`", ARCHITECTURE) if re.search(r"[a-z_]/$|/\w+\.(?:py|ts|css)$", name)
    ]
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists() and not (PACKAGE / name).exists()] == []
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    layers = [name for layer in contract["layers"] for name in layer.split(" : ")]
    table = ARCHITECTURE.partition("| package |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert [name for row in rows for name in re.findall(r"`(\w+)", row)] == layers
