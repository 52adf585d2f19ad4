"""The archive with which tfos_lab is sent to executors: whole, small, and unpacked where only the user can look."""

import ast
import json
import re
import subprocess
import zlib
from pathlib import Path

from pyspark import cloudpickle

import tfos_lab
from tests.support.bare_python import make_bare_python
from tfos_lab.core.code_archive import code_archive, make_finder


def module_of(name):
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports_of(source, *, in_functions):
    """Return what a source may import of tfos_lab: by a statement, or by a name in a string."""
    names, waiting = [], [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ImportFrom):
            names += [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and in_functions:
            names.append(node.value)
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        is_for_types = isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        if not is_for_types and (in_functions or not is_function):
            waiting += ast.iter_child_nodes(node)
    return {name for name in names if re.fullmatch(r"tfos_lab(\.\w+)+", name)}


def test_the_archive_is_small_and_no_module_in_it_imports_one_that_is_left_out():
    data = code_archive()[0]
    assert len(data) < 420_000
    files = json.loads(zlib.decompress(data)).items()
    archived = {module_of(name): source for name, source in files if name.startswith("tfos_lab/")}
    root = Path(tfos_lab.__file__).parent
    modules = {module_of(str(path.relative_to(root.parent))) for path in root.rglob("*.py")}
    left_out, packages = modules - set(archived), {module.split(".")[1] for module in archived if "." in module}
    assert left_out
    assert not {
        f"{module} imports {name}"
        for module, source in archived.items()
        if module != "tfos_lab"  # the public names, which are imported when they are used
        for name in {*imports_of(source, in_functions=False) & left_out}
        | {name for name in imports_of(source, in_functions=True) if name.split(".")[1] not in packages}
    }


def test_a_process_without_tfos_lab_finds_what_is_asked_for_in_a_folder_that_is_the_user_s_only(tmp_path):
    python = make_bare_python(tmp_path / "bare")
    pickled = tmp_path / "find"
    pickled.write_bytes(cloudpickle.dumps(make_finder()))
    code = (
        "import gc, pickle, sys; find = pickle.load(open(sys.argv[1], 'rb')); "
        "print(find(*sys.argv[2:]).__module__, gc.get_freeze_count() > len(gc.get_objects()))"
    )
    command = [str(python), "-c", code, str(pickled), "tfos_lab.errors", "NodeFailed"]

    def find():
        return subprocess.run(command, capture_output=True, text=True, check=False, env={"TMPDIR": str(tmp_path)})

    # Imported modules are exempt from the garbage collection that Spark's worker does after each task.
    assert find().stdout.split() == ["tfos_lab.errors", "True"]
    [folder] = tmp_path.glob("tfos_lab-*")
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    assert f"PermissionError: tfos_lab: {folder} can be opened by others; remove it, or set TMPDIR" in find().stderr
