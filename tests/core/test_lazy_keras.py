"""Parts of Keras that are executed when first used: until then nothing of them runs, and then they are as ever.

A package of that name whose part `visualization` notes each time that it is executed, and fails while it is told to.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

FILES = {
    "keras/__init__.py": "executed = []\nbroken = False\nfrom keras import visualization as visualization\n",
    "keras/visualization/__init__.py": """
import time
import keras
keras.executed.append(__name__)
if keras.broken: raise ValueError("a library that it imports is broken")
from keras.visualization import inner
time.sleep(0.01)  # other threads look at it meanwhile
from keras.visualization.inner import Part as Part
""",
    "keras/visualization/inner.py": "class Part: ...\n",
}
IMPORT = """
import importlib, inspect, os, pickle, sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from tfos_lab.core.lazy_imports import lazy_parts_of_keras

before = list(sys.meta_path)
with lazy_parts_of_keras():
    import keras
assert sys.meta_path == before
inspect.stack()  # goes through all modules and looks at their files
assert keras.visualization.__file__.endswith("visualization/__init__.py")
assert keras.executed == []
"""
USES = {
    "once, and it is then like any module": """
from keras.visualization import Part
names = {}
exec("from keras.visualization import *", names)
assert {"Part", "inner"} <= set(names) and {"Part", "inner"} <= set(dir(keras.visualization))
assert Part is keras.visualization.Part is pickle.loads(pickle.dumps(Part))
assert not hasattr(keras.visualization, "absent")
assert "keras.executed.append" in inspect.getsource(keras.visualization)
assert keras.executed == ["keras.visualization"]
""",
    "by many threads at once, which all find it whole": """
barrier = Barrier(8)
def use(number):
    barrier.wait()
    return keras.visualization.Part if number % 2 else importlib.import_module("keras.visualization.inner").Part
with ThreadPoolExecutor(8) as pool:
    assert set(pool.map(use, range(8))) == {keras.visualization.Part}
assert keras.executed == ["keras.visualization"]
""",
    "by a forked process, for itself": """
child = os.fork()
if child == 0:
    os._exit(0 if keras.visualization.Part and keras.executed == ["keras.visualization"] else 1)
assert os.waitpid(child, 0)[1] == 0
assert keras.executed == []
""",
    "where it fails: it says why each time, and works once that is repaired": """
keras.broken = True
for _ in range(2):
    try:
        keras.visualization.Part
    except ValueError as error:
        assert str(error) == "a library that it imports is broken"
    else:
        raise AssertionError("it has not failed")
keras.broken = False
assert keras.visualization.Part
""",
}


@pytest.mark.parametrize("use", USES)
def test_it_is_executed_when_it_is_used(tmp_path, use):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "use.py").write_text(IMPORT + USES[use])
    done = subprocess.run([sys.executable, "use.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
