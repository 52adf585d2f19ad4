"""Parts of Keras that are executed when first used: until then nothing of them runs, and then they are as ever.

A package of that name has a part `visualization` that notes each time that it is executed. What the real one does in
forked processes is in `tests/node/test_forkserver.py`.
"""

from __future__ import annotations

import subprocess
import sys

FILES = {
    "keras/__init__.py": "executed = []\nfrom keras import visualization as visualization\n",
    "keras/visualization/__init__.py": """
import keras
keras.executed.append(__name__)
from keras.visualization import inner
from keras.visualization.inner import Part as Part
""",
    "keras/visualization/inner.py": "class Part: ...\n",
}
USE = """
import inspect, pickle, sys
from tfos_lab.core.lazy_imports import lazy_parts_of_keras

before = list(sys.meta_path)
with lazy_parts_of_keras():
    import keras
assert sys.meta_path == before
inspect.stack()  # goes through all modules and looks at their files
assert keras.visualization.__file__.endswith("visualization/__init__.py")
assert keras.executed == []
from keras.visualization import Part
names = {}
exec("from keras.visualization import *", names)
assert {"Part", "inner"} <= set(names) and {"Part", "inner"} <= set(dir(keras.visualization))
assert Part is keras.visualization.Part is pickle.loads(pickle.dumps(Part))
assert not hasattr(keras.visualization, "absent")
assert "keras.executed.append" in inspect.getsource(keras.visualization)
assert keras.executed == ["keras.visualization"]
"""


def test_it_is_executed_once_when_it_is_used_and_is_then_like_any_module(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "use.py").write_text(USE)
    done = subprocess.run([sys.executable, "use.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
