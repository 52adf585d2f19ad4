"""``python -m tfos_lab.compat SCRIPT``, which runs as Python runs it; and the name ``tensorflowonspark`` anywhere."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.bare_python import make_bare_python
from tests.support.spark_home import QUICK_SUBMIT_ARGS, spark_environment

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


@pytest.mark.parametrize(("last_line", "code"), [("", 0), ("sys.exit(7)", 7), ("sys.exit('text')", 1)])
def test_exit_codes_are_the_script_s(folder, last_line, code):
    (folder / "exits.py").write_text(f"import sys\n{last_line}\n")
    assert run("exits.py", cwd=folder).returncode == code


@pytest.mark.parametrize("text", ["def fail():\n    raise ValueError('the reason')\n\nfail()\n", "print 'two'\n"])
def test_an_error_ends_with_the_traceback_of_python_itself_and_1(folder, text):
    (folder / "raises.py").write_text(text)
    done = run("raises.py", cwd=folder)
    assert done.returncode == 1
    plain = subprocess.run([sys.executable, folder / "raises.py"], capture_output=True, text=True, check=False)
    assert done.stderr == plain.stderr


LEFT = {
    "from tensorflow_estimator import estimator": "tensorflow_estimator: tf.estimator left TensorFlow",
    "import tensorflow.contrib.slim": "tensorflow.contrib: it was TensorFlow 1's",
    "import tensorflow as tf; tf.estimator": "tf.estimator: tf.estimator left TensorFlow",
    "import tensorflow as tf; tf.placeholder": (
        "tf.placeholder: it is TensorFlow 1's: import tensorflow.compat.v1 as tf, and call "
    ),
    "import mine": "ModuleNotFoundError: No module named 'mine'",
}


@pytest.mark.tensorflow
def test_what_left_tensorflow_is_explained_at_the_end_of_the_traceback(folder):
    names = [f"old{number}.py" for number in range(len(LEFT))]
    for name, text in zip(names, LEFT, strict=True):
        (folder / name).write_text(f"{text}\n")
    command = [sys.executable, Path(__file__).with_name("run_programs.py"), *names]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    *tracebacks, _ = re.split(r"=== \S+ ended with 1\n", done.stdout)
    for traceback, told in zip(tracebacks, LEFT.values(), strict=True):
        assert traceback.splitlines()[-1].startswith(told)


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


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nothing.py"], "the program nothing.py does not exist"),
        (["-m", "nothing.inside"], "there is no module nothing.inside"),
        (["."], "the program . is no file"),
    ],
)
def test_what_cannot_be_run_is_one_sentence(folder, arguments, told):
    done = run(*arguments, cwd=folder)
    assert done.returncode == 2
    assert done.stderr == f"tfos_lab.compat: {told}; {ADVICE}"


def test_help_and_path(folder):
    assert "spark-submit" in run("--help", cwd=folder).stdout
    path = run("--path", cwd=folder).stdout.strip()
    assert Path(path).parts[-3:] == ("tfos_lab", "compat", "__main__.py")
    assert run(cwd=folder).returncode == 2


# ---- the name tensorflowonspark --------------------------------------------------------------------------------------


def in_python(code, path="", **environ):
    command = [sys.executable, "-c", f"import sys, tfos_lab.compat\n{code}"]
    done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(path)} | environ, check=False)
    assert done.returncode == 0, done.stderr
    return done


SAME = """\
import importlib
tfos_lab.compat.install()
import tensorflowonspark.marker as theirs
from tensorflowonspark import marker as again
import tfos_lab.compat.marker as ours
print(theirs is ours, again is ours, sys.modules['tensorflowonspark'] is tfos_lab.compat,
      ours.__spec__.name == ours.__name__ == 'tfos_lab.compat.marker', importlib.reload(theirs) is ours)
print({'tensorflow', 'keras', 'IPython'} & {name.partition('.')[0] for name in sys.modules})
try:
    import tensorflowonspark.nothing
except ModuleNotFoundError as error:
    print(error)
"""


def test_a_module_has_two_names_and_is_one_and_loads_nothing_heavy():
    done = in_python(SAME)
    assert done.stdout.splitlines() == [
        "True True True True True",
        "set()",
        "No module named 'tensorflowonspark.nothing'",
    ]
    assert done.stderr == ""


@pytest.mark.parametrize("before", ["", "import tensorflowonspark; print(tensorflowonspark.__version__)\n"])
def test_it_takes_the_place_of_one_that_is_installed_and_says_so_once(tmp_path, before):
    (tmp_path / "tensorflowonspark").mkdir()
    installed = tmp_path / "tensorflowonspark/__init__.py"
    installed.write_text("__version__ = 'real'\n")
    install = "tfos_lab.compat.install(); tfos_lab.compat.install()\n"
    done = in_python(f"{before}{install}import tensorflowonspark; print(tensorflowonspark.__version__)", tmp_path)
    assert done.stdout.split() == [*(["real"] if before else []), "2.2.5"]
    [line] = done.stderr.splitlines()
    assert line.endswith(f"tensorflowonspark is installed ({installed}), but means tfos_lab.compat now")


SENT = """
import sys
from tfos_lab.compat.alias import make_alias
from tfos_lab.core.sources import collect_modules
make_alias()
import theirs
print(*(module.name for module in collect_modules(["theirs"])))
"""


def test_what_a_module_imports_by_the_other_name_is_not_sent_as_a_module_of_the_user_s(tmp_path):
    (tmp_path / "theirs.py").write_text("from tensorflowonspark import TFNode\nimport mine\n")
    (tmp_path / "mine.py").touch()
    done = run("-c", SENT, cwd=tmp_path, command=[sys.executable])
    assert done.stdout == "mine theirs\n", done.stderr


ON_EXECUTORS = """\
import json, os, sys
from pyspark import SparkConf, SparkContext
import tfos_lab.compat

def facts(number):
    import tensorflowonspark
    import users_module  # came as a file of the context
    loaded = {name.partition('.')[0] for name in sys.modules}
    return [users_module.name(), tensorflowonspark.__name__, os.environ.get("TF_USE_LEGACY_KERAS"),
            "tfos_lab-" in tensorflowonspark.__file__, bool(loaded & {"tensorflow", "zmq"})]

def ask(context):
    context.addPyFile(sys.argv[1])
    return context.parallelize([1], 1).map(facts).collect()[0]

conf = SparkConf().setMaster("local[1]").set("spark.ui.enabled", "false")
with SparkContext(conf=conf) as present:
    before = list(sys.path)
    tfos_lab.compat.install()
    found = [ask(present)]
    own_path = [path for path in sys.path if path.endswith("tfos_lab_compat.zip")]
with SparkContext(conf=conf) as following:
    found.append(ask(following))
print(json.dumps([found, own_path]))
"""


@pytest.mark.spark
def test_workers_without_tfos_lab_import_tensorflowonspark(tmp_path):
    module = tmp_path / "files" / "users_module.py"
    module.parent.mkdir()
    module.write_text("from tensorflowonspark import marker\n\ndef name():\n    return marker.__name__\n")
    environ = spark_environment(tmp_path / "local", python=make_bare_python(tmp_path / "bare"))
    done = subprocess.run(
        [sys.executable, "-c", ON_EXECUTORS, str(module)],
        cwd=tmp_path,  # not our checkout, from which workers on this machine would import
        env={**environ, "PYSPARK_SUBMIT_ARGS": QUICK_SUBMIT_ARGS, "TF_USE_LEGACY_KERAS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    found, own_path = json.loads(done.stdout.splitlines()[-1])
    assert found == [["tfos_lab.compat.marker", "tfos_lab.compat", "1", True, False]] * 2
    assert own_path == []  # the driver has tfos_lab itself
