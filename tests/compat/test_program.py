"""``python -m tfos_lab.compat SCRIPT ARGUMENTS``: a script runs as Python runs it, and ends with its own exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FACTS = """\
import json, sys, tensorflowonspark
from beside import NAME
def function(): pass
import __main__
if __name__ == "__main__":
    import cloudpickle
    print(json.dumps({
        "argv": sys.argv, "file": __file__, "path": sys.path[0], "beside": NAME, "theirs": tensorflowonspark.__name__,
        "main": __main__.function is function, "spec": __spec__, "doc": __doc__,
        "by_value": len(cloudpickle.dumps(function)) > 200,
    }))
"""


@pytest.fixture
def folder(tmp_path):
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "beside.py").write_text("NAME = 'beside'\n")
    return programs


def run(*arguments, cwd, command=(sys.executable, "-m", "tfos_lab.compat")):
    return subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, cwd=cwd, check=False)


ADVICE = "give the path of a Python script, or -m and a module\n"
ENTRIES = {
    "module": [sys.executable, "-m", "tfos_lab.compat"],
    "command": [sys.executable, "-c", "import sys; from tfos_lab.cli import main; sys.exit(main())", "compat"],
    "path": [sys.executable, str(Path(__file__).parents[2] / "tfos_lab/compat/__main__.py")],
}


@pytest.mark.parametrize("command", ENTRIES.values(), ids=ENTRIES)
def test_a_script_sees_what_it_sees_without_us(folder, command):
    (folder / "facts.py").write_text(FACTS)
    done = run("programs/facts.py", "--steps", "3", cwd=folder.parent, command=command)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "argv": ["programs/facts.py", "--steps", "3"],
        "file": str(folder / "facts.py"),
        "path": str(folder),
        "beside": "beside",
        "theirs": "tfos_lab.compat",
        "main": True,
        "spec": None,
        "doc": None,
        "by_value": True,
    }


@pytest.mark.parametrize(
    ("last_line", "code"),
    [("", 0), ("sys.exit(7)", 7), ("sys.exit('text')", 1), ("sys.exit()", 0), ("raise SystemExit(2)", 2)],
)
def test_exit_codes_are_the_script_s(folder, last_line, code):
    (folder / "exits.py").write_text(f"import sys\n{last_line}\n")
    assert run("exits.py", cwd=folder).returncode == code


def test_an_uncaught_exception_ends_with_its_traceback_and_1(folder):
    (folder / "raises.py").write_text("def fail():\n    raise ValueError('the reason')\n\nfail()\n")
    done = run("raises.py", cwd=folder)
    assert done.returncode == 1
    path = folder / "raises.py"
    plain = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
    assert done.stderr == plain.stderr


def test_a_syntax_error_is_shown_as_python_shows_it(folder):
    (folder / "broken.py").write_text("print 'two'\n")
    done = run("broken.py", cwd=folder)
    assert done.returncode == 1
    assert "Missing parentheses" in done.stderr
    assert "tfos_lab" not in done.stderr


def test_a_missing_module_is_explained_at_the_end_of_the_traceback(folder):
    (folder / "old.py").write_text("from tensorflow_estimator import estimator\n")
    done = run("old.py", cwd=folder)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("tensorflow_estimator: tf.estimator left TensorFlow")


def test_what_is_left_at_exit_still_finds_the_script(folder):
    (folder / "late.py").write_text(
        "import atexit\nNAME = 5\n@atexit.register\ndef say():\n    import __main__\n    print(__main__.NAME)\n"
    )
    assert run("late.py", cwd=folder).stdout == "5\n"


def test_a_suite_of_unittest_runs_as_a_module(folder):
    (folder / "suite.py").write_text(
        "import unittest, tensorflowonspark\n"
        "class Suite(unittest.TestCase):\n    def test_it(self):\n        assert tensorflowonspark.__version__\n"
    )
    done = run("-m", "unittest", "-v", "suite", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "test_it (suite.Suite" in done.stderr


def test_a_script_that_does_not_exist_is_one_sentence(folder):
    done = run("nothing.py", cwd=folder)
    assert done.returncode == 2
    assert done.stderr == f"tfos_lab.compat: the program nothing.py does not exist; {ADVICE}"


def test_a_module_that_does_not_exist_is_one_sentence(folder):
    for name in ("nothing", "nothing.inside"):
        done = run("-m", name, cwd=folder)
        assert done.returncode == 2
        assert done.stderr == f"tfos_lab.compat: there is no module {name}; {ADVICE}"


def test_a_folder_is_no_script(folder):
    done = run("programs", cwd=folder.parent)
    assert done.returncode == 2
    assert done.stderr == f"tfos_lab.compat: the program programs is no file; {ADVICE}"


def test_help_and_path(folder):
    assert "spark-submit" in run("--help", cwd=folder).stdout
    path = run("--path", cwd=folder).stdout.strip()
    assert Path(path).parts[-3:] == ("tfos_lab", "compat", "__main__.py")
    assert run(cwd=folder).returncode == 2
