"""The archive with which tfos_lab is sent to executors, and the function that unpacks it there."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import zlib
from pathlib import Path

import pytest
from pyspark import cloudpickle

import tfos_lab
from tests.support.bare_python import make_bare_python
from tfos_lab.core.code_archive import code_archive, make_finder

# What Spark's tasks, the fork servers and users' programs start with; the rest is imported from there.
ENTRIES = {
    "tfos_lab.compat.alias",
    "tfos_lab.data.tfrecords.options",
    "tfos_lab.data.tfrecords.reading",
    "tfos_lab.data.tfrecords.writing",
    "tfos_lab.ml.mirrored",
    "tfos_lab.node.feed.inference_task",
    "tfos_lab.node.feed.rdd_rows",
    "tfos_lab.node.feed.task",
    "tfos_lab.node.forkserver.main",
    "tfos_lab.node.spark_task",
    "tfos_lab.scoring.model",
}


@pytest.fixture(scope="module")
def archived():
    """The modules of tfos_lab in the archive, with their source."""
    files = json.loads(zlib.decompress(code_archive()[0]))
    return {_module_of(name): text for name, text in files.items() if name.startswith("tfos_lab/")}


def _module_of(name):
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imports_of(source):
    """Return what a source may import of tfos_lab: by a statement anywhere in it, or by a name in a string."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.append(node.value)
    return [name for name in names if re.fullmatch(r"tfos_lab(\.\w+)+", name)]


def _package_of(module):
    return module.split(".")[1]


def test_the_archive_is_small_and_has_what_nodes_need(archived):
    data, digest = code_archive()
    assert {"tfos_lab.core.code_archive", "tfos_lab.node.child", "tfos_lab.data.tfrecords.reading"} <= set(archived)
    assert not [name for name in json.loads(zlib.decompress(data)) if "__pycache__" in name]
    assert len(data) < 400_000
    assert len(digest) == 16


def test_packages_in_the_archive_import_only_packages_in_the_archive(archived):
    packages = {_package_of(module) for module in archived if "." in module}
    outside = {
        f"{module} imports {name}"
        for module, source in archived.items()
        if module != "tfos_lab"  # the public names, which are imported when they are used
        for name in _imports_of(source)
        if _package_of(name) not in packages
    }
    assert not outside


def test_no_module_in_the_archive_imports_one_that_is_left_out_of_its_package(archived):
    left_out = {
        f"tfos_lab.{path.parent.name}.{path.stem}"
        for package in {_package_of(module) for module in archived if "." in module}
        for path in (Path(tfos_lab.__file__).parent / package).glob("*.py")
    } - set(archived)
    assert "tfos_lab.transport.unix_server" in left_out
    assert not {
        f"{module} imports {name}"
        for module, source in archived.items()
        for name in left_out & set(_imports_of(source))
    }


def test_each_package_in_the_archive_is_needed_by_what_runs_on_executors(archived):
    reached, waiting = set(), set(ENTRIES)
    while waiting:
        module = waiting.pop()
        reached.add(module)
        for name in _imports_of(archived[module]):
            # A name that is imported may be a module, or something in one; and a module imports the packages around it.
            parts = name.split(".")
            found = {".".join(parts[:length]) for length in range(2, len(parts) + 1)} & set(archived)
            waiting |= found - reached
    assert {_package_of(module) for module in reached} == {_package_of(module) for module in archived if "." in module}


def test_a_process_without_tfos_lab_finds_what_is_asked_for(tmp_path):
    python = make_bare_python(tmp_path / "bare")
    pickled = tmp_path / "find"
    pickled.write_bytes(cloudpickle.dumps(make_finder()))
    code = (
        "import gc, pickle, sys; find = pickle.load(open(sys.argv[1], 'rb')); "
        "print(find(*sys.argv[2:]).__module__, gc.get_freeze_count() > len(gc.get_objects()))"
    )
    command = [str(python), "-c", code, str(pickled), "tfos_lab.data.tfrecords.writing", "commit"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={"TMPDIR": str(tmp_path)})
    # Imported modules are exempt from the garbage collection that Spark's worker does after each task.
    assert done.stdout.split() == ["tfos_lab.data.tfrecords.writing", "True"]
    assert [path.name for path in tmp_path.glob("tfos_lab-*/code-*")] == [f"code-{code_archive()[1]}"]
