"""The user's own modules travel with a function, as they are on disk, to processes that do not have them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.payload.test_packing import notebook
from tfos_lab.errors import PayloadError
from tfos_lab.payload.own_modules import collect, imported_names
from tfos_lab.payload.packing import pack

# What a node does, in a process that has none of the modules on its path; it reads one payload after the other.
_NODE = """
import pickle, sys
from tfos_lab.payload.packing import unpack
from tfos_lab.node.traceback_text import format_remote
for data in pickle.load(sys.stdin.buffer):
    try:
        map_fun, args = unpack(data)
        print(map_fun(args, None))
    except Exception as error:
        print(format_remote(error)[2])
"""
Write = Callable[[str, str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write a file of the user's folder, which is on the path of this process only."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def write(name: str, text: str) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    yield write
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def packed(source: str, args: Any = None) -> bytes:
    return pack(notebook(source)["map_fun"], args, with_modules=True)


def on_node(*payloads: bytes) -> list[str]:
    import pickle

    done = subprocess.run(
        [sys.executable, "-c", _NODE], input=pickle.dumps(payloads), capture_output=True, check=True, timeout=60
    )
    return done.stdout.decode().splitlines()


def names_of(*names: str) -> list[str]:
    return [module.name for module in collect(names)]


def test_a_module_that_a_cell_imports_travels_with_what_it_imports(write: Write) -> None:
    write("helpers_a.py", "import helpers_b\ndef twice(x): return helpers_b.times(x, 2)\n")
    write("helpers_b.py", "def times(x, n): return x * n\n")
    outside = packed("import helpers_a\ndef map_fun(args, ctx):\n    return helpers_a.twice(21)\n")
    inside = packed("def map_fun(args, ctx):\n    from helpers_a import twice\n    return twice(args)\n", 4)
    by_name = packed("from helpers_a import twice\ndef map_fun(args, ctx):\n    return twice(5)\n")
    assert on_node(outside, inside, by_name) == ["42", "8", "10"]


def test_objects_find_their_class(write: Write) -> None:
    write("helpers_c.py", "class Model:\n    rate = 3\n")
    source = "import helpers_c\nmodel = helpers_c.Model()\ndef map_fun(args, ctx):\n    return model.rate\n"
    assert on_node(packed(source)) == ["3"]


def test_a_package_travels_whole(write: Write) -> None:
    write("helpers_p/__init__.py", "")
    write("helpers_p/inner/__init__.py", "from ..base import ONE\n")
    write("helpers_p/base.py", "ONE = 1\n")
    write("helpers_p/found_later.py", "TWO = 2\n")
    write("helpers_p/broken.py", "def (:\n")
    source = (
        "from helpers_p.inner import ONE\ndef map_fun(args, ctx):\n    import importlib\n"
        "    return ONE + importlib.import_module('helpers_p.found_later').TWO, helpers.__file__\n"
        "import helpers_p.base as helpers\n"
    )
    assert on_node(packed(source))[0].startswith("(3, ")


def test_a_module_of_a_namespace_package_travels(write: Write) -> None:
    write("helpers_n/part/one.py", "from .two import TWO\n")
    write("helpers_n/part/two.py", "TWO = 2\n")
    write("helpers_n/other.py", "")
    source = "def map_fun(args, ctx):\n    from helpers_n.part import one\n    return one.TWO\n"
    assert names_of("helpers_n.part.one") == ["helpers_n", "helpers_n.part", "helpers_n.part.one", "helpers_n.part.two"]
    assert on_node(packed(source)) == ["2"]


def test_a_package_that_is_installed_as_editable_travels(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("src/helpers_i/__init__.py", "from .one import ONE\n")
    write("src/helpers_i/one.py", "ONE = 1\n")

    class Finder:  # as installers put it into sys.meta_path
        @staticmethod
        def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
            file = tmp_path / "src" / name / "__init__.py"
            return importlib.util.spec_from_file_location(name, file) if name == "helpers_i" else None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    assert on_node(packed("def map_fun(args, ctx):\n    import helpers_i\n    return helpers_i.ONE\n")) == ["1"]


def test_a_change_is_seen_by_the_next_payload_even_in_the_same_process(write: Write) -> None:
    write("helpers_d.py", "import helpers_e\n")
    write("helpers_e.py", "RATE = 1\n")
    source = "import helpers_d\ndef map_fun(args, ctx):\n    import helpers_d\n    return helpers_d.helpers_e.RATE\n"
    first = packed(source)
    write("helpers_e.py", "RATE = 22\n")
    second = packed(source)
    assert on_node(first, first, second) == ["1", "1", "22"]


def test_a_traceback_shows_the_lines_that_ran(write: Write, tmp_path: Path) -> None:
    write("helpers_f.py", "def fail():\n    raise ValueError('too small')  # as it was\n")
    data = packed("def map_fun(args, ctx):\n    import helpers_f\n    helpers_f.fail()\n")
    write("helpers_f.py", "# another first line\ndef fail():\n    pass\n")
    shown = "\n".join(on_node(data))
    assert f"File \"{tmp_path}/helpers_f.py\", line 2, in fail\n    raise ValueError('too small')  # as it was" in shown


def test_a_module_that_is_no_python_is_refused_before_anything_starts(write: Write) -> None:
    write("helpers_g.py", "\ndef fail(:\n")
    with pytest.raises(PayloadError, match=r"line 2 of .*helpers_g.py is not valid Python now.*run the cell again"):
        packed("def map_fun(args, ctx):\n    import helpers_g\n")


def test_what_is_installed_stays_where_it_is(write: Write) -> None:
    assert names_of("json", "numpy", "tensorflow", "tfos_lab.run", "pyspark.sql", "not_there_at_all", "sys") == []


def test_data_files_stay_too(write: Write) -> None:
    write("helpers_h/__init__.py", "")
    write("helpers_h/words.txt", "words")
    assert names_of("helpers_h") == ["helpers_h"]


def test_a_payload_without_modules_is_as_before(write: Write) -> None:
    source = "def map_fun(args, ctx):\n    import json\n    return json.dumps(1)\n"
    assert packed(source) == pack(notebook(source)["map_fun"], None)


def test_imports_are_found_in_nested_code() -> None:
    code = compile("def f():\n    class A:\n        from a.b import c, d\n    import e.f", "x", "exec")
    assert imported_names(code) == {"a.b", "a.b.c", "a.b.d", "e.f"}
