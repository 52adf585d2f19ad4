"""``tensorflowonspark`` as another name of `tfos_lab.compat`: the same modules, imported once, and nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import pytest


def in_fresh_interpreter(code, *, path=""):
    command = [sys.executable, "-c", f"from tfos_lab.compat.alias import make_alias; make_alias()\n{code}"]
    done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(path)}, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


SAME = """\
import importlib, sys
import tensorflowonspark.{name} as theirs
from tensorflowonspark import {name} as again
import tfos_lab.compat, tfos_lab.compat.{name} as ours
print(theirs is ours, again is ours, sys.modules['tensorflowonspark'] is tfos_lab.compat,
      ours.__spec__.name == ours.__name__ == 'tfos_lab.compat.{name}', importlib.reload(theirs) is ours)
"""


@pytest.mark.parametrize("name", ["alias", "missing"])
def test_a_module_has_two_names_and_is_one(name):
    assert in_fresh_interpreter(SAME.format(name=name)) == "True True True True True"


def test_ours_may_be_imported_first():
    code = "import tfos_lab.compat.alias as ours, tensorflowonspark.alias as theirs; print(theirs is ours)"
    assert in_fresh_interpreter(code) == "True"


def test_the_alias_is_made_once():
    assert (
        in_fresh_interpreter(
            "import sys; before = len(sys.meta_path); make_alias(); print(len(sys.meta_path) - before)"
        )
        == "0"
    )


def test_importing_it_loads_neither_tensorflow_nor_pyspark():
    code = "import sys, tensorflowonspark; print(*{name.partition('.')[0] for name in sys.modules})"
    assert not {"tensorflow", "keras", "pyspark", "IPython"} & set(in_fresh_interpreter(code).split())


def test_a_module_that_tensorflowonspark_has_not_is_not_found():
    code = "try:\n    import tensorflowonspark.nothing\nexcept ModuleNotFoundError as error:\n    print(error)"
    assert in_fresh_interpreter(code) == "No module named 'tensorflowonspark.nothing'"


def test_it_comes_before_one_that_is_installed(tmp_path):
    (tmp_path / "tensorflowonspark").mkdir()
    (tmp_path / "tensorflowonspark/__init__.py").write_text("__version__ = 'real'\n")
    assert (
        in_fresh_interpreter("import tensorflowonspark; print(tensorflowonspark.__version__)", path=tmp_path) == "2.2.5"
    )


def test_it_takes_the_place_of_one_that_was_imported_before(tmp_path):
    (tmp_path / "tensorflowonspark").mkdir()
    (tmp_path / "tensorflowonspark/__init__.py").write_text("__version__ = 'real'\n")
    code = (
        "sys.meta_path.pop(0)\nimport tensorflowonspark; print(tensorflowonspark.__version__)\nmake_alias()\n"
        "import tensorflowonspark; print(tensorflowonspark.__version__)"
    )
    assert in_fresh_interpreter(f"import sys\n{code}", path=tmp_path).split() == ["real", "2.2.5"]
