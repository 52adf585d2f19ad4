"""The alias in Spark's Python workers: of a SparkContext that is there already, and of the next one."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.bare_python import make_bare_python
from tests.support.spark_home import QUICK_SUBMIT_ARGS, spark_environment

PROGRAM = """\
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
        [sys.executable, "-c", PROGRAM, str(module)],
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
